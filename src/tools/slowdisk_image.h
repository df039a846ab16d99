/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The image of a slow disk: a regular file or a block device, read and written around the page
 * cache where that works. Read, write, punch and flush are thread safe.
 */
#ifndef GILD_TOOLS_SLOWDISK_IMAGE_H
#define GILD_TOOLS_SLOWDISK_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slow_image;

/* `size` > 0: creates a sparse file of that size; one that exists must have it. Locked against a
 * second slowdisk. `path` must outlive the image. On an error a sentence was printed; negative errno. */
int slow_image_open(struct slow_image **out, const char *path, uint64_t size);
/* Until this call, closing an image that slow_image_open created removes the file again. */
void slow_image_keep(struct slow_image *image);
void slow_image_close(struct slow_image *image); /* NULL-safe */
uint64_t slow_image_bytes(const struct slow_image *image);

/* All of it or a negative errno. Around the page cache when buffer, size and offset are multiples
 * of 4 KiB, through it otherwise. */
int slow_image_read(struct slow_image *image, char *buf, size_t size, uint64_t offset);
int slow_image_write(struct slow_image *image, const char *buf, size_t size, uint64_t offset);
/* fallocate modes that discard or zero a range; -EOPNOTSUPP for others. */
int slow_image_punch(struct slow_image *image, int mode, uint64_t offset, uint64_t length);
int slow_image_flush(struct slow_image *image); /* all written so far is durable */

#endif
