/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which filesystem an object is on, and a name for it that outlives reboots.
 *
 * The device number identifies a filesystem while it is mounted and is never part of an identity.
 * A filesystem's lasting id is, first match:
 *
 *   1. fsid= of the user, for the root's filesystem
 *   2. statfs' f_fsid on filesystems that derive it from their UUID (ext2-4, btrfs, where it also
 *      tells subvolumes apart, tmpfs, ZFS, bcachefs)
 *   3. XFS: the UUID in its geometry (its f_fsid is the device number)
 *   4. FS_IOC_GETFSUUID
 *   5. the name in /dev/disk/by-uuid that leads to its device
 *   6. the device number: not stable
 *
 * What every kernel has comes first, so that a new kernel does not give the same filesystem a new
 * id: with write-back, data that waits on the card would lose its file.
 *
 * Invariants:
 *   F1. An object is given the struct bfs of its device number, the one it was reached from where
 *       that matches. Where a mount is crossed the id is compared again: device numbers are reused.
 *   F2. Two filesystems that are there at once never share a stable id: the later of two with the
 *       same UUID (a snapshot mounted beside its origin) gets a passing one.
 *   F3. A struct bfs lives as long as the backing; bnodes point to it without counting.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "backing/backing_priv.h"

/* Headers of kernels before 6.9 do not have it. */
struct bfs_uuid {
	uint8_t len;
	uint8_t uuid[16];
};
#define BFS_IOC_GETFSUUID _IOR(0x15, 0, struct bfs_uuid)

struct bfs_xfs_geometry {
	uint32_t sizes[8];
	uint64_t counts[4];
	uint8_t uuid[16];
	uint32_t rest[7];
};
#define BFS_IOC_XFS_GEOMETRY _IOR('X', 100, struct bfs_xfs_geometry)

enum {
	BFS_FSID = 1, /* f_fsid comes from the UUID */
	BFS_XFS = 2,
	BFS_NO_HANDLES = 4, /* handles hold numbers that are given out anew after a remount */
	BFS_NO_OWNERS = 8,
	BFS_LOCAL = 16, /* attributes of inodes in memory are had without waiting */
};

/* clang-format off */
static const struct bfs_kind {
	uint32_t magic;
	unsigned traits;
} bfs_kinds[] = {
	{0x0000ef53, BFS_FSID | BFS_LOCAL},                 /* ext2, ext3, ext4 */
	{0x9123683e, BFS_FSID | BFS_LOCAL},                 /* btrfs */
	{0x01021994, BFS_FSID | BFS_LOCAL},                 /* tmpfs */
	{0x2fc12fc1, BFS_FSID},                 /* ZFS */
	{0xca451a4e, BFS_FSID},                 /* bcachefs */
	{0x58465342, BFS_XFS | BFS_LOCAL},                  /* XFS */
	{0x65735546, BFS_NO_HANDLES},           /* FUSE: a nodeid of its daemon */
	{0x00004d44, BFS_NO_HANDLES | BFS_NO_OWNERS}, /* vfat */
	{0x2011bab0, BFS_NO_HANDLES | BFS_NO_OWNERS}, /* exfat */
	{0x7366746e, BFS_NO_OWNERS},            /* ntfs3 */
	{0xff534d42, BFS_NO_HANDLES | BFS_NO_OWNERS}, /* cifs */
	{0xfe534d42, BFS_NO_HANDLES | BFS_NO_OWNERS}, /* smb2 */
};
/* clang-format on */

static unsigned bfs_traits(uint32_t magic)
{
	for (size_t i = 0; i < sizeof(bfs_kinds) / sizeof(bfs_kinds[0]); i++)
		if (bfs_kinds[i].magic == magic)
			return bfs_kinds[i].traits;
	return 0;
}

static struct hash128 bfs_hash(const char *tag, const void *bytes, size_t len)
{
	unsigned char buf[8 + 256] = {0};

	gild_assert(strlen(tag) <= 8 && len <= 256);
	memcpy(buf, tag, strlen(tag));
	memcpy(buf + 8, bytes, len);
	return hash_128(buf, 8 + len);
}

static bool bfs_all_zero(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

/* ioctl needs more than the O_PATH descriptor that objects are found with. */
static bool bfs_ask_uuid(struct backing *b, int fd, mode_t mode, unsigned traits, uint8_t uuid[16])
{
	struct bfs_xfs_geometry geometry;
	struct bfs_uuid u = {0};
	bool found = false;
	int rd;

	if (!S_ISDIR(mode) && !S_ISREG(mode))
		return false;
	rd = bopen_again(b, fd, O_RDONLY);
	if (rd < 0)
		return false;
	if (traits & BFS_XFS) {
		found = ioctl(rd, BFS_IOC_XFS_GEOMETRY, &geometry) == 0;
		if (found)
			memcpy(uuid, geometry.uuid, 16);
	} else if (ioctl(rd, BFS_IOC_GETFSUUID, &u) == 0 && u.len > 0 && u.len <= 16) {
		memset(uuid, 0, 16);
		memcpy(uuid, u.uuid, u.len);
		found = true;
	}
	close(rd);
	return found && !bfs_all_zero(uuid, 16);
}

/* A full UUID as its bytes, so that it equals what the ioctl gives on a newer kernel. */
static bool bfs_parse_uuid(const char *text, uint8_t uuid[16])
{
	unsigned digits = 0;

	memset(uuid, 0, 16);
	for (; *text; text++) {
		const char *hex = "0123456789abcdef", *at;

		if (*text == '-')
			continue;
		at = strchr(hex, *text);
		if (!at || digits == 32)
			return false;
		uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | (at - hex));
		digits++;
	}
	return digits == 32;
}

