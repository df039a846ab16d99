#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The card's filesystem fills up, its medium is cut short, its files are removed, all under load:
# nobody sees an error or a wrong byte, and the daemon ends promptly. Also SIGTERM under load.
. "$SRC/tests/lib.sh"
need_fuse; need python3
mkdir "$T/b" "$T/m" "$T/t"
seed=${GILD_SEED:-$(date +%s)}
echo "seed $seed"
cat >"$T/load.py" <<'P'
import os, random, sys
top, seed, count, may_end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1"
r = random.Random(seed)
try:
    for i in range(count):
        p, k = f"{top}/f{r.randrange(60)}", r.randrange(10)
        try:
            if k < 4: open(p, "wb").write(r.randbytes(r.randrange(1, 200000)))
            elif k < 8: open(p, "rb").read()
            elif k < 9: os.rename(p, f"{top}/f{r.randrange(60)}")
            else: os.unlink(p)
        except FileNotFoundError: pass
        if i == count // 4: print("quarter", flush=True)
except OSError as e:
    if not may_end: raise
P
for i in $(seq 0 59); do head -c $((i * 4000 + 100)) /dev/urandom >"$T/b/f$i"; done

gone() { # PID: it ends within ten seconds
  python3 -c 'import os,sys,time
until = time.monotonic() + 10
while os.path.exists("/proc/" + sys.argv[1]):
    if time.monotonic() > until: sys.exit(1)
    time.sleep(.01)' "$1"
}
# trouble NAME COMMAND [may_end [operations]]: the command strikes when the load is a quarter through.
trouble() {
  local pid may_end=${3:-0} count=${4:-400}
  mount -t tmpfs -o size=80M none "$T/t"
  "$GILD" format "$T/t/c" --size 64M >/dev/null
  mount_gild -o card="$T/t/c",admit=always,publish-after=50ms "$T/b" "$T/m"
  cat "$T/m"/* >/dev/null
  pid=$(daemon_pid "$T/m")
  coproc python3 "$T/load.py" "$T/m" "$seed" "$count" "$may_end"
  local load=$COPROC_PID
  python3 "$T/load.py" "$T/m" "$((seed + 1))" "$count" "$may_end" >/dev/null &
  read -r _ <&"${COPROC[0]}"
  eval "$2"
  wait "$load" || fail "$1: an error reached the load"
  wait $! || fail "$1: an error reached the load"
  if [ "$may_end" = 0 ]; then
    diff -r "$T/b" "$T/m" || fail "$1: mount and backing differ"
    umount_gild "$T/m"
  fi
  gone "$pid" || fail "$1: the daemon does not end"
  ! grep -q " $T/m " /proc/self/mounts || fail "$1: still mounted"
  umount -l "$T/t"
  echo "$1: ok"
}
trouble "filesystem full" 'dd if=/dev/zero of="$T/t/fill" bs=1M 2>/dev/null || true' 0 2500
trouble "medium cut short" 'truncate -s 1M "$T/t/c/medium.dat"'
trouble "maps cut short" 'for f in "$T"/t/c/meta/*/data.mdb; do truncate -s 0 "$f"; done'
trouble "card removed" 'rm -rf "$T/t/c"'
trouble "SIGTERM" 'kill -TERM "$pid"' 1
