/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "tools/replay_log.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void replay_log_init(struct replay_log *log, int fd)
{
	log->fd = fd;
	log->second = 0;
	log->date[0] = '\0';
}

static int log_status(int err)
{
	switch (err) {
	case 0:
		return 200;
	case -ENOENT:
	case -ENOTDIR:
		return 404;
	case -EACCES:
	case -EPERM:
		return 403;
	default:
		return 500;
	}
}

static char *log_put_text(char *p, const char *s)
{
	size_t len = strlen(s);

	memcpy(p, s, len);
	return p + len;
}

/* An URL path: what is not plain is written as %XX. */
static char *log_put_path(char *p, const char *path)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t left = 4095;

	if (*path != '/')
		*p++ = '/';
	for (; *path && left; path++, left--) {
		unsigned char c = (unsigned char)*path;
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			     (c >= '0' && c <= '9') || (c && strchr("/-._~!$&'()*+,;=:@", c));

		if (plain) {
			*p++ = (char)c;
			continue;
		}
		*p++ = '%';
		*p++ = hex[c >> 4];
		*p++ = hex[c & 15];
	}
	return p;
}

size_t replay_log_format(struct replay_log *log, time_t now, const char *path,
			 const char *referrer, int err, uint64_t bytes)
{
	char *p = log->line;
	struct tm tm;

	if (now != log->second || !log->date[0]) {
		log->second = now;
		localtime_r(&now, &tm);
		strftime(log->date, sizeof(log->date), "%d/%b/%Y:%H:%M:%S %z", &tm);
	}
	p = log_put_text(p, "127.0.0.1 - - [");
	p = log_put_text(p, log->date);
	p = log_put_text(p, "] \"GET ");
	p = log_put_path(p, path);
	p += sprintf(p, " HTTP/1.1\" %d %llu \"", log_status(err),
		     err ? 0ULL : (unsigned long long)bytes);
	if (referrer)
		p = log_put_path(log_put_text(p, "http://localhost"), referrer);
	else
		*p++ = '-';
	p = log_put_text(p, "\" \"gild-replay\"\n");
	return (size_t)(p - log->line);
}

int replay_log_hit(struct replay_log *log, const char *path, const char *referrer, int err,
		   uint64_t bytes)
{
	size_t len = replay_log_format(log, time(NULL), path, referrer, err, bytes);
	ssize_t n;

	do
		n = write(log->fd, log->line, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}
