/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "ftl/ftl_priv.h"

int ftl_replay_tail(struct ftl *f)
{
	(void)f;
	return -ENOTSUP;
}
