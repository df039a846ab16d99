/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Memory for requests.
 *
 * Fresh memory costs about 20 us a page in a small virtual machine, more than serving the request,
 * so large buffers are mapped once with huge pages and kept. A large message that goes to the pool
 * takes its buffer along, and the reader goes on with another; nothing is copied.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fs/fs_priv.h"

#define FS_HUGE (2u << 20)
#define FS_FREE_KEPT 8

char *fs_buffer_map(size_t len)
{
	size_t room = (len + FS_HUGE - 1) / FS_HUGE * FS_HUGE;
	char *p = mmap(NULL, room + FS_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	size_t head;

	if (p == MAP_FAILED)
		return NULL;
	head = -(uintptr_t)p & (FS_HUGE - 1);
	if (head)
		munmap(p, head);
	munmap(p + head + room, FS_HUGE - head);
	(void)madvise(p + head, room, MADV_HUGEPAGE);
	return p + head;
}

void fs_buffer_unmap(char *p, size_t len)
{
	if (p)
		munmap(p, (len + FS_HUGE - 1) / FS_HUGE * FS_HUGE);
}

struct fs_msg *fs_msg_get_big(struct fs *f)
{
	struct fs_msg *m;
	bool room;

	lock_acquire(&f->lock);
	m = f->free;
	room = f->big_count < FS_MSG_BIG_MAX;
	if (m) {
		f->free = m->next;
		f->free_count--;
	} else if (room) {
		f->big_count++;
	}
	lock_release(&f->lock);
	if (m || !room)
		return m;
	m = calloc(1, sizeof(*m));
	if (m)
		m->data = fs_buffer_map(FS_MSG_ROOM + FS_MSG_SLACK);
	if (!m || !m->data) {
		free(m);
		lock_acquire(&f->lock);
		f->big_count--;
		lock_release(&f->lock);
		return NULL;
	}
	m->fs = f;
	m->big = true;
	return m;
}

struct fs_msg *fs_msg_copy(const struct fs_msg *from)
{
	struct fs_msg *m = malloc(sizeof(*m) + from->len + FS_MSG_SLACK);

	if (!m)
		return NULL;
	m->fs = from->fs;
	m->big = false;
	m->len = from->len;
	m->data = (char *)(m + 1);
	memcpy(m->data, from->data, from->len);
	memset(m->data + from->len, 0, FS_MSG_SLACK);
	return m;
}

static void fs_msg_destroy(struct fs_msg *m)
{
	fs_buffer_unmap(m->data, FS_MSG_ROOM + FS_MSG_SLACK);
	free(m);
}

void fs_msg_put(struct fs_msg *m)
{
	struct fs *f;
	bool kept;

	if (!m)
		return;
	if (!m->big) {
		free(m);
		return;
	}
	f = m->fs;
	lock_acquire(&f->lock);
	kept = f->free_count < FS_FREE_KEPT;
	if (kept) {
		m->next = f->free;
		f->free = m;
		f->free_count++;
	} else {
		f->big_count--;
	}
	lock_release(&f->lock);
	if (!kept)
		fs_msg_destroy(m);
}

void fs_msg_free_all(struct fs *f)
{
	while (f->free) {
		struct fs_msg *m = f->free;

		f->free = m->next;
		fs_msg_destroy(m);
	}
}
