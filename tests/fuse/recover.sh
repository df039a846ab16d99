#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# All LMDB files deleted: the mount says what to do, gild recover brings the cache back, warm.
. "$SRC/tests/lib.sh"
need_fuse
mkdir "$T/b" "$T/m"
for i in $(seq 300); do head -c $((i * 97)) /dev/urandom >"$T/b/f$i"; done
"$GILD" format "$T/c" --size 64M >/dev/null
mount_gild -o card="$T/c",admit=always "$T/b" "$T/m"
# Files this young are not cached at once (their timestamps could still hide a change): again until
# every one is.
fills() { "$GILD" stats "$T/m" | awk '$1 == "fill" && $2 == "done" {print $3}'; }
tries=0
while [ "$(fills)" -lt 300 ]; do
  tries=$((tries + 1)); [ $tries -le 100 ] || fail "only $(fills) of 300 files were cached"
  echo 3 >/proc/sys/vm/drop_caches
  cat "$T"/m/* >/dev/null
  "$GILD" flush "$T/m"
done
umount_gild "$T/m"
mount_gild -o card="$T/c",admit=always "$T/b" "$T/m"
cat "$T"/m/* >/dev/null
hits() { "$GILD" status --json "$T/m" | sed -n 's/^ *"hits": \([0-9]*\).*/\1/p' | head -n 1; }
warm=$(hits)
[ "$warm" -ge 300 ] || fail "only $warm hits after a clean remount"
umount_gild "$T/m"

find "$T/c" -name '*.mdb' -delete
refused 1 mount_gild -o card="$T/c" "$T/b" "$T/m"
grep -q 'gild recover' "$T/err" || fail "no remedy named: $(cat "$T/err")"
"$GILD" recover "$T/c"
mount_gild -o card="$T/c",admit=always "$T/b" "$T/m"
diff -r "$T/b" "$T/m" || fail "wrong bytes after recovery"
[ "$(hits)" -ge 300 ] || fail "cold after recovery: $(hits) hits"
umount_gild "$T/m"
