#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Every operation (operations.py), as root and as a user, in a native directory and on the mount: the
# same outcomes. In each coherence mode, with ACLs, and what a read-only mount refuses.
# OPERATIONS_CASES chooses; OPERATIONS_ENTRIES is the size of the big directory; VERBOSE names times.
. "$SRC/tests/lib.sh"
need_fuse
need python3 setfacl
chmod 755 "$T"
mkdir "$T/b" "$T/m"
"$GILD" format "$T/c" --size 64M >/dev/null
# mount_mode COHERENCE: set-id bits and device nodes count, as they do natively.
mount_mode() { mount_gild -o card="$T/c",allow-empty,suid,dev,admit=always,coherence="$1" "$T/b" "$T/m"; }

for mode in ttl,acl strict,mode=write-around exclusive; do
  mkdir "$T/n.$mode" "$T/b/$mode"
  mount_mode "$mode"
  case $mode in *acl*) export OPERATIONS_ACL=1 ;; *) unset OPERATIONS_ACL ;; esac
  # shellcheck disable=SC2086
  python3 "$SRC/tests/fuse/operations.py" "$T/n.$mode" "$T/m/$mode" "$T/b/$mode" \
    ${OPERATIONS_CASES:-} || fail "coherence=$mode"
  umount_gild "$T/m"
  rm -rf "$T/n.$mode" "$T/b/$mode"
done

# Read-only, however it was asked for; inode numbers are those of the mount before.
mkdir "$T/b/dir" "$T/native"
echo data >"$T/b/f"; echo x >"$T/b/dir/x"; ln -s f "$T/b/link"; setfattr -n user.x -v 1 "$T/b/f"
mount --bind "$T/b" "$T/native"; mount -o remount,bind,ro "$T/native"
mount_mode ttl
inodes=$(cd "$T/m" && stat -c '%n %i' f dir dir/x link)
umount_gild "$T/m"
for mode in ttl,ro ttl,mode=read-only; do
  mount_mode "$mode"
  python3 "$SRC/tests/fuse/operations_readonly.py" "$T/native" "$T/m" || fail "$mode"
  [ "$(cd "$T/m" && stat -c '%n %i' f dir dir/x link)" = "$inodes" ] || fail "other inode numbers"
  umount_gild "$T/m"
done
