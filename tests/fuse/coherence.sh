#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Changes made behind the mount show after at most the ttl; those made while it was not mounted at
# once. Files changed to the same size and mtime too.
. "$SRC/tests/lib.sh"
need_fuse
mkdir "$T/b" "$T/m"
for i in 1 2 3 4 5; do head -c 100000 /dev/urandom >"$T/b/f$i"; done
"$GILD" format "$T/c" --size 64M >/dev/null
mount_gild -o card="$T/c",ttl=100ms,admit=always "$T/b" "$T/m"
ttl() { python3 -c 'import time; time.sleep(.15)' ; }
same() { cmp "$T/b/$1" "$T/m/$1" || fail "stale: $1 ($2)"; }

for i in 1 2 3 4 5; do same f$i first; same f$i hit; done
head -c 100000 /dev/urandom >"$T/b/f1"; ttl; same f1 "rewritten"
touch -r "$T/b/f2" "$T/ref"; head -c 100000 /dev/urandom >"$T/b/f2"; touch -r "$T/ref" "$T/b/f2"
ttl; same f2 "same size and mtime"
head -c 100000 /dev/urandom >"$T/b/new"; touch -r "$T/b/f3" "$T/b/new"; mv "$T/b/new" "$T/b/f3"
ttl; same f3 "replaced"
truncate -s 5000 "$T/b/f4"; ttl; same f4 "shrunk"
head -c 5000 /dev/urandom >>"$T/b/f5"; ttl; same f5 "grown"
rm "$T/b/f1"; ttl; [ ! -e "$T/m/f1" ] || fail "deleted file still there"
[ ! -e "$T/m/late" ]; echo late >"$T/b/late"; ttl; same late "negative entry"
umount_gild "$T/m"

touch -r "$T/b/f5" "$T/ref"; head -c 105000 /dev/urandom >"$T/b/f5"; touch -r "$T/ref" "$T/b/f5"
head -c 5000 /dev/urandom >"$T/b/f4"
mount_gild -o card="$T/c",ttl=100ms,admit=always "$T/b" "$T/m"
same f4 "changed while not mounted"; same f5 "changed while not mounted, same size and mtime"
umount_gild "$T/m"
