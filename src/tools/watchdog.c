/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a killed daemon cannot do itself: end its FUSE connection.
 *
 * The kernel ends a connection when its last descriptor is closed, and a process closes them when
 * its last thread is gone. A thread that drops pages for us (notify_inval_inode) waits, in the
 * kernel and deaf to signals, for every page that is locked, and pages are locked by READs that wait
 * for our answer. After kill -9 nobody answers: the thread waits for the READ, the READ for the end
 * of the connection, that for the thread. All who use the mount hang with it. Only an abort of the
 * connection from outside helps.
 *
 *   the daemon, before it has threads --fork--> waiting --"mounted"--> guarding
 *   waiting, guarding  --"stop", or the socket's end--> gone, nothing done
 *   guarding  --the daemon died, or says that it crashes--> the connection is aborted, gone
 *
 * 1. What tells of the death is the signal that the kernel sends when the thread that forked us ends
 *    (PR_SET_PDEATHSIG): the daemon's main thread, which waits where it can be killed. The process
 *    itself is no sign: with a stuck thread its descriptors stay open, and its pidfd silent. The
 *    socket's end is: then all threads are gone, and the kernel has done the work.
 * 2. A daemon that crashes (SIGSEGV, abort()) does not even end its main thread while the kernel
 *    collects all threads for the core dump; so its signal handler says so first.
 * 3. The connection is named by its `abort` file in fusectl, opened when the mount was ready: a mount
 *    that was made later at the same place is never touched. Where nobody has mounted fusectl, root
 *    makes a mount of it that is attached nowhere; others cannot be guarded then.
 * 4. The dead mount stays, "Transport endpoint is not connected", as with every FUSE daemon that was
 *    killed. Detached, what programs write next would land in the directory beneath.
 * 5. It holds nothing of the daemon's but the socket: no card, lock or backing stays busy, and
 *    nothing of the mount, so that it can be unmounted. Without the watchdog the daemon goes on.
 *    Being in another session it hears no Ctrl-C; signals that end services it ignores, since the
 *    daemon may need minutes to stop.
 *
 * It sleeps in ppoll without a time-out.
 */
#include <config.h>

#include "tools/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

#define WATCHDOG_DEATH SIGUSR1

enum { WATCHDOG_MOUNTED = 'm', WATCHDOG_STOP = 's', WATCHDOG_CRASH = 'c' };

struct watchdog {
	pid_t pid;
	int fd;
};

static const int watchdog_crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
#define WATCHDOG_CRASHES (sizeof(watchdog_crashes) / sizeof(watchdog_crashes[0]))

static volatile sig_atomic_t watchdog_died;   /* in the watchdog */
static volatile sig_atomic_t watchdog_fd = -1; /* in the daemon, for its crash handler */

/* ---- the watchdog ---- */

static void watchdog_on_death(int sig)
{
	(void)sig;
	watchdog_died = 1;
}

/* Descriptors of the directory of connections; -1: there is none. */
static int watchdog_open_fusectl(void)
{
	int dir = -1;
#ifdef FSOPEN_CLOEXEC
	int fs = fsopen("fusectl", FSOPEN_CLOEXEC);

	if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		dir = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (fs >= 0)
		close(fs);
#endif
	return dir;
}

/* The abort file of what is mounted there, or -1. */
static int watchdog_open_abort(const char *mountpoint)
{
	char name[48];
	struct statx sx;
	int dir, fd;

	/* The connection is called after the device number, which needs no request to the daemon. */
	if (statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC, STATX_TYPE, &sx) < 0)
		return -1;
	snprintf(name, sizeof(name), "/sys/fs/fuse/connections/%u/abort",
		 sx.stx_dev_major << 20 | sx.stx_dev_minor);
	fd = open(name, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	dir = watchdog_open_fusectl();
	if (dir < 0)
		return -1;
	fd = openat(dir, name + strlen("/sys/fs/fuse/connections/"), O_WRONLY | O_CLOEXEC);
	close(dir);
	return fd;
}

static void watchdog_abort(const char *mountpoint, int fd)
{
	if (fd < 0)
		return;
	while (write(fd, "1", 1) < 0 && errno == EINTR)
		continue;
	log_error("watchdog", "the gildfs on %s has died: unmount it before it is mounted again",
		  mountpoint);
}

