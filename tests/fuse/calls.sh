#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Every operation has the outcome that the filesystem beneath gives (calls.py), with and without the
# kernel's POSIX ACLs, in each coherence mode.
. "$SRC/tests/lib.sh"
need_fuse
need python3 mkfs.ext4
chmod 755 "$T"
truncate -s 2G "$T/img"
mkfs.ext4 -qF -m 0 "$T/img"
mkdir "$T/disk" "$T/m"
mount -o loop "$T/img" "$T/disk"
for opts in coherence=ttl coherence=strict,acl,mode=write-around coherence=exclusive; do
  mkdir "$T/disk/native" "$T/disk/tree"
  "$GILD" format "$T/card" --size 64M >/dev/null
  mount_gild -o "card=$T/card,allow-empty,suid,dev,$opts" "$T/disk/tree" "$T/m"
  python3 "$SRC/tests/fuse/calls.py" "$T/disk/native" "$T/m" ${CASES:-} || fail "$opts: outcomes differ"
  umount_gild "$T/m"
  rm -rf "$T/card" "$T/disk/native" "$T/disk/tree"
done
