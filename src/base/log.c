/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Log lines and the ring of recent ones.
 *
 * The state is one per process, as stderr and syslog are: the only mutable globals below tools/.
 * A line is formatted on the caller's stack, stored in the ring under a mutex and written out by
 * one write(2) after the mutex is dropped, so lines of different threads never mix and a slow
 * terminal does not stop other threads. The mutex is a leaf and a plain one: the ranked locks
 * report their violations through this file.
 */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define LOG_LINE 1024

struct log_entry {
	struct timespec when;
	enum log_level level;
	char text[240]; /* "module: message", cut */
};

static struct {
	_Atomic int level;
	_Atomic bool syslog;
	pthread_mutex_t mutex; /* protects the members below */
	unsigned long written; /* lines ever; the next one goes to written % LOG_RING */
	struct log_entry ring[LOG_RING];
} log_state = {.level = LOG_LV_INFO, .mutex = PTHREAD_MUTEX_INITIALIZER};

static const char *const log_words[] = {"error", "warning", "info", "debug"};

void log_set_level(enum log_level level)
{
	log_state.level = level;
}

void log_set_syslog(bool on, const char *ident)
{
	if (log_state.syslog)
		closelog();
	if (on)
		openlog(ident, LOG_PID, LOG_DAEMON);
	log_state.syslog = on;
}

static void log_store(enum log_level level, const char *module, const char *message)
{
	struct log_entry *e;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	pthread_mutex_lock(&log_state.mutex);
	e = &log_state.ring[log_state.written++ % LOG_RING];
	e->when = now;
	e->level = level;
	if (snprintf(e->text, sizeof(e->text), "%s: %s", module, message) >= (int)sizeof(e->text))
		memcpy(e->text + sizeof(e->text) - 4, "...", 4);
	pthread_mutex_unlock(&log_state.mutex);
}

void log_write(enum log_level level, const char *module, const char *fmt, ...)
{
	static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	char message[LOG_LINE], line[LOG_LINE + 64];
	int saved = errno, n;
	va_list ap;

	if ((int)level > log_state.level)
		return;
	va_start(ap, fmt);
	if (vsnprintf(message, sizeof(message), fmt, ap) < 0)
		message[0] = '\0';
	va_end(ap);
	log_store(level, module, message);
	if (log_state.syslog) {
		syslog(priority[level], "%s: %s: %s", log_words[level], module, message);
	} else {
		n = snprintf(line, sizeof(line), "%s: %s: %s\n", log_words[level], module,
			     message);
		if (n >= (int)sizeof(line)) {
			n = sizeof(line) - 1;
			line[n - 1] = '\n';
		}
		if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
			errno = saved; /* nobody is left to be told */
	}
	errno = saved;
}

static void log_dump_locked(FILE *to)
{
	unsigned long i = log_state.written > LOG_RING ? log_state.written - LOG_RING : 0;

	for (; i < log_state.written; i++) {
		const struct log_entry *e = &log_state.ring[i % LOG_RING];
		struct tm tm;
		char when[32] = "";

		if (localtime_r(&e->when.tv_sec, &tm))
			strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
		fprintf(to, "%s.%03ld %s: %s\n", when, e->when.tv_nsec / 1000000,
			log_words[e->level], e->text);
	}
}

void log_dump_ring(FILE *to)
{
	pthread_mutex_lock(&log_state.mutex);
	log_dump_locked(to);
	pthread_mutex_unlock(&log_state.mutex);
}

void log_assert_failed(const char *cond, const char *file, int line, const char *func)
{
	/* The ring is shown only when its mutex is free: the thread that holds it may be this one. */
	if (pthread_mutex_trylock(&log_state.mutex) == 0) {
		if (log_state.written) {
			fputs("the last log lines before the failure:\n", stderr);
			log_dump_locked(stderr);
		}
		pthread_mutex_unlock(&log_state.mutex);
	}
	log_error("assert", "%s:%d: %s: \"%s\" does not hold; please report this as a bug", file,
		  line, func, cond);
	abort();
}
