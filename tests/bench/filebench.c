/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Opens, stats, reads whole and closes the files below a directory, in random order, with T threads:
 * files a second. One thread does what each of a web server's processes does.
 *
 *     filebench DIR [-t THREADS] [-n FILES] [-s SEED] [-b BUFFER] [-l LOOPS] [-S]
 *
 * -n: read this many files in all (0: each one once a loop). -S: no fstat. Prints one line:
 * "files/s MB/s mean_us p99_us".
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct bench {
	char **paths;
	size_t count, room;
	size_t total;         /* opens to do */
	size_t buffer;
	bool no_stat;
	uint32_t *ns;         /* a latency for each open */
	atomic_size_t next;
	atomic_ullong bytes;
	atomic_uint errors;
};

static uint64_t bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void bench_gather(struct bench *b, const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d) {
		fprintf(stderr, "filebench: %s: %s\n", dir, strerror(errno));
		exit(1);
	}
	while ((e = readdir(d))) {
		char *path;

		if (e->d_name[0] == '.' || asprintf(&path, "%s/%s", dir, e->d_name) < 0)
			continue;
		if (e->d_type == DT_DIR) {
			bench_gather(b, path);
			free(path);
		} else if (e->d_type == DT_REG) {
			if (b->count == b->room) {
				b->room = b->room ? b->room * 2 : 1024;
				b->paths = realloc(b->paths, b->room * sizeof(*b->paths));
			}
			b->paths[b->count++] = path;
		} else {
			free(path);
		}
	}
	closedir(d);
}

static uint64_t bench_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void bench_shuffle(struct bench *b, uint64_t seed)
{
	uint64_t state = seed * 2654435761u + 88172645463325252ULL;

	for (size_t i = b->count; i > 1; i--) {
		size_t k = bench_random(&state) % i;
		char *p = b->paths[k];

		b->paths[k] = b->paths[i - 1];
		b->paths[i - 1] = p;
	}
}

static void bench_one(struct bench *b, const char *path, char *buf)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0 || (!b->no_stat && fstat(fd, &st) < 0)) {
		atomic_fetch_add(&b->errors, 1);
	} else {
		while ((n = read(fd, buf, b->buffer)) > 0)
			atomic_fetch_add_explicit(&b->bytes, (unsigned long long)n,
						  memory_order_relaxed);
		if (n < 0)
			atomic_fetch_add(&b->errors, 1);
	}
	if (fd >= 0)
		close(fd);
}

static void *bench_thread(void *arg)
{
	struct bench *b = arg;
	char *buf = malloc(b->buffer);
	size_t i;

	while ((i = atomic_fetch_add(&b->next, 1)) < b->total) {
		uint64_t start = bench_now(), took;

		bench_one(b, b->paths[i % b->count], buf);
		took = bench_now() - start;
		b->ns[i] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
	}
	free(buf);
	return NULL;
}

static int bench_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void bench_run(struct bench *b, unsigned threads)
{
	pthread_t *ids = calloc(threads, sizeof(*ids));
	uint64_t start = bench_now(), took;
	double mean = 0;

	for (unsigned t = 0; t < threads; t++)
		pthread_create(&ids[t], NULL, bench_thread, b);
	for (unsigned t = 0; t < threads; t++)
		pthread_join(ids[t], NULL);
	took = bench_now() - start;
	qsort(b->ns, b->total, sizeof(*b->ns), bench_compare);
	for (size_t i = 0; i < b->total; i++)
		mean += b->ns[i];
	printf("%.0f files/s %.1f MB/s mean %.1f us p99 %.1f us errors %u\n",
	       (double)b->total * 1e9 / (double)took, (double)b->bytes * 1e3 / (double)took,
	       mean / (double)b->total / 1e3, b->ns[b->total * 99 / 100] / 1e3, b->errors);
	free(ids);
}

int main(int argc, char **argv)
{
	struct bench b = { .buffer = 65536 };
	unsigned threads = 1;
	size_t loops = 1, files = 0;
	uint64_t seed = 1;
	int c;

	while ((c = getopt(argc, argv, "t:n:s:b:l:S")) != -1) {
		switch (c) {
		case 't':
			threads = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'n':
			files = strtoul(optarg, NULL, 10);
			break;
		case 's':
			seed = strtoull(optarg, NULL, 10);
			break;
		case 'b':
			b.buffer = strtoul(optarg, NULL, 10);
			break;
		case 'l':
			loops = strtoul(optarg, NULL, 10);
			break;
		case 'S':
			b.no_stat = true;
			break;
		default:
			return 2;
		}
	}
	if (optind + 1 != argc || !threads || !b.buffer) {
		fprintf(stderr, "usage: filebench DIR [-t THREADS] [-n FILES] [-s SEED] "
				"[-b BUFFER] [-l LOOPS] [-S]\n");
		return 2;
	}
	bench_gather(&b, argv[optind]);
	if (!b.count) {
		fprintf(stderr, "filebench: no files below %s\n", argv[optind]);
		return 1;
	}
	bench_shuffle(&b, seed);
	b.total = files ? files : b.count * loops;
	b.ns = malloc(b.total * sizeof(*b.ns));
	bench_run(&b, threads);
	return b.errors ? 1 : 0;
}