static void watchdog_run(const char *mountpoint, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	sigset_t none;
	int abort_fd = -1;
	ssize_t n;
	char word;

	sigemptyset(&none);
	for (;;) {
		n = recv(fd, &word, 1, MSG_DONTWAIT);
		if (n == 1 && word == WATCHDOG_MOUNTED)
			abort_fd = watchdog_open_abort(mountpoint);
		else if (n == 1 && word == WATCHDOG_CRASH)
			watchdog_died = 1;
		else if (n >= 0) /* told to stop, or the kernel has seen to the connection */
			return;
		else if (watchdog_died)
			break;
		else
			ppoll(&p, 1, NULL, &none);
	}
	watchdog_abort(mountpoint, abort_fd);
}

/* The only descriptor left is `fd`, as 3. */
static int watchdog_drop_descriptors(int fd)
{
	int null = open("/dev/null", O_RDWR);

	for (int i = 0; i < 3 && null >= 0; i++)
		dup2(null, i);
	if (fd != 3)
		fd = dup2(fd, 3);
	if (close_range(4, ~0U, 0) < 0)
		for (int i = 4; i < sysconf(_SC_OPEN_MAX); i++)
			close(i);
	return fd;
}

static void watchdog_main(const char *mountpoint, int fd, pid_t daemon)
{
	struct sigaction death = {.sa_handler = watchdog_on_death}, ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	setsid();
	if (chdir("/") < 0)
		_exit(1);
	fd = watchdog_drop_descriptors(fd);
	sigaction(WATCHDOG_DEATH, &death, NULL);
	sigaction(SIGTERM, &ignore, NULL);
	sigaction(SIGHUP, &ignore, NULL);
	sigaction(SIGINT, &ignore, NULL);
	sigemptyset(&set);
	sigaddset(&set, WATCHDOG_DEATH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	prctl(PR_SET_NAME, "gildfs-watchdog");
	prctl(PR_SET_PDEATHSIG, WATCHDOG_DEATH);
	if (getppid() != daemon)
		_exit(0); /* it died before that, without a mount */
	log_set_syslog(true, "gildfs");
	watchdog_run(mountpoint, fd);
	_exit(0);
}

/* ---- the daemon ---- */

static void watchdog_say(int fd, char word)
{
	while (send(fd, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR)
		continue;
}

static void watchdog_on_crash(int sig)
{
	int saved = errno;

	if (watchdog_fd >= 0)
		watchdog_say(watchdog_fd, WATCHDOG_CRASH);
	errno = saved;
	raise(sig); /* the default action now */
}

/* Handlers that are there already, a sanitizer's, stay. */
static void watchdog_catch_crashes(int fd)
{
	struct sigaction crash = {.sa_handler = watchdog_on_crash,
				  .sa_flags = (int)SA_RESETHAND | SA_NODEFER},
			 old;

	watchdog_fd = fd;
	for (size_t i = 0; i < WATCHDOG_CRASHES; i++)
		if (sigaction(watchdog_crashes[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			sigaction(watchdog_crashes[i], &crash, NULL);
}

struct watchdog *watchdog_start(const char *mountpoint)
{
	struct watchdog *w = calloc(1, sizeof(*w));
	pid_t daemon = getpid();
	int fds[2] = {-1, -1};

	if (!w || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		goto out;
	w->pid = fork();
	if (w->pid == 0)
		watchdog_main(mountpoint, fds[1], daemon);
	close(fds[1]);
	if (w->pid > 0) {
		w->fd = fds[0];
		watchdog_catch_crashes(w->fd);
		return w;
	}
	close(fds[0]);
out:
	log_warning("watchdog", "nobody watches over the daemon (%s): should it be killed, processes "
				"that use %s may have to be let go with umount -f", strerror(errno),
		    mountpoint);
	free(w);
	return NULL;
}

void watchdog_mounted(struct watchdog *w)
{
	if (w)
		watchdog_say(w->fd, WATCHDOG_MOUNTED);
}

void watchdog_stop(struct watchdog *w)
{
	if (!w)
		return;
	watchdog_fd = -1;
	watchdog_say(w->fd, WATCHDOG_STOP);
	close(w->fd);
	while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	free(w);
}
