/* SPDX-License-Identifier: BSD-2-Clause
 * The card's directory: format, open, describe, recover, and every way to refuse. Each refusal is
 * one sentence on stderr, and leaves the directory as it was. */
#include <config.h>

#include "card_rig.h"

#include "base/hash.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define CARD_SIZE (36u << 20)

static char scratch[256], dir[300];
static char said[4096]; /* what the last call under say() wrote to stderr */

static void setup(void)
{
	scratch_make(scratch);
	snprintf(dir, sizeof(dir), "%s/card", scratch);
}

static void setup_fast(void)
{
	rig_fast_scratch();
	setup();
}

static void teardown(void)
{
	scratch_remove(scratch);
}

static int stderr_kept = -1;
static FILE *stderr_now;

static void say_begin(void)
{
	fflush(stderr);
	stderr_now = tmpfile();
	ck_assert_ptr_nonnull(stderr_now);
	stderr_kept = dup(2);
	dup2(fileno(stderr_now), 2);
}

static int say_end(int result)
{
	size_t len;

	dup2(stderr_kept, 2);
	close(stderr_kept);
	rewind(stderr_now);
	len = fread(said, 1, sizeof(said) - 1, stderr_now);
	said[len] = '\0';
	fclose(stderr_now);
	return result;
}

#define say(call) (say_begin(), say_end(call))

static unsigned lines(void)
{
	unsigned n = 0;
	const char *p;

	for (p = said; (p = strchr(p, '\n')); p++)
		n++;
	return n;
}

#define refused(call, error, part)                                                    \
	do {                                                                          \
		ck_assert_int_eq(say(call), error);                                   \
		ck_assert_msg(lines() == 1, "not one sentence: %s", said);            \
		ck_assert_has(said, part);                                            \
	} while (0)

static int format(uint64_t size, unsigned controllers, bool force)
{
	struct card_format f = {.size = size, .controllers = controllers, .force = force};

	return card_format(dir, &f);
}

static int open_card(struct flash **card)
{
	struct card_options o = {.holder = "the test"};

	return card_open(card, dir, &o);
}

static int try_open(void)
{
	struct flash *card;
	int r = open_card(&card);

	if (r == 0)
		card->ops->close(card);
	return r;
}

static void path_of(char *buf, const char *name)
{
	snprintf(buf, 400, "%s/%s", dir, name);
}

static bool exists(const char *name)
{
	char path[400];

	path_of(path, name);
	return access(path, F_OK) == 0;
}

