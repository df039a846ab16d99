/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Threads of ours handle no signals, those that the program is sent are for its main thread. What a
 * thread does wrong by itself (SIGSEGV, SIGBUS, ...) stays its own: blocked, it would end the process
 * without the handler being asked.
 */
#ifndef GILD_BASE_SIGNALS_H
#define GILD_BASE_SIGNALS_H

#include <signal.h>

/* For the calling thread and those it makes, until `old` is set again by pthread_sigmask(). */
static inline void signals_block(sigset_t *old)
{
	sigset_t most;

	sigfillset(&most);
	sigdelset(&most, SIGSEGV);
	sigdelset(&most, SIGBUS);
	sigdelset(&most, SIGFPE);
	sigdelset(&most, SIGILL);
	sigdelset(&most, SIGABRT);
	pthread_sigmask(SIG_SETMASK, &most, old);
}

#endif
