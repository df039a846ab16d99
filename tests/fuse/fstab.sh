#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# mount(8) makes the mount, as from a line in fstab, and remounts it.
. "$SRC/tests/lib.sh"
need_fuse
[ -x /sbin/mount.fuse ] || skip "needs mount.fuse"
# It looks for gildfs in the system's directories: there, but only for us.
if [ "${GILD_NS:-}" != 1 ]; then
  GILD_NS=1 unshare -m --propagation slave "$0"
  exit
fi
mount -t tmpfs none /usr/local/sbin
ln -s "$GILDFS" /usr/local/sbin/gildfs
mkdir "$T/b" "$T/m"
echo x >"$T/b/f"
"$GILD" format "$T/c" --size 64M >/dev/null
has() { findmnt -no OPTIONS "$T/m" | tr , '\n' | grep -qx "$1" || fail "not $1: $(findmnt -n "$T/m")"; }

cat >"$T/fstab" <<END
$T/b $T/m fuse.gildfs card=$T/c,mode=write-around,nosuid,nodev,strictatime,nofail,x-systemd.automount 0 0
END
mount -T "$T/fstab" "$T/m"
[ "$(cat "$T/m/f")" = x ]
for o in rw nosuid nodev; do has $o; done
[ "$(findmnt -no SOURCE,FSTYPE "$T/m" | tr -s ' ')" = "$T/b fuse.gildfs" ] || fail "$(findmnt -n "$T/m")"
"$GILD" status --json "$T/m" | grep -q '"mode": "write-around"' || fail "an option was lost"

mount -o remount,ro "$T/m"
for o in ro nosuid nodev; do has $o; done
! echo y 2>/dev/null >"$T/m/f" || fail "written to a read-only mount"
[ "$(cat "$T/m/f")" = x ]
mount -T "$T/fstab" -o remount,rw "$T/m"
has rw
echo y >"$T/m/f"
[ "$(cat "$T/b/f")" = y ]
umount_gild "$T/m"

refused 2 "$GILDFS" "$T/b" "$T/m" -o remounted,card="$T/c"
mount -t fuse.gildfs -o ro,card="$T/c" "$T/b" "$T/m"
has ro
umount "$T/m"
