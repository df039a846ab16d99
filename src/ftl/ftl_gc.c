/* SPDX-License-Identifier: BSD-2-Clause */
#include "ftl/ftl_priv.h"

bool ftl_gc_wanted(struct ftl *f)
{
	return !f->failed && !f->opt.readonly && !f->gc_stuck &&
	       f->nfree + f->npending < f->space.low_water;
}

int ftl_gc_round(struct ftl *f)
{
	(void)f;
	return 0;
}

void ftl_gc_forget(struct ftl *f, struct ftl_eb *eb)
{
	(void)f;
	(void)eb;
}

bool ftl_gc_was_dropped(struct ftl *f, uint64_t file, uint64_t line)
{
	(void)f;
	(void)file;
	(void)line;
	return false;
}

void ftl_gc_destroy(struct ftl *f)
{
	htab_destroy(&f->dropped);
}
