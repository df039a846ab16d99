/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Inside the --files form of gild slowdisk: slowdisk_files.c has the names, slowdisk_fileio.c open
 * files and directories.
 */
#ifndef GILD_TOOLS_SLOWDISK_FILES_H
#define GILD_TOOLS_SLOWDISK_FILES_H

#include "tools/slowdisk.h"
#include "tools/slowdisk_nodes.h"

#define FILES_BYTES 40000000000ULL           /* what the places spread over */
#define FILES_SPAN (FILES_BYTES - (4 << 20)) /* places start below this */
#define FILES_BLOCK 4096
#define FILES_TIMEOUT 1.0 /* seconds attributes and names stay in the kernel */
#define FILES_CONTROL ".slowdisk"
#define FILES_CONTROL_INO 2 /* never the address of a node */

struct slow_files {
	int root;
	bool owner; /* files made belong to who asked (we are root) */
	struct slow_nodes *nodes;
	struct slow_pool *pool;
	struct delay *delay;
};

struct slow_files *files_of(fuse_req_t req);
struct slow_node *files_node(struct slow_files *f, fuse_ino_t ino);
/* Path of the node, or of `name` in it. 0 or a negative errno; `buf` has PATH_MAX bytes. */
int files_path(struct slow_files *f, fuse_ino_t ino, const char *name, char *buf);
/* The same, and its attributes; -ESTALE when something else lies there now. */
int files_stat(struct slow_files *f, fuse_ino_t ino, char *path, struct stat *st);
/* Modelled place of byte `offset` of the source's inode `ino`. */
uint64_t files_place(uint64_t ino, uint64_t offset);
/* Lets the model take its time for one access, then answers. */
void files_charge(struct slow_files *f, struct slow_io *io, uint64_t place, size_t length,
		  bool write);
/* What was just made at `path` belongs to who asked for it. */
int files_own(fuse_req_t req, const char *path);

void files_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void files_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		  struct fuse_file_info *fi);
void files_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void files_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		 struct fuse_file_info *fi);
void files_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void files_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void files_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void files_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi);
void files_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

#endif
