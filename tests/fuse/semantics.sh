#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What programs rely on, call by call (semantics.py), and ways to end: unmounted in use, told to stop
# while mapped pages are dirty.
. "$SRC/tests/lib.sh"
need_fuse
need python3
chmod 755 "$T" # other users take part
mkdir "$T/b" "$T/m" "$T/b/there" # an empty backing is refused
"$GILD" format "$T/c" --size 64M >/dev/null
mount_gild -o card="$T/c",ttl=100ms,admit=always "$T/b" "$T/m"
python3 "$SRC/tests/fuse/semantics.py" "$T/m" "$T/b" 0.1 || fail "semantics"

# SIGTERM while somebody has the mount in use: what was mapped is in the backing afterwards.
pid=$(daemon_pid "$T/m")
mkfifo "$T/go" "$T/done"
python3 - "$T" <<'PY' &
import mmap, os, sys
t = sys.argv[1]
f = os.open(t + '/m/mapped', os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 1 << 20)
a = mmap.mmap(f, 1 << 20)
a[::4096] = b'm' * 256
open(t + '/go', 'w').close()
open(t + '/done').read()
PY
read -r _ <"$T/go" || true
kill -TERM "$pid"
while kill -0 "$pid" 2>/dev/null && [ "$(ps -o stat= -p "$pid" | cut -c1)" != Z ]; do sleep 0.05; done
echo >"$T/done"
wait
! mountpoint -q "$T/m" || fail "still mounted after SIGTERM"
[ "$(tr -d '\0' <"$T/b/mapped" | wc -c)" = 256 ] || fail "mapped pages were lost at SIGTERM"
