/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "base/clock.h"
#include "base/options.h"
#include "unit_util.h"

struct opts {
	bool force;
	uint64_t count, size, wait;
	double ratio;
	const char *name;
	int mode;
	struct option_list cards;
};

static const char *const opts_modes[] = {"around", "back", NULL};

static const struct option_spec opts_specs[] = {
	{.name = "force", .letter = 'f', .kind = OPTION_FLAG, .offset = offsetof(struct opts, force),
	 .help = "do it anyway"},
	{.name = "count", .letter = 'c', .kind = OPTION_UINT, .offset = offsetof(struct opts, count),
	 .arg = "N", .fallback = "3", .help = "how many", .min = 1, .max = 10},
	{.name = "size", .letter = 's', .kind = OPTION_SIZE, .offset = offsetof(struct opts, size),
	 .arg = "SIZE", .fallback = "10G", .help = "how big", .min = 4096},
	{.name = "wait", .kind = OPTION_DURATION, .offset = offsetof(struct opts, wait),
	 .arg = "TIME", .fallback = "1s", .help = "how long"},
	{.name = "ratio", .kind = OPTION_DOUBLE, .offset = offsetof(struct opts, ratio),
	 .arg = "X", .help = "how much", .max = 1},
	{.name = "name", .kind = OPTION_STRING, .offset = offsetof(struct opts, name),
	 .arg = "NAME", .help = "what it is called"},
	{.name = "mode", .kind = OPTION_CHOICE, .offset = offsetof(struct opts, mode),
	 .arg = "MODE", .fallback = "back", .help = "the write mode", .choices = opts_modes},
	{.name = "card", .kind = OPTION_LIST, .offset = offsetof(struct opts, cards),
	 .arg = "PATH", .help = "a card"},
	{.name = NULL},
};

static const struct option_usage opts_usage = {
	.program = "gild test",
	.synopsis = "PATH... [OPTION...]",
	.summary = "Tries the options.",
	.notes = "Further words.",
	.specs = opts_specs,
};

static int opts_parse(struct opts *o, int *words, const char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	options_defaults(&opts_usage, o);
	return options_parse(&opts_usage, o, argc, (char **)(uintptr_t)argv, words);
}

START_TEST(options_take_every_form)
{
	const char *argv[] = {"gild", "one", "-fc4", "--size=1.5M", "--wait", "20ms", "two", "-s", "64K",
			"--ratio=0.25", "--card", "a", "--card=b", "--mode", "around", "--name=",
			"--", "--three", NULL};
	struct opts o;
	int words;

	ck_assert_int_eq(opts_parse(&o, &words, argv), 0);
	ck_assert_int_eq(words, 3);
	ck_assert_str_eq(argv[0], "one");
	ck_assert_str_eq(argv[1], "two");
	ck_assert_str_eq(argv[2], "--three");
	ck_assert(o.force);
	ck_assert_uint_eq(o.count, 4);
	ck_assert_uint_eq(o.size, 64 << 10);
	ck_assert_uint_eq(o.wait, 20 * NS_PER_MS);
	ck_assert_double_eq(o.ratio, 0.25);
	ck_assert_str_eq(o.name, "");
	ck_assert_int_eq(o.mode, 0);
	ck_assert_uint_eq(o.cards.count, 2);
	ck_assert_str_eq(o.cards.items[1], "b");
	free(o.cards.items);
}
END_TEST

START_TEST(options_have_defaults)
{
	struct opts o;

	memset(&o, 0xff, sizeof(o));
	options_defaults(&opts_usage, &o);
	ck_assert(!o.force);
	ck_assert_uint_eq(o.count, 3);
	ck_assert_uint_eq(o.size, 10ULL << 30);
	ck_assert_uint_eq(o.wait, NS_PER_S);
	ck_assert_ptr_null(o.name);
	ck_assert_int_eq(o.mode, 1);
	ck_assert_uint_eq(o.cards.count, 0);
}
END_TEST

static const struct {
	const char *words[3];
	const char *sentence;
} opts_errors[] = {
	{{"--forze"}, "gild test: there is no option --forze; did you mean --force?\n"},
	{{"--colour"}, "gild test: there is no option --colour; see gild test --help\n"},
	{{"-x"}, "gild test: there is no option -x; see gild test --help\n"},
	{{"--size"}, "gild test: --size needs a value; give a size such as 512M or 10G, at least "
		     "4 KiB\n"},
	{{"--size", "1"}, "gild test: --size cannot be \"1\"; give a size such as 512M or 10G, at "
			  "least 4 KiB\n"},
	{{"--size=9Q"}, "--size cannot be \"9Q\""},
	{{"--size=-4096"}, "--size cannot be \"-4096\""},
	{{"--size=99999999999999999999"}, "--size cannot be"},
	{{"--size=99999999999G"}, "--size cannot be"},
	{{"-c", "11"}, "gild test: --count cannot be \"11\"; give a whole number, from 1 to 10\n"},
	{{"-c", "1x"}, "--count cannot be \"1x\""},
	{{"--wait=5y"}, "--wait cannot be \"5y\"; give a duration such as 500ms, 10s or 2h\n"},
	{{"--ratio=2"}, "--ratio cannot be \"2\"; give a number, at most 1\n"},
	{{"--ratio=nan"}, "--ratio cannot be \"nan\""},
	{{"--mode=through"}, "--mode cannot be \"through\"; give one of around, back\n"},
	{{"--force=maybe"}, "--force cannot be \"maybe\"; give on or off\n"},
};

