/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The control socket, both ends. One thread serves one client at a time: requests are rare and
 * small, and a client whose request is not complete after CONTROL_REQUEST_S is dropped, or at once
 * when the daemon stops. Every reply is one JSON object; {"error": sentence} when the request was not
 * understood.
 *
 * The socket's name is a hash of the absolute mount point, since sun_path holds only 107 bytes; a
 * file of the same name ending in .mount holds the path itself, for `gild status` without argument.
 *
 * Both ends know by SO_PEERCRED who is at the other: root or the user of the daemon, nobody else is
 * answered or believed. So a socket that somebody put in our place (a user without
 * $XDG_RUNTIME_DIR has it below /tmp) tells nothing and learns nothing.
 */
#include <config.h>

#include "tools/control.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#define CONTROL_TIMEOUT_S 30
#define CONTROL_REQUEST_S 5
#define CONTROL_REQUEST_MAX 4096

struct control {
	int listen_fd;
	int wake[2];          /* a byte in it ends the thread */
	pthread_t thread;
	control_fn fn;
	void *arg;
	char path[108];
};

const char *control_directory(char *buf, size_t len)
{
	const char *run = getenv("XDG_RUNTIME_DIR");

	if (geteuid() == 0)
		snprintf(buf, len, "/run/gildfs");
	else if (run && *run == '/')
		snprintf(buf, len, "%s/gildfs", run);
	else
		snprintf(buf, len, "/tmp/gildfs-%u", (unsigned)geteuid());
	return buf;
}

static int control_address(const char *real, struct sockaddr_un *sa)
{
	char dir[80];

	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	control_directory(dir, sizeof(dir));
	if (snprintf(sa->sun_path, sizeof(sa->sun_path), "%s/%016" PRIx64 ".sock", dir,
		     hash_64(real, strlen(real))) >= (int)sizeof(sa->sun_path))
		return -ENAMETOOLONG;
	return 0;
}

/* The directory must be ours alone: in /tmp anybody could have made it first. */
static int control_make_directory(void)
{
	char dir[80];
	struct stat st;

	control_directory(dir, sizeof(dir));
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (lstat(dir, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)) {
		log_error("control", "%s is not a directory that only this user may write to: remove it",
			  dir);
		return -EPERM;
	}
	return 0;
}

static int control_write_all(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPIPE;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

static int control_send(int fd, const json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);
	int rc = text ? control_write_all(fd, text, strlen(text)) : -ENOMEM;

	free(text);
	return rc < 0 ? rc : control_write_all(fd, "\n", 1);
}

static bool control_peer_allowed(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return false;
	return peer.uid == 0 || peer.uid == geteuid();
}

/* True when the client has sent something, or gone; false: too late, or the daemon stops. */
static bool control_wait(const struct control *c, int fd, uint64_t until)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = c->wake[0], .events = POLLIN}};
	uint64_t now;

	while ((now = clock_mono_ns()) < until) {
		int n = poll(p, 2, (int)((until - now) / NS_PER_MS) + 1);

		if (p[1].revents)
			return false;
		if (n > 0)
			return true;
	}
	return false;
}

/* A line of at most CONTROL_REQUEST_MAX bytes; its length without the newline, or an error. */
static ssize_t control_read_request(const struct control *c, int fd, char *buf)
{
	uint64_t until = clock_mono_ns() + CONTROL_REQUEST_S * NS_PER_S;
	size_t used = 0;

	while (used < CONTROL_REQUEST_MAX) {
		char *end;
		ssize_t n;

		if (!control_wait(c, fd, until))
			return -ETIMEDOUT;
		n = recv(fd, buf + used, CONTROL_REQUEST_MAX - used, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPIPE;
		end = memchr(buf + used, '\n', (size_t)n);
		used += (size_t)n;
		if (end)
			return end - buf;
	}
	return -EMSGSIZE;
}

static json_t *control_answer(struct control *c, const char *text, size_t len)
{
	json_error_t err;
	json_t *request = json_loadb(text, len, 0, &err), *reply;
	const char *command = json_string_value(json_object_get(request, "command"));

	if (command)
		reply = c->fn(c->arg, command, request);
	else
		reply = json_pack("{s:s}", "error",
				  "a request is one JSON object a line with a \"command\"");
	json_decref(request);
	return reply;
}

static void control_serve(struct control *c, int fd)
{
	struct timeval limit = {.tv_sec = CONTROL_REQUEST_S};
	char buf[CONTROL_REQUEST_MAX];
	json_t *reply;
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!control_peer_allowed(fd)) {
		log_warning("control", "refused a client that is neither root nor the mount's owner");
		return;
	}
	n = control_read_request(c, fd, buf);
	if (n >= 0)
		reply = control_answer(c, buf, (size_t)n);
	else
		reply = json_pack("{s:s}", "error", "a request is one line of at most 4096 bytes, sent "
						    "within 5 seconds");
	if (reply)
		control_send(fd, reply);
	json_decref(reply);
}

static void *control_thread(void *arg)
{
	struct control *c = arg;
	struct pollfd p[2] = {{.fd = c->listen_fd, .events = POLLIN},
			      {.fd = c->wake[0], .events = POLLIN}};

	pthread_setname_np(pthread_self(), "control");
	for (;;) {
		int fd;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			break;
		fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		control_serve(c, fd);
		close(fd);
	}
	return NULL;
}