static bool bfs_find_by_uuid(dev_t dev, struct hash128 *id)
{
	DIR *dir = opendir("/dev/disk/by-uuid");
	struct dirent *de;
	struct stat st;
	bool found = false;
	uint8_t uuid[16];

	if (!dir)
		return false;
	while (!found && (de = readdir(dir)) != NULL) {
		if (de->d_name[0] == '.' || fstatat(dirfd(dir), de->d_name, &st, 0) != 0)
			continue;
		if (!S_ISBLK(st.st_mode) || st.st_rdev != dev)
			continue;
		if (bfs_parse_uuid(de->d_name, uuid))
			*id = bfs_hash("uuid", uuid, sizeof(uuid));
		else
			*id = bfs_hash("label", de->d_name, strlen(de->d_name));
		found = true;
	}
	closedir(dir);
	return found;
}

static bool bfs_find_id(struct backing *b, int fd, const struct stat *st, const struct statfs *sf,
			struct hash128 *id)
{
	unsigned traits = bfs_traits((uint32_t)sf->f_type);
	uint8_t uuid[16], fsid[sizeof(sf->f_fsid)];

	memcpy(fsid, &sf->f_fsid, sizeof(fsid));
	if ((traits & BFS_FSID) && !bfs_all_zero(fsid, sizeof(fsid))) {
		*id = bfs_hash("fsid", fsid, sizeof(fsid));
		return true;
	}
	if (bfs_ask_uuid(b, fd, st->st_mode, traits, uuid)) {
		*id = bfs_hash("uuid", uuid, sizeof(uuid));
		return true;
	}
	return bfs_find_by_uuid(st->st_dev, id);
}

/* Whether the filesystem gives handles, and whether this process may open by them. */
static void bfs_try_handles(struct bfs *fs, int fd, int mount_fd)
{
	union {
		struct file_handle h;
		unsigned char room[sizeof(struct file_handle) + BKEY_BYTES];
	} u;
	int mount_id, by;

	u.h.handle_bytes = BKEY_BYTES;
	if (name_to_handle_at(fd, "", &u.h, &mount_id, AT_EMPTY_PATH) != 0)
		return;
	fs->handles = true;
	if (fs->index != 0)
		return; /* needs a descriptor kept on the filesystem, which could not be unmounted
			 */
	by = open_by_handle_at(mount_fd, &u.h, O_PATH | O_CLOEXEC);
	fs->by_handle = by >= 0;
	if (by >= 0)
		close(by);
}

static int bfs_probe(struct backing *b, int fd, const struct stat *st, struct bfs *fs)
{
	struct statfs sf;
	unsigned traits;

	if (fstatfs(fd, &sf) != 0)
		return -errno;
	traits = bfs_traits((uint32_t)sf.f_type);
	fs->dev = st->st_dev;
	fs->index = b->root ? 1 : 0; /* settled by bfs_add_locked */
	fs->owners = !(traits & BFS_NO_OWNERS);
	fs->local = traits & BFS_LOCAL;
	if (!(traits & BFS_NO_HANDLES))
		bfs_try_handles(fs, fd, b->root_fd);
	if (fs->index == 0 && b->with_fsid) {
		fs->id = b->fsid;
		fs->stable = true;
	} else {
		fs->stable = bfs_find_id(b, fd, st, &sf, &fs->id);
	}
	if (!fs->stable)
		fs->id = bfs_hash("dev", &st->st_dev, sizeof(st->st_dev));
	return 0;
}

static bool bfs_same_id(const struct bfs *a, const struct bfs *b)
{
	return a->id.lo == b->id.lo && a->id.hi == b->id.hi;
}

static int bfs_add_locked(struct backing *b, struct bfs *fs)
{
	struct bfs **grown;

	for (unsigned i = 0; i < b->fs_count; i++)
		if (bfs_same_id(b->fs[i], fs)) {
			struct {
				struct hash128 id;
				dev_t dev;
				unsigned index;
			} twin;

			memset(&twin, 0, sizeof(twin));
			twin.id = fs->id;
			twin.dev = fs->dev;
			twin.index = b->fs_count;
			fs->id = bfs_hash("twin", &twin, sizeof(twin));
			fs->stable = false;
			break;
		}
	grown = realloc(b->fs, (b->fs_count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	b->fs = grown;
	fs->index = b->fs_count;
	b->fs[b->fs_count++] = fs;
	return 0;
}

/* The newest of that device: an older one may be gone. */
static struct bfs *bfs_find_locked(struct backing *b, const struct bfs *like)
{
	for (unsigned i = b->fs_count; i > 0; i--) {
		struct bfs *fs = b->fs[i - 1];

		if (fs->dev != like->dev)
			continue;
		return i == 1 || bfs_same_id(fs, like) || !like->stable || !fs->stable ? fs : NULL;
	}
	return NULL;
}

int bfs_get(struct backing *b, int fd, const struct stat *st, struct bfs *near, struct bfs **out)
{
	struct bfs *fresh, *found;
	int rc;

	if (near && near->dev == st->st_dev) {
		*out = near;
		return 0;
	}
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return -ENOMEM;
	rc = bfs_probe(b, fd, st, fresh);
	if (rc < 0) {
		free(fresh);
		return rc;
	}
	lock_acquire(&b->lock);
	found = bfs_find_locked(b, fresh);
	if (!found) {
		rc = bfs_add_locked(b, fresh);
		if (rc == 0) {
			found = fresh;
			fresh = NULL;
		}
	}
	lock_release(&b->lock);
	free(fresh);
	*out = found;
	return rc;
}

void bfs_destroy_all(struct backing *b)
{
	for (unsigned i = 0; i < b->fs_count; i++)
		free(b->fs[i]);
	free(b->fs);
	b->fs = NULL;
	b->fs_count = 0;
}
