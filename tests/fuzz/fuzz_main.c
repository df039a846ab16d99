/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Replays inputs where there is no libFuzzer: the files and directories given, or without any the
 * corpus of this program. The input under way is named when it crashes or hangs.
 */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

#define REPLAY_MAX (1u << 20)
#define REPLAY_SECONDS 120 /* under a sanitizer, on a busy machine */

static const char *replay_path; /* for the signal handler */

static void replay_died(int sig)
{
	static const char what[] = "fuzz: this input crashes or hangs: ";

	if (write(2, what, sizeof(what) - 1) < 0 || write(2, replay_path, strlen(replay_path)) < 0 ||
	    write(2, "\n", 1) < 0)
		_exit(1);
	signal(sig, SIG_DFL);
	raise(sig);
}

static unsigned replay_file(const char *path)
{
	uint8_t *buf = malloc(REPLAY_MAX), *exact;
	FILE *f = fopen(path, "re");
	size_t n;

	if (!f || !buf) {
		fprintf(stderr, "fuzz: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	n = fread(buf, 1, REPLAY_MAX, f);
	fclose(f);
	/* So that a read beyond the end is seen. */
	exact = malloc(n ? n : 1);
	memcpy(exact, buf, n);
	free(buf);
	replay_path = path;
	alarm(REPLAY_SECONDS);
	LLVMFuzzerTestOneInput(exact, n);
	alarm(0);
	free(exact);
	return 1;
}

static unsigned replay(const char *path)
{
	struct dirent **names;
	struct stat st;
	unsigned done = 0;
	int n;

	if (stat(path, &st) < 0) {
		fprintf(stderr, "fuzz: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	if (!S_ISDIR(st.st_mode))
		return replay_file(path);
	n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char below[4096];

		snprintf(below, sizeof(below), "%s/%s", path, names[i]->d_name);
		if (names[i]->d_name[0] != '.')
			done += replay(below);
		free(names[i]);
	}
	free(names);
	return done;
}

int main(int argc, char **argv)
{
	const char *src = getenv("SRC");
	char corpus[4096];
	unsigned done = 0;

	signal(SIGALRM, replay_died);
	signal(SIGABRT, replay_died);
	signal(SIGSEGV, replay_died);
	signal(SIGBUS, replay_died);
	for (int i = 1; i < argc; i++)
		done += replay(argv[i]);
	if (argc == 1) {
		const char *name = strrchr(argv[0], '/');

		snprintf(corpus, sizeof(corpus), "%s/tests/fuzz/corpus/%s", src ? src : ".",
			 name ? name + 1 : argv[0]);
		done = replay(corpus);
	}
	printf("%u inputs\n", done);
	return done == 0;
}