static void command(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void command(const char *fmt, ...)
{
	char line[1200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	ck_assert_int_eq(system(line), 0);
}

/* A checksum of everything in the directory but the locks: ours, and LMDB's where `maps_open`. */
static uint64_t sum;
static bool maps_open;

static int sum_file(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	uint64_t part = hash_64(path, strlen(path));
	size_t room = (size_t)st->st_size + 1;
	const char *name = path + ftw->base;
	ssize_t len;
	char *buf;
	int fd;

	if (kind != FTW_F || strcmp(name, "lock") == 0 ||
	    (maps_open && strcmp(name, "lock.mdb") == 0))
		return 0;
	fd = open(path, O_RDONLY);
	buf = malloc(room);
	ck_assert(fd >= 0 && buf);
	len = read(fd, buf, room);
	ck_assert_int_eq(len, st->st_size);
	close(fd);
	sum += hash_mix64(part + hash_64(buf, (size_t)len)); /* in any order of the walk */
	free(buf);
	return 0;
}

static uint64_t sum_of(void)
{
	sum = 0;
	ck_assert_ok(nftw(dir, sum_file, 16, FTW_PHYS));
	return sum;
}

START_TEST(format_open_describe)
{
	struct card_info info;
	struct flash_stats s;
	struct flash *card;
	struct stat st;
	char path[400];

	ck_assert_ok(say(format(CARD_SIZE, 0, false)));
	ck_assert_str_eq(said, "");
	ck_assert_ok(stat(dir, &st));
	ck_assert_int_eq(st.st_mode & 0777, 0700);
	path_of(path, "medium.dat");
	ck_assert_ok(stat(path, &st));
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_uint_eq(st.st_size, CARD_SIZE);
	ck_assert_uint_ge((uint64_t)st.st_blocks * 512, CARD_SIZE); /* preallocated */
	ck_assert_ok(card_describe(dir, &info));
	ck_assert_uint_eq(info.version, 1);
	ck_assert_uint_eq(info.controllers, 4);
	ck_assert_uint_eq(info.op_percent, 28);
	ck_assert_uint_eq(info.size, CARD_SIZE);
	ck_assert_uint_eq(info.raw_bytes, CARD_SIZE);
	ck_assert(info.clean);
	ck_assert_str_eq(info.medium, path);
	ck_assert_ok(open_card(&card));
	card->ops->stats(card, &s);
	ck_assert_uint_eq(info.usable_bytes, s.usable_bytes);
	ck_assert_uint_gt(s.usable_bytes, 0);
	ck_assert_ok(rig_write(card, 5, 0, 100, 7, false));
	ck_assert_ok(rig_put(card, 3, 8, 50));
	ck_assert_ok(card_describe(dir, &info)); /* also while it is in use */
	ck_assert(!info.clean);
	ck_assert_ok(card->ops->close(card));
	ck_assert_ok(card_describe(dir, &info));
	ck_assert(info.clean);
	ck_assert_ok(open_card(&card));
	ck_assert_int_eq(rig_read(card, 5, 99), 7);
	ck_assert_int_eq(rig_get(card, 3), 8);
	ck_assert_ok(card->ops->close(card));
}
END_TEST

START_TEST(an_open_card_flushes_once)
{
	struct media_stats before, after;
	struct flash *card;
	unsigned i;

	ck_assert_ok(format(CARD_SIZE, 4, false));
	ck_assert_ok(open_card(&card));
	ck_assert_ok(card->ops->flush(card));
	media_get_stats(card_of(card)->medium, &before);
	for (i = 0; i < 50; i++) {
		ck_assert_ok(rig_write(card, 5, 16 * i, 17, i + 1, false)); /* two controllers */
		ck_assert_ok(card->ops->flush(card));
	}
	media_get_stats(card_of(card)->medium, &after);
	ck_assert_uint_eq(after.flushes - before.flushes, 50);
	ck_assert_ok(card->ops->close(card));
}
END_TEST

START_TEST(format_refuses)
{
	struct card_format f = {.size = CARD_SIZE, .device = "/dev/null"};
	uint64_t before;

	refused(format(1 << 20, 4, false), -ENOSPC, "at least");
	refused(format(0, 4, false), -EINVAL, "size");
	refused(format(CARD_SIZE, 17, false), -EINVAL, "at most 16 controllers");
	refused(card_format(dir, &f), -EINVAL, "not a block device");
	f = (struct card_format){.size = CARD_SIZE, .volume_bytes = CARD_SIZE};
	refused(card_format(dir, &f), -ENOSPC, "volume");
	ck_assert_int_ne(access(dir, F_OK), 0);
	ck_assert_ok(format(CARD_SIZE, 0, false));
	before = sum_of();
	refused(format(CARD_SIZE, 0, false), -EEXIST, "--force");
	refused(format(1 << 20, 0, true), -ENOSPC, "too small");
	ck_assert_uint_eq(sum_of(), before);
	ck_assert_ok(say(format(CARD_SIZE + (1 << 20), 2, true))); /* replaced */
	ck_assert_ok(try_open());
	command("echo mine >'%s/letter.txt'", dir);
	refused(format(CARD_SIZE, 0, true), -EEXIST, "letter.txt");
	ck_assert(exists("letter.txt"));
	command("rm -r '%s' && echo mine >'%s'", dir, dir);
	refused(format(CARD_SIZE, 0, true), -ENOTDIR, "cannot hold a card");
	command("rm '%s'", dir);
	snprintf(dir, sizeof(dir), "%s/no/such", scratch);
	refused(format(CARD_SIZE, 0, false), -ENOENT, "cannot be made");
}
END_TEST

START_TEST(open_refuses_and_changes_nothing)
{
	static const struct {
		const char *what; /* done to a good card, in its directory */
		int error;
		const char *part;
	} cases[] = {
		{"rm card.json", -ENODATA, "not a card"},
		{"echo '{\"version\": ' >card.json", -EUCLEAN, "damaged"},
		{"head -c 5000 /dev/urandom >card.json", -EUCLEAN, "damaged"},
		{"rm card.json && mkdir card.json", -EUCLEAN, "small regular file"},
		{"sed -i 's/\"version\": *1/\"version\": 99/' card.json", -EPROTO, "version 99"},
		{"sed -i 's/\"controllers\": 4/\"controllers\": 0/' card.json", -EUCLEAN, "\"controllers\""},
		{"sed -i 's/\"controllers\": 4/\"controllers\": \"4\"/' card.json", -EUCLEAN, "\"controllers\""},
		{"sed -i 's/\"controllers\": 4/\"controllers\": 3/' card.json", -EUCLEAN, ""},
		{"sed -i 's/\"op_percent\": 28/\"op_percent\": 1.5/' card.json", -EUCLEAN, "\"op_percent\""},
		{"sed -i 's/\"capacity\"/\"both\"/' card.json", -EUCLEAN, "\"savings\""},
		{"sed -i 's/medium.dat/other.dat/' card.json", -EUCLEAN, "\"medium\""},
		{"sed -i 's/\"uuid\": \"../\"uuid\": \"zz/' card.json", -EUCLEAN, "\"uuid\""},
		{"sed -i '/\"size\"/d; s/\"medium.dat\",/\"medium.dat\"/' card.json", -EUCLEAN, "\"size\""},
		{"sed -i 's/\"uuid\": \"../\"uuid\": \"00/' card.json", -EUCLEAN, "another card"},
		{"truncate -s 1M medium.dat", -EUCLEAN, "was made with"},
		{"truncate -s 0 medium.dat", -EUCLEAN, "was made with"},
		{"truncate -s +1M medium.dat", -EUCLEAN, "was made with"},
		{"rm medium.dat", -EUCLEAN, "missing"},
		{"head -c 65536 /dev/urandom | dd of=medium.dat conv=notrunc status=none", -EUCLEAN, "gild recover"},
		{"rm -r meta", -ESTALE, "gild recover"},
		{"rm -r meta/2", -ESTALE, "gild recover"},
		{"head -c 8192 /dev/urandom | dd of=meta/3/data.mdb conv=notrunc status=none", -EUCLEAN, "gild recover"},
		{"truncate -s 5000 meta/0/data.mdb", -EUCLEAN, "gild recover"},
	};
	struct flash *card;
	struct card_info info;
	char line[700];
	uint64_t before;
	size_t i;

	ck_assert_ok(format(CARD_SIZE, 0, false));
	ck_assert_ok(open_card(&card));
	ck_assert_ok(rig_write(card, 5, 0, 100, 7, false));
	ck_assert_ok(card->ops->close(card));
	command("cp -a --sparse=always '%s' '%s/good'", dir, scratch);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		command("rm -rf '%s'", dir);
		snprintf(line, sizeof(line), "%s/good", scratch);
		command("cp -a --sparse=always '%s' '%s'", line, dir);
		snprintf(line, sizeof(line), "cd '%s' && %s", dir, cases[i].what);
		command("%s", line);
		before = sum_of();
		printf("%s\n", cases[i].what);
		refused(try_open(), cases[i].error, cases[i].part);
		ck_assert_uint_eq(sum_of(), before);
		say(card_describe(dir, &info));
	}
	snprintf(dir, sizeof(dir), "%s/nothing", scratch);
	refused(try_open(), -ENOENT, "no card can be opened");
	refused(card_describe(dir, &info), -ENOENT, "no card can be opened");
}
END_TEST

START_TEST(a_second_user_is_told_the_first)
{
	struct card_format f = {.size = CARD_SIZE, .force = true};
	struct card_options o = {.holder = "gildfs on /srv/www"};
	struct flash *card, *other;
	char pid[32], text[64];
	int to[2], from[2];
	pid_t child;

	ck_assert_ok(format(CARD_SIZE, 0, false));
	ck_assert_int_eq(pipe(to), 0);
	ck_assert_int_eq(pipe(from), 0);
	child = fork();
	if (child == 0) {
		text[0] = card_open(&card, dir, &o) == 0 ? 'y' : 'n';
		if (write(from[1], text, 1) != 1 || read(to[0], text, 1) != 1)
			_exit(1);
		_exit(card->ops->close(card) != 0);
	}
	ck_assert_int_eq(read(from[0], text, 1), 1);
	ck_assert_int_eq(text[0], 'y');
	snprintf(pid, sizeof(pid), "%d", (int)child);
	refused(card_open(&other, dir, &o), -EBUSY, "gildfs on /srv/www");
	ck_assert_has(said, pid);
	refused(card_format(dir, &f), -EBUSY, "gildfs on /srv/www");
	refused(card_recover(dir), -EBUSY, "gildfs on /srv/www");
	ck_assert_int_eq(write(to[1], text, 1), 1);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_ok(try_open());
}
END_TEST

START_TEST(format_on_a_full_filesystem_leaves_nothing)
{
	char mnt[280];

	if (geteuid() != 0)
		return;
	snprintf(mnt, sizeof(mnt), "%s/mnt", scratch);
	ck_assert_ok(mkdir(mnt, 0700));
	if (mount("none", mnt, "tmpfs", 0, "size=20M") < 0)
		return;
	snprintf(dir, sizeof(dir), "%s/card", mnt);
	refused(format(CARD_SIZE, 0, false), -ENOSPC, "left");
	ck_assert_has(said, "MiB");
	ck_assert_int_ne(access(dir, F_OK), 0);
	ck_assert_ok(umount(mnt));
}
END_TEST

static void fill(struct flash *card)
{
	uint64_t k, file;

	for (k = 0; k < 100; k++)
		ck_assert_ok(rig_put(card, k, 1 + k, 60));
	for (file = 1; file <= 20; file++)
		ck_assert_ok(rig_write(card, file, 0, 70, 200 + file, false));
	for (k = 0; k < 100; k += 10)
		ck_assert_ok(rig_put(card, k, 300 + k, 0));
	ck_assert_ok(card->ops->trim(card, 1, 0, FLASH_TO_END, 500));
}

/* Everything of fill() is there; lines of the controllers in `lost` may be gone. */
static void check_filled(uint32_t lost)
{
	struct flash *card;
	uint64_t k, file, s;

	ck_assert_ok(open_card(&card));
	for (k = 0; k < 100; k++)
		ck_assert_int_eq(rig_get(card, k), k % 10 ? 1 + k : 0);
	for (file = 1; file <= 20; file++) {
		for (s = 0; s < 70; s++) {
			int64_t got = rig_read(card, file, s);
			unsigned i = card_route(card_of(card), file, s / 16);

			ck_assert_int_eq(got, file == 1 || lost & 1U << i ? 0 : 200 + file);
		}
	}
	ck_assert_ok(card->ops->close(card));
}

START_TEST(recover_without_any_map)
{
	struct flash_stats s;
	struct flash *card;

	ck_assert_ok(format(CARD_SIZE, 0, false));
	ck_assert_ok(open_card(&card));
	fill(card);
	ck_assert_ok(card->ops->close(card));
	command("find '%s/meta' -type f -delete", dir);
	refused(try_open(), -ESTALE, "gild recover");
	ck_assert_ok(card_recover(dir));
	ck_assert(!exists("meta/0.new"));
	check_filled(0);
	command("rm -r '%s/meta'", dir);
	ck_assert_ok(card_recover(dir));
	check_filled(0);
	ck_assert_ok(card_recover(dir)); /* also when nothing is wrong */
	for (int turn = 0; turn < 2; turn++) { /* stamps may have been lost: the first user is told */
		ck_assert_ok(open_card(&card));
		card->ops->stats(card, &s);
		ck_assert_int_eq(s.unclean, turn == 0);
		ck_assert_ok(card->ops->close(card));
	}
	check_filled(0);
}
END_TEST

START_TEST(records_survive_the_loss_of_any_controller)
{
	struct flash *card;
	char line[600];
	unsigned i;

	for (i = 0; i < 4; i++) {
		ck_assert_ok(format(CARD_SIZE, 0, true));
		ck_assert_ok(open_card(&card));
		fill(card);
		ck_assert_ok(card->ops->close(card));
		snprintf(line, sizeof(line), "cd '%s' && rm -r meta/%u && dd if=/dev/urandom "
			 "of=medium.dat bs=1M seek=%u count=9 conv=notrunc status=none", dir, i, 9 * i);
		command("%s", line);
		refused(try_open(), -EUCLEAN, "gild recover");
		ck_assert_ok(say(card_recover(dir)));
		ck_assert_has(said, "emptied");
		check_filled(1U << i);
	}
	command("dd if=/dev/zero of='%s/medium.dat' bs=1M count=36 conv=notrunc status=none", dir);
	refused(card_recover(dir), -EUCLEAN, "format it anew");
	ck_assert(exists("meta/0/data.mdb"));
}
END_TEST

START_TEST(recover_takes_back_what_is_out_of_use)
{
	struct flash_health h;
	struct flash *card;

	ck_assert_ok(format(CARD_SIZE, 0, false));
	ck_assert_ok(open_card(&card));
	fill(card);
	ck_assert_ok(card->ops->flush(card));
	ck_assert_ok(say(card_out(card_of(card), 2))); /* as if it had failed an update */
	ck_assert_ok(card->ops->close(card));
	ck_assert_ok(say(open_card(&card)));
	ck_assert_has(said, "controller 2 is out of use");
	card->ops->health(card, &h);
	ck_assert_int_eq(h.state, FLASH_DEGRADED);
	ck_assert_ok(card->ops->close(card));
	ck_assert_ok(say(card_recover(dir)));
	ck_assert_has(said, "controller 2 is emptied");
	ck_assert_ok(open_card(&card));
	card->ops->health(card, &h);
	ck_assert_int_eq(h.state, FLASH_OK);
	ck_assert_ok(card->ops->close(card));
	check_filled(1U << 2);
	ck_assert_ok(card_recover(dir)); /* the old log of that controller is really gone */
	check_filled(1U << 2);
}
END_TEST

static struct flash *shared_card;
static _Atomic uint64_t shared_stamp;

static void *user_thread(void *arg)
{
	uint64_t file = (uintptr_t)arg, i;

	for (i = 0; i < 60; i++) {
		ck_assert_ok(rig_write(shared_card, file, i * 5, 5, ++shared_stamp, i % 2));
		ck_assert_ok(rig_put(shared_card, file * 100 + i % 10, ++shared_stamp, 100));
		if (i % 7 == 0)
			ck_assert_ok(shared_card->ops->trim(shared_card, file, i * 5, 1,
							    ++shared_stamp));
		if (i % 3 == 0)
			ck_assert_ok(shared_card->ops->flush(shared_card));
	}
	return NULL;
}

START_TEST(threads_use_one_card)
{
	struct card_options o = {.ftl = {.background = true}};
	pthread_t t[4];
	uint64_t i, s;

	ck_assert_ok(format(CARD_SIZE, 0, false));
	ck_assert_ok(card_open(&shared_card, dir, &o));
	for (i = 0; i < 4; i++)
		ck_assert_ok(pthread_create(&t[i], NULL, user_thread, (void *)(uintptr_t)(i + 1)));
	for (i = 0; i < 4; i++)
		ck_assert_ok(pthread_join(t[i], NULL));
	ck_assert_ok(shared_card->ops->close(shared_card));
	ck_assert_ok(card_open(&shared_card, dir, &o));
	for (i = 0; i < 4; i++) {
		for (s = 0; s < 300; s++) {
			int64_t got = rig_read(shared_card, i + 1, s);

			if (s % 35)
				ck_assert_int_gt(got, 0);
			else
				ck_assert_int_eq(got, 0);
		}
		for (s = 0; s < 10; s++)
			ck_assert_int_gt(rig_get(shared_card, (i + 1) * 100 + s), 0);
	}
	ck_assert_ok(shared_card->ops->close(shared_card));
}
END_TEST

START_TEST(devices_with_contents_are_refused)
{
	struct card_format f = {0};
	char line[1100], loop[64] = "";
	struct flash *card;
	FILE *p;

	if (geteuid() != 0)
		return;
	snprintf(line, sizeof(line), "truncate -s 64M '%s/img' && mkfs.ext4 -q '%s/img' 2>/dev/null && "
		 "losetup -f --show '%s/img' 2>/dev/null", scratch, scratch, scratch);
	p = popen(line, "r");
	if (!p || !fgets(loop, sizeof(loop), p)) {
		if (p)
			pclose(p);
		return; /* no loop devices here */
	}
	pclose(p);
	loop[strcspn(loop, "\n")] = '\0';
	f.device = loop;
	refused(card_format(dir, &f), -EEXIST, "ext2/3/4");
	ck_assert_int_ne(access(dir, F_OK), 0);
	command("mkdir '%s/mnt'", scratch);
	snprintf(line, sizeof(line), "%s/mnt", scratch);
	command("mount '%s' '%s'", loop, line);
	f.force = true;
	refused(card_format(dir, &f), -EBUSY, loop);
	ck_assert_ok(umount(line));
	ck_assert_ok(card_format(dir, &f));
	ck_assert_ok(open_card(&card));
	ck_assert_ok(rig_write(card, 5, 0, 100, 7, false));
	ck_assert_ok(card->ops->close(card));
	ck_assert_ok(open_card(&card));
	ck_assert_int_eq(rig_read(card, 5, 50), 7);
	ck_assert_ok(card->ops->close(card));
	f.force = false;
	snprintf(dir, sizeof(dir), "%s/second", scratch);
	refused(card_format(dir, &f), -EEXIST, "medium of a card");
	command("losetup -d '%s'", loop);
}
END_TEST

START_TEST(a_formatted_card_can_be_read_only)
{
	struct card_options o = {.ftl = {.readonly = true}};
	struct flash *card;
	uint64_t before;

	maps_open = true;
	ck_assert_ok(format(CARD_SIZE, 0, false));
	ck_assert_ok(open_card(&card));
	fill(card);
	ck_assert_ok(card->ops->close(card));
	before = sum_of();
	ck_assert_ok(card_open(&card, dir, &o));
	ck_assert_int_eq(rig_read(card, 3, 10), 203);
	ck_assert_int_eq(rig_get(card, 3), 4);
	ck_assert_int_lt(rig_write(card, 5, 0, 1, 1000, false), 0);
	ck_assert_int_eq(rig_read(card, 3, 10), 203);
	card->ops->close(card);
	ck_assert_uint_eq(sum_of(), before);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("card_dir");
	TCase *disk = tcase_create("disk"), *memory = tcase_create("memory");

	tcase_set_timeout(disk, 120);
	tcase_add_checked_fixture(disk, setup, teardown);
	tcase_add_test(disk, format_open_describe);
	tcase_add_test(disk, an_open_card_flushes_once);
	tcase_add_test(disk, recover_without_any_map);
	tcase_add_test(disk, threads_use_one_card);
	tcase_add_test(disk, devices_with_contents_are_refused);
	suite_add_tcase(s, disk);
	tcase_set_timeout(memory, 120);
	tcase_add_checked_fixture(memory, setup_fast, teardown);
	tcase_add_test(memory, format_refuses);
	tcase_add_test(memory, open_refuses_and_changes_nothing);
	tcase_add_test(memory, a_second_user_is_told_the_first);
	tcase_add_test(memory, format_on_a_full_filesystem_leaves_nothing);
	tcase_add_test(memory, recover_takes_back_what_is_out_of_use);
	tcase_add_test(memory, records_survive_the_loss_of_any_controller);
	tcase_add_test(memory, a_formatted_card_can_be_read_only);
	suite_add_tcase(s, memory);
	return unit_main(s);
}
