/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "ftl/ftl_priv.h"

int ftl_recover(struct media *m, struct meta *meta)
{
	(void)m;
	(void)meta;
	return -ENOTSUP;
}
