#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# gild slowdisk on real mounts: the bytes are the image's, delays switch and count, both forms end
# when they are unmounted. How long things take is the model's affair (tests/unit/test_disk_model).
. "$SRC/tests/lib.sh"
need_fuse
need cmp dd
mkdir "$T/m" "$T/m2" "$T/src"

counted() { sed -n "s/^ *\"$2\": \([a-z0-9]*\).*/\1/p" "$1" | head -n 1; }

"$GILD" slowdisk "$T/img" "$T/m" --size 16M --delays off
dd if=/dev/urandom of="$T/data" bs=64K count=256 2>/dev/null
dd if="$T/data" of="$T/m/disk" bs=100000 2>/dev/null
sync "$T/m/disk"
cmp "$T/data" "$T/img" || fail "the image is not what was written"
refused 1 "$GILD" slowdisk "$T/img" "$T/m2"
[ "$(counted "$T/m/control" delayed)" = 0 ] || fail "delayed while off"
if (echo maybe >"$T/m/control") 2>/dev/null; then fail "control takes any word"; fi
echo on >"$T/m/control"
[ "$(counted "$T/m/control" delays)" = true ] || fail "delays did not switch on"
cmp "$T/data" "$T/m/disk" || fail "read back through the model"
for skip in 7 3 11; do
  dd if="$T/m/disk" bs=777 skip=$skip count=5 of="$T/a" 2>/dev/null
  dd if="$T/data" bs=777 skip=$skip count=5 of="$T/b" 2>/dev/null
  cmp "$T/a" "$T/b" || fail "unaligned read"
done
[ "$(counted "$T/m/control" delayed)" -ge 16 ] || fail "nothing was delayed"
umount "$T/m"
# The lock goes with the daemon.
n=0
until "$GILD" slowdisk "$T/img" "$T/m" --model hdd-1 2>/dev/null; do
  n=$((n + 1)); [ $n -lt 100 ] || fail "the image stays in use"; sleep 0.1
done
cmp "$T/data" "$T/m/disk" || fail "read back after a remount"
umount "$T/m"

cp -a "$SRC/src/base" "$SRC/tests/unit" "$T/src/"
ln -s base "$T/src/link"
"$GILD" slowdisk --files "$T/src" "$T/m" --model hdd-24
diff -r "$T/src" "$T/m" || fail "the directory form differs"
[ "$(counted "$T/m/.slowdisk" delayed)" -ge 10 ] || fail "no lookup was delayed"
echo off >"$T/m/.slowdisk"
cp -a "$T/m/base" "$T/m/copy"
diff -r "$T/src/base" "$T/src/copy" || fail "copied through the mount"
mv "$T/m/copy" "$T/m/unit/moved"
echo more >>"$T/m/unit/moved/log.h"
tail -n 1 "$T/src/unit/moved/log.h" | grep -qx more || fail "append"
exec 5<>"$T/m/gone"; rm "$T/m/gone"; echo still >&5
[ "$(stat -L -c %s /dev/fd/5)" = 6 ] || fail "an unlinked open file"
exec 5>&-
rm -r "$T/m/unit/moved"
[ ! -e "$T/src/unit/moved" ] || fail "rm -r"
umount "$T/m"
