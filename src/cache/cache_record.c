/* SPDX-License-Identifier: BSD-2-Clause
 *
 * File records: bytes and back. What is decoded comes from media: every length is checked.
 */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "cache/cache_file.h"

size_t cfile_encode(const struct cfile_record *r, uint8_t out[FLASH_CTL_VALUE])
{
	const struct cversion *v = &r->version;

	memset(out, 0, CFILE_FIXED);
	out[0] = CFILE_FORM;
	out[1] = (uint8_t)r->state;
	out[2] = r->unstable;
	out[3] = (uint8_t)r->handle_len;
	out[4] = (uint8_t)r->name_len;
	out[5] = (uint8_t)(r->name_len >> 8);
	cfile_put64(out + 8, r->number);
	cfile_put32(out + 16, r->epoch);
	cfile_put32(out + 20, r->floor);
	cfile_put64(out + 24, v->size);
	cfile_put64(out + 32, (uint64_t)v->msec);
	cfile_put64(out + 40, (uint64_t)v->csec);
	cfile_put32(out + 48, v->mnsec);
	cfile_put32(out + 52, v->cnsec);
	cfile_put64(out + 56, v->ino);
	cfile_put64(out + 64, r->mount);
	cfile_put64(out + 72, r->parent_ino);
	memcpy(out + CFILE_FIXED, r->handle, r->handle_len);
	memcpy(out + CFILE_FIXED + r->handle_len, r->name, r->name_len);
	return CFILE_FIXED + r->handle_len + r->name_len;
}

int cfile_decode(const void *in, size_t len, struct cfile_record *r)
{
	const uint8_t *p = in;

	memset(r, 0, sizeof(*r));
	if (len < CFILE_FIXED || p[0] != CFILE_FORM)
		return -EUCLEAN;
	if (p[1] != CFILE_OPEN && p[1] != CFILE_PUBLISHED)
		return -EUCLEAN;
	r->state = p[1];
	r->unstable = p[2] & 1;
	r->handle_len = p[3];
	r->name_len = p[4] | (size_t)p[5] << 8;
	if (r->handle_len > CFILE_HANDLE_MAX || r->name_len > CFILE_NAME_MAX ||
	    len != CFILE_FIXED + r->handle_len + r->name_len)
		return -EUCLEAN;
	r->number = cfile_get64(p + 8);
	r->epoch = cfile_get32(p + 16);
	r->floor = cfile_get32(p + 20);
	r->version = (struct cversion){
		.size = cfile_get64(p + 24),
		.msec = (int64_t)cfile_get64(p + 32),
		.csec = (int64_t)cfile_get64(p + 40),
		.mnsec = cfile_get32(p + 48),
		.cnsec = cfile_get32(p + 52),
		.ino = cfile_get64(p + 56),
	};
	r->mount = cfile_get64(p + 64);
	r->parent_ino = cfile_get64(p + 72);
	memcpy(r->handle, p + CFILE_FIXED, r->handle_len);
	memcpy(r->name, p + CFILE_FIXED + r->handle_len, r->name_len);
	if (r->number == FLASH_VOLUME || r->floor > r->epoch)
		return -EUCLEAN;
	return 0;
}
