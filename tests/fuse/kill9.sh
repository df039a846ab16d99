#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# kill -9 during writes, 20 times (ROUNDS): after each remount the mount and the backing agree, byte
# for byte. The seed is printed; GILD_SEED repeats it.
. "$SRC/tests/lib.sh"
need_fuse; need python3
rounds=${ROUNDS:-20} seed=${GILD_SEED:-$(date +%s)}
echo "seed $seed"
mkdir "$T/b" "$T/m"
cat >"$T/writer.py" <<'P'
import os, random, sys
top, seed = sys.argv[1], int(sys.argv[2])
r = random.Random(seed)
try:
    while True:
        p = f"{top}/f{r.randrange(40)}"
        k = r.randrange(10)
        if k < 5:
            fd = os.open(p, os.O_RDWR | os.O_CREAT)
            os.pwrite(fd, r.randbytes(r.randrange(1, 150000)), r.randrange(400000))
            if r.random() < .2: os.fsync(fd)
            os.close(fd)
        elif k < 6: os.truncate(p, r.randrange(400000))
        elif k < 7: open(p, "ab").write(r.randbytes(r.randrange(5000)))
        elif k < 8: os.rename(p, f"{top}/f{r.randrange(40)}")
        elif k < 9: os.unlink(p)
        else: open(p, "rb").read()
except FileNotFoundError: os.execv(sys.executable, [sys.executable, sys.argv[0], top, str(seed + 1000)])
except OSError: pass   # the mount went away
P
for i in $(seq 0 39); do head -c $((i * 7919)) /dev/urandom >"$T/b/f$i"; done
"$GILD" format "$T/c" --size 64M >/dev/null
for round in $(seq "$rounds"); do
  mount_gild -o card="$T/c",publish-after=$((round % 3))s "$T/b" "$T/m"
  diff -r "$T/b" "$T/m" || fail "round $round (seed $seed): mount and backing differ"
  pid=$(daemon_pid "$T/m")
  for w in 1 2 3; do python3 "$T/writer.py" "$T/m" $((seed + round * 10 + w)) 2>/dev/null & done
  # the time of the kill is the test's randomness, not a wait for something
  python3 -c "import random,time; random.seed($seed+$round); time.sleep(random.uniform(.1,1.2))"
  kill -9 "$pid"
  # Aborts the connection: a daemon that died while the kernel was dropping pages for it may leave
  # requests that nobody else ends.
  umount -f "$T/m" 2>/dev/null || true
  # shellcheck disable=SC2046
  kill -9 $(jobs -p) 2>/dev/null || true
  wait || true
  umount -l "$T/m" 2>/dev/null || true
done
mount_gild -o card="$T/c" "$T/b" "$T/m"
diff -r "$T/b" "$T/m" || fail "after the last round (seed $seed)"
"$GILD" status "$T/m"
umount_gild "$T/m"