static void opts_run(void *arg)
{
	const char *const *words = arg;
	const char *argv[] = {"gild", words[0], words[1], NULL};
	struct opts o;
	int n;

	if (opts_parse(&o, &n, argv) != -EINVAL)
		_exit(3);
}

START_TEST(options_errors_are_one_sentence_with_a_remedy)
{
	char out[1024];
	int status = run_child(opts_run, (void *)(uintptr_t)opts_errors[_i].words, out, sizeof(out));

	ck_assert_int_eq(status, 0);
	ck_assert_has(out, opts_errors[_i].sentence);
	ck_assert_ptr_eq(strchr(out, '\n'), out + strlen(out) - 1);
}
END_TEST

START_TEST(options_set_takes_mount_options)
{
	struct opts o;

	options_defaults(&opts_usage, &o);
	ck_assert_int_eq(options_set(&opts_usage, &o, "force"), 0);
	ck_assert(o.force);
	ck_assert_int_eq(options_set(&opts_usage, &o, "force=off"), 0);
	ck_assert(!o.force);
	ck_assert_int_eq(options_set(&opts_usage, &o, "mode=around"), 0);
	ck_assert_int_eq(o.mode, 0);
	ck_assert_int_eq(options_set(&opts_usage, &o, "rw"), -ENOENT);
	ck_assert_int_eq(options_set(&opts_usage, &o, "forc"), -ENOENT);
}
END_TEST

static void opts_help(void *arg)
{
	const char *argv[] = {"gild", "--help", NULL};
	struct opts o;
	int n;

	(void)arg;
	if (opts_parse(&o, &n, argv) != 1)
		_exit(3);
}

START_TEST(options_help_comes_from_the_table)
{
	const struct option_spec *s;
	char out[4096], name[64];

	ck_assert_int_eq(run_child(opts_help, NULL, out, sizeof(out)), 0);
	ck_assert_has(out, "Usage: gild test PATH... [OPTION...]\nTries the options.\n");
	for (s = opts_specs; s->name; s++) {
		snprintf(name, sizeof(name), "--%s", s->name);
		ck_assert_has(out, name);
		ck_assert_has(out, s->help);
	}
	ck_assert_has(out, "  -s, --size SIZE             how big (default 10G)\n");
	ck_assert_has(out, "the write mode: around, back (default back)\n");
	ck_assert_has(out, "\nFurther words.\n");
}
END_TEST

START_TEST(sizes_are_read_back_as_printed)
{
	static const uint64_t sizes[] = {0, 1, 1023, 1024, 1536, 4096, 10ULL << 30, 3ULL << 40};
	uint64_t n;
	char buf[32];
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		options_format_size(sizes[i], buf, sizeof(buf));
		ck_assert_msg(options_parse_size(buf, &n) == 0 && n == sizes[i], "%s", buf);
	}
	ck_assert_str_eq(options_format_size(1536, buf, sizeof(buf)), "1.5 KiB");
	ck_assert_str_eq(options_format_size(UINT64_MAX, buf, sizeof(buf)), "16 EiB");
	ck_assert_int_eq(options_parse_size("18446744073709551615", &n), 0);
	ck_assert_uint_eq(n, UINT64_MAX);
	ck_assert_int_eq(options_parse_size("16777216T", &n), -EINVAL);
	ck_assert_int_eq(options_parse_size("", &n), -EINVAL);
	ck_assert_int_eq(options_parse_size(" 1", &n), -EINVAL);
	ck_assert_int_eq(options_parse_size("1.", &n), -EINVAL);
	ck_assert_int_eq(options_parse_duration("2h", &n), 0);
	ck_assert_uint_eq(n, 7200 * NS_PER_S);
	ck_assert_int_eq(options_parse_duration("0.5", &n), 0);
	ck_assert_uint_eq(n, 500 * NS_PER_MS);
}
END_TEST

static Suite *options_suite(void)
{
	Suite *s = suite_create("options");
	TCase *t = tcase_create("options");

	tcase_add_test(t, options_take_every_form);
	tcase_add_test(t, options_have_defaults);
	tcase_add_loop_test(t, options_errors_are_one_sentence_with_a_remedy, 0,
			    sizeof(opts_errors) / sizeof(opts_errors[0]));
	tcase_add_test(t, options_set_takes_mount_options);
	tcase_add_test(t, options_help_comes_from_the_table);
	tcase_add_test(t, sizes_are_read_back_as_printed);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return unit_main(options_suite());
}