static void control_note_mount(const struct control *c, const char *mountpoint)
{
	char path[sizeof(c->path) + 8];
	size_t len = strlen(mountpoint);
	int fd;

	snprintf(path, sizeof(path), "%.*s.mount", (int)strlen(c->path) - 5, c->path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, mountpoint, len) != (ssize_t)len)
		unlink(path);
	close(fd);
}

static void control_remove_files(const struct control *c)
{
	char path[sizeof(c->path) + 8];

	unlink(c->path);
	snprintf(path, sizeof(path), "%.*s.mount", (int)strlen(c->path) - 5, c->path);
	unlink(path);
}

int control_start(struct control **out, const char *mountpoint, control_fn fn, void *arg)
{
	struct control *c = calloc(1, sizeof(*c));
	struct sockaddr_un sa;
	int rc;

	if (!c)
		return -ENOMEM;
	*c = (struct control){.listen_fd = -1, .wake = {-1, -1}, .fn = fn, .arg = arg};
	rc = control_make_directory();
	if (rc == 0)
		rc = control_address(mountpoint, &sa);
	if (rc < 0)
		goto out;
	memcpy(c->path, sa.sun_path, sizeof(c->path));
	c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(c->path); /* left by a daemon that was killed: the mount point is ours now */
	if (c->listen_fd < 0 || bind(c->listen_fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    chmod(c->path, 0600) < 0 || listen(c->listen_fd, 16) < 0 ||
	    pipe2(c->wake, O_CLOEXEC) < 0) {
		rc = -errno;
		goto out;
	}
	control_note_mount(c, mountpoint);
	rc = -pthread_create(&c->thread, NULL, control_thread, c);
	if (rc == 0) {
		*out = c;
		return 0;
	}
	control_remove_files(c);
out:
	log_error("control", "no control socket for %s: %s", mountpoint, strerror(-rc));
	if (c->listen_fd >= 0)
		close(c->listen_fd);
	for (int i = 0; i < 2; i++)
		if (c->wake[i] >= 0)
			close(c->wake[i]);
	free(c);
	return rc;
}

void control_stop(struct control *c)
{
	if (!c)
		return;
	while (write(c->wake[1], "", 1) < 0 && errno == EINTR)
		continue;
	pthread_join(c->thread, NULL);
	control_remove_files(c);
	close(c->listen_fd);
	close(c->wake[0]);
	close(c->wake[1]);
	free(c);
}

static int control_connect(const char *mountpoint)
{
	struct timeval limit = {.tv_sec = 10 * CONTROL_TIMEOUT_S};
	struct sockaddr_un sa;
	char real[PATH_MAX];
	int rc, fd;

	if (!realpath(mountpoint, real))
		return -errno;
	rc = control_address(real, &sa);
	if (rc < 0)
		return rc;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	rc = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ? -errno : 0;
	if (rc == 0 && !control_peer_allowed(fd))
		rc = -EPERM;
	if (rc < 0) {
		close(fd);
		return rc;
	}
	return fd;
}

/* JSON holds text and names are bytes: in a request's path others than plain ones are %XX. */
static int control_encode(const char *path, char *out, size_t len)
{
	size_t used = 0;

	for (; *path; path++) {
		unsigned char byte = (unsigned char)*path;
		bool plain = byte > ' ' && byte < 127 && byte != '%';
		int n = snprintf(out + used, len - used, plain ? "%c" : "%%%02X", byte);

		used += (size_t)n;
		if (used >= len)
			return -ENAMETOOLONG;
	}
	out[used] = 0;
	return 0;
}

const char *control_path(const json_t *args, char *buf, size_t len)
{
	const char *text = json_string_value(json_object_get(args, "path"));
	size_t used = 0;
	unsigned byte;

	for (; text && *text && used + 1 < len; text++) {
		byte = (unsigned char)*text;
		if (byte == '%' && sscanf(text + 1, "%2x", &byte) == 1 && byte && text[2])
			text += 2;
		buf[used++] = (char)byte;
	}
	buf[used] = 0;
	return text && !*text ? buf : NULL;
}

static int control_exchange(const char *mountpoint, json_t *request, json_t **reply)
{
	int fd = control_connect(mountpoint), rc;
	json_error_t err;
	FILE *in;

	if (fd < 0)
		return fd;
	rc = request ? control_send(fd, request) : -ENOMEM;
	in = rc == 0 ? fdopen(fd, "r") : NULL;
	if (!in) {
		close(fd);
		return rc < 0 ? rc : -ENOMEM;
	}
	*reply = json_loadf(in, 0, &err);
	fclose(in);
	return json_is_object(*reply) ? 0 : -EPROTO;
}

int control_query(const char *mountpoint, const char *command, json_t **reply)
{
	json_t *request = json_pack("{s:s}", "command", command);
	int rc = control_exchange(mountpoint, request, reply);

	json_decref(request);
	return rc;
}

int control_query_path(const char *mountpoint, const char *command, const char *path,
		       json_t **reply)
{
	char text[CONTROL_REQUEST_MAX - 128];
	json_t *request;
	int rc = control_encode(path, text, sizeof(text));

	if (rc < 0)
		return rc;
	request = json_pack("{s:s, s:s}", "command", command, "path", text);
	rc = control_exchange(mountpoint, request, reply);
	json_decref(request);
	return rc;
}
