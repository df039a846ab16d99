/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gildfs: mounts. The process that the user started waits until the mount answers, or prints why it
 * does not, and returns its exit code; the daemon is its child, forked before any thread or lock
 * exists. Until the mount is ready the daemon's stderr is the user's; then it logs to syslog.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "fs/fs.h"
#include "meta/meta.h"
#include "tools/control.h"
#include "tools/gildfs_options.h"
#include "tools/mount_status.h"
#include "tools/privileges.h"
#include "tools/stack.h"
#include "tools/watchdog.h"

static struct fs *gildfs_running; /* for the signal handler */

struct gildfs {
	const struct gildfs_options *options;
	struct stack *stack;
	struct fs *fs;
	struct control *control;
	struct mount_status status;
	struct watchdog *watchdog;
	int ready_fd; /* to the waiting parent; -1 in the foreground */
};

static void gildfs_on_signal(int sig)
{
	(void)sig;
	if (gildfs_running)
		fs_stop(gildfs_running);
}

static void gildfs_handle_signals(struct fs *fs)
{
	struct sigaction stop = {.sa_handler = gildfs_on_signal}, ignore = {.sa_handler = SIG_IGN};

	gildfs_running = fs;
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGHUP, &stop, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
}

/* Descriptors and, for many threads, nothing else is scarce: take what the hard limit gives. */
static void gildfs_raise_limits(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* INIT was answered: let the parent go and cut the ties to the terminal. */
static void gildfs_on_ready(void *arg)
{
	struct gildfs *g = arg;
	int null;

	watchdog_mounted(g->watchdog);
	if (g->ready_fd < 0)
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		close(null);
	}
	log_set_syslog(true, "gildfs");
	while (write(g->ready_fd, "", 1) < 0 && errno == EINTR)
		continue;
	close(g->ready_fd);
	g->ready_fd = -1;
}

static int gildfs_start_stack(struct gildfs *g, const char *default_card)
{
	const struct gildfs_options *o = g->options;
	char holder[PATH_MAX + 32];
	struct stack_config config = {
		.backing = o->backing,
		.fsid = o->fsid,
		.cards = o->card.count ? o->card.items : &default_card,
		.card_count = o->card.count ? (unsigned)o->card.count : 1,
		.raid = o->raid,
		.holder = holder,
		.readonly = o->readonly,
		.cache = {
			.mode = (enum cache_mode)o->mode,
			.coherence = (enum cache_coherence)o->coherence,
			.ttl_ns = o->ttl,
			.policy = (enum cache_policy)o->admit,
			.seq_cutoff = o->seq_cutoff,
			.publish_after_ns = o->publish_after,
		},
	};

	snprintf(holder, sizeof(holder), "gildfs on %s", o->mountpoint);
	return stack_open(&g->stack, &config);
}

static int gildfs_start_fs(struct gildfs *g)
{
	const struct gildfs_options *o = g->options;
	struct fs_options f = {
		.source = o->backing,
		.fuse_opts = o->fuse_opts[0] ? o->fuse_opts : NULL,
		/* Refused at open, not at the first write. */
		.readonly = o->readonly || (enum cache_mode)o->mode == CACHE_READ_ONLY,
		.allow_other = o->allow_other || geteuid() == 0,
		.acl = o->acl,
		.debug = o->debug,
	};
	int rc = fs_create(&g->fs, g->stack->cache, &g->stack->stats, &f);

	if (rc < 0) {
		log_error("gildfs", "cannot start FUSE: %s", strerror(-rc));
		return rc;
	}
	fs_on_ready(g->fs, gildfs_on_ready, g);
	rc = fs_mount(g->fs, o->mountpoint);
	if (rc < 0)
		log_error("gildfs", "cannot mount on %s: %s", o->mountpoint, strerror(-rc));
	return rc;
}

