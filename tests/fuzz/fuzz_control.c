/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The control socket, both ends: a request to a daemon, and (after a first byte '!') what a daemon's
 * reply does to gild status. Every request must get one line with one JSON object.
 */
#include <config.h>

#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "tools/cmd_status.c"
#include "tools/control.c"

static json_t *fuzz_answer(void *arg, const char *command, const json_t *args)
{
	(void)arg;
	(void)args;
	return json_pack("{s:s+}", "error", "this gildfs knows no command ", command);
}

static void fuzz_request(const uint8_t *data, size_t size)
{
	struct control c = {.fn = fuzz_answer};
	char reply[65536];
	size_t used = 0;
	json_t *object;
	ssize_t n;
	int fd[2];

	fuzz_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
	fuzz_assert(pipe2(c.wake, O_CLOEXEC) == 0);
	fuzz_assert(send(fd[0], data, size, MSG_NOSIGNAL) == (ssize_t)size);
	shutdown(fd[0], SHUT_WR);
	control_serve(&c, fd[1]);
	close(fd[1]);
	while ((n = recv(fd[0], reply + used, sizeof(reply) - used, 0)) > 0)
		used += (size_t)n;
	object = json_loadb(reply, used, 0, NULL);
	fuzz_assert(json_is_object(object) && memchr(reply, '\n', used) == reply + used - 1);
	json_decref(object);
	close(fd[0]);
	close(c.wake[0]);
	close(c.wake[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *reply;

	fuzz_quiet();
	if (size > 16384)
		return 0;
	if (!size || data[0] != '!') {
		fuzz_request(data, size);
		return 0;
	}
	reply = json_loadb((const char *)data + 1, size - 1, 0, NULL);
	if (json_is_object(reply))
		status_print(reply);
	json_decref(reply);
	return 0;
}
