/* SPDX-License-Identifier: BSD-2-Clause
 * Mounting for gild slowdisk: session, background, signals. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "tools/slowdisk.h"

#define SESSION_THREADS 8        /* requests doing real I/O at once; the waiting needs none */
#define SESSION_OUTSTANDING 1024 /* requests the kernel may have under way */

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

void slow_session_init_conn(struct fuse_conn_info *conn)
{
	conn->max_write = SLOW_MAX_IO;
	conn->max_background = SESSION_OUTSTANDING;
	conn->congestion_threshold = SESSION_OUTSTANDING;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE | FUSE_CAP_HANDLE_KILLPRIV |
				  FUSE_CAP_ATOMIC_O_TRUNC);
	conn->want |= conn->capable & FUSE_CAP_ASYNC_DIO;
}

static struct fuse_session *slow_session_mount(const struct slow_session *s)
{
	char words[4][64] = {"gild slowdisk", "-o", "", ""};
	char *argv[] = {words[0], words[1], words[2], NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *se;

	snprintf(words[2], sizeof(words[2]), "fsname=slowdisk,subtype=gild,default_permissions%s",
		 s->allow_other ? ",allow_other" : "");
	se = fuse_session_new(&args, s->ops, sizeof(*s->ops), s->userdata);
	fuse_opt_free_args(&args);
	if (!se) {
		fprintf(stderr, "gild slowdisk: cannot set up a FUSE session\n");
		return NULL;
	}
	if (fuse_session_mount(se, s->mountpoint) != 0) {
		fprintf(stderr, "gild slowdisk: cannot mount on %s\n", s->mountpoint);
		fuse_session_destroy(se);
		return NULL;
	}
	return se;
}

static void slow_session_detach(void)
{
	int null = open("/dev/null", O_RDWR);

	setsid();
	if (chdir("/") != 0)
		log_warning("slowdisk", "cannot leave the working directory: %s", strerror(errno));
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		if (null > 2)
			close(null);
	}
	log_set_syslog(true, "gild slowdisk");
}

static int slow_session_serve(const struct slow_session *s, struct fuse_session *se)
{
	struct fuse_loop_config *cfg = NULL;
	int err;

	/* A drive does not compete with its host for the processor. Without root it has to. */
	setpriority(PRIO_PROCESS, 0, -10);
	/* The thread that writes a loop device's pages back must not wait for that itself. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	err = delay_start(s->delay);
	if (!err && fuse_set_signal_handlers(se) != 0)
		err = -errno;
	cfg = fuse_loop_cfg_create();
	if (!err && !cfg)
		err = -ENOMEM;
	if (err) {
		fprintf(stderr, "gild slowdisk: cannot start: %s\n", strerror(-err));
	} else {
		if (!s->foreground)
			slow_session_detach();
		fuse_loop_cfg_set_max_threads(cfg, SESSION_THREADS);
		fuse_loop_cfg_set_idle_threads(cfg, SESSION_THREADS);
		err = fuse_session_loop_mt(se, cfg);
		if (err < 0)
			log_error("slowdisk", "the FUSE session ended: %s", strerror(-err));
		fuse_remove_signal_handlers(se);
	}
	fuse_loop_cfg_destroy(cfg);
	delay_stop(s->delay);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	return err < 0 ? 1 : 0;
}

/* The parent: a stat of the mount waits for the kernel's INIT to be answered. Our copy of the
 * session's descriptor must go first, or the mount would outlive a child that died. */
static int slow_session_await(const struct slow_session *s, struct fuse_session *se, dev_t below,
			      pid_t child)
{
	struct stat st;
	int status;

	fuse_session_destroy(se);
	if (stat(s->mountpoint, &st) == 0 && st.st_dev != below)
		return 0;
	if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) != 0)
		return WEXITSTATUS(status);
	fprintf(stderr, "gild slowdisk: the mount on %s does not answer\n", s->mountpoint);
	return 1;
}

int slow_session_run(struct slow_session *s)
{
	struct fuse_session *se;
	struct stat below;
	pid_t child;

	if (stat(s->mountpoint, &below) != 0) {
		fprintf(stderr, "gild slowdisk: %s: %s\n", s->mountpoint, strerror(errno));
		return 1;
	}
	umask(0);
	se = slow_session_mount(s);
	if (!se)
		return 1;
	if (s->foreground)
		return slow_session_serve(s, se);
	fflush(NULL);
	child = fork();
	if (child < 0) {
		fprintf(stderr, "gild slowdisk: cannot go to the background: %s\n",
			strerror(errno));
		fuse_session_unmount(se);
		fuse_session_destroy(se);
		return 1;
	}
	s->handed_over = child > 0;
	if (child > 0)
		return slow_session_await(s, se, below.st_dev, child);
	return slow_session_serve(s, se);
}
