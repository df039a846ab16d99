#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# SQLite under load: WAL and rollback journal, synchronous FULL and NORMAL, writers killed, pages
# dropped, remounted; then the same files in the backing. SECONDS_EACH=n: longer. GILD_SEED repeats.
. "$SRC/tests/lib.sh"
need_fuse; need python3
python3 -c 'import sqlite3' 2>/dev/null || skip "needs python3's sqlite3"
S=${GILD_SEED:-$(date +%s)}
echo "GILD_SEED=$S"
mkdir "$T/b" "$T/m"
"$GILD" format "$T/c" --size 64M >/dev/null
mount_gild -o card="$T/c",admit=always,allow-empty "$T/b" "$T/m"
P=$SRC/tests/fuse/sqlite.py
for journal in wal delete; do
  for sync in FULL NORMAL; do
    d=$journal-$sync
    mkdir "$T/b/$d" "$T/log-$d"
    python3 "$P" load "$T/m/$d" "$T/log-$d" $journal $sync "${SECONDS_EACH:-4}" "$S" || fail "$d"
    # Killed writers leave a hot journal or a WAL: whoever opens next must find the same in both.
    cp -r "$T/b/$d" "$T/copy-$d"
    python3 "$P" check "$T/copy-$d" "$T/log-$d" || fail "$d: in the backing"
  done
done
end_gild "$T/m"
mount_gild -o card="$T/c",admit=always,allow-empty "$T/b" "$T/m"
for d in wal-FULL wal-NORMAL delete-FULL delete-NORMAL; do
  python3 "$P" check "$T/m/$d" "$T/log-$d" || fail "$d: after the remount"
  for f in "$T/b/$d"/*; do cmp "$f" "$T/m/$d/${f##*/}" || fail "$d: mount and backing differ"; done
done
end_gild "$T/m"