/* The daemon's life. Returns the exit code. */
static int gildfs_serve(struct gildfs *g, const char *default_card)
{
	const struct gildfs_options *o = g->options;
	int rc, closed;

	g->watchdog = watchdog_start(o->mountpoint);
	meta_catch_bus_errors();
	rc = gildfs_start_stack(g, default_card);
	if (rc < 0) {
		watchdog_stop(g->watchdog);
		return 1;
	}
	rc = gildfs_start_fs(g);
	if (rc == 0) {
		gildfs_handle_signals(g->fs);
		mount_status_init(&g->status, g->stack, g->fs, o);
		rc = control_start(&g->control, o->mountpoint, mount_status_answer, &g->status);
	}
	if (rc == 0)
		rc = fs_run(g->fs);
	gildfs_running = NULL;
	control_stop(g->control);
	fs_destroy(g->fs);
	closed = stack_close(g->stack);
	if (closed < 0)
		log_error("gildfs", "%s was not closed cleanly: %s; nothing written to the backing is "
			  "lost", o->mountpoint, strerror(-closed));
	watchdog_stop(g->watchdog);
	return rc < 0 || closed < 0;
}

static int gildfs_wait_for_child(pid_t child, int fd)
{
	char byte;
	ssize_t n;
	int status;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	if (n == 1)
		return 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1;
}

static int gildfs_daemonize(struct gildfs *g, const char *default_card)
{
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0) {
		perror("gildfs: pipe");
		return 1;
	}
	child = fork();
	if (child < 0) {
		perror("gildfs: fork");
		return 1;
	}
	if (child > 0) {
		close(fds[1]);
		return gildfs_wait_for_child(child, fds[0]);
	}
	close(fds[0]);
	setsid();
	if (chdir("/") < 0)
		return 1;
	g->ready_fd = fds[1];
	return gildfs_serve(g, default_card);
}

/* Cards are given relative to where the user is; the daemon lives in "/". */
static int gildfs_absolute_cards(struct gildfs_options *o)
{
	for (size_t i = 0; i < o->card.count; i++) {
		char *real = realpath(o->card.items[i], NULL);

		if (!real) {
			fprintf(stderr, "gildfs: the card %s cannot be used: %s; gild format makes "
					"one\n", o->card.items[i], strerror(errno));
			return 1;
		}
		o->card.items[i] = real;
	}
	return 0;
}

/* The kernel does it without the daemon; mount(8) knows how to ask it (-i: without asking us again). */
static int gildfs_remount(const struct gildfs_options *o)
{
	char words[sizeof(o->fuse_opts) + 32];

	snprintf(words, sizeof(words), "remount,%s%s%s", o->readonly ? "ro" : "rw",
		 o->fuse_opts[0] ? "," : "", o->fuse_opts);
	execlp("mount", "mount", "-i", "-o", words, o->mountpoint, (char *)NULL);
	fprintf(stderr, "gildfs: mount(8) cannot be started: %s\n", strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	static struct gildfs_options options;
	struct gildfs g = {.options = &options, .ready_fd = -1};
	char default_card[PATH_MAX] = "";
	int rc = privileges_check();

	if (rc < 0)
		return 1;
	rc = gildfs_parse(&options, argc, argv);
	if (rc != 0)
		return rc > 0 ? 0 : rc == -ENOENT ? 1 : 2;
	if (options.remount)
		return gildfs_remount(&options);
	umask(0); /* modes are given with every file: the card's own, the callers' in the backing */
	log_set_level(options.debug ? LOG_LV_DEBUG : (enum log_level)options.log);
	rc = gildfs_check_paths(&options);
	if (rc == 0)
		rc = gildfs_absolute_cards(&options);
	if (rc == 0 && options.card.count == 0)
		rc = gildfs_default_card(&options, default_card);
	if (rc)
		return rc;
	gildfs_raise_limits();
	if (privileges_drop(options.debug) < 0)
		return 1;
	if (options.foreground)
		return gildfs_serve(&g, default_card);
	return gildfs_daemonize(&g, default_card);
}
