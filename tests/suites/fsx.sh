#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# fsx of xfstests against mounts of every mode, on a card so small that GC and eviction run, while
# another process drops their pages so that reads come from flash. Each mount runs several seeds
# side by side, is unmounted and mounted again between runs, and must end equal to its backing.
# XFSTESTS=DIR; RUNS runs of N operations a mode; GILD_SEED; CONFIGS=PART of a mode chooses.
. "$SRC/tests/suites/lib.sh"
need_fuse
FSX=$(suite_find "${XFSTESTS:-$SUITES_DIR/xfstests}" ltp/fsx xfstests)/ltp/fsx
# Others who copy the mount table (LTP does) would keep a mount alive beyond its umount.
if [ "${GILD_NS:-}" != 1 ]; then
  GILD_NS=1 unshare -m --propagation slave "$0"
  exit
fi
seed=${GILD_SEED:-$(date +%s)}
runs=${RUNS:-2} n=${N:-4000} bad=0
echo "seed $seed"
mkdir "$T/b" "$T/m" "$T/log"

styles=(
  "-l 300000 -e 1"                                # what mappings put behind the end must not show
  "-l 2000000 -o 200000 -c 20"                    # closed and opened
  "-l 150000 -f -c 50"                            # written out and dropped after every step
  "-l 600000 -Z -R -W"                            # O_DIRECT, unaligned
  "-l 300000 -Z -R -W -A -r 4096 -w 4096 -t 4096" # and aligned by AIO
  "-l 300000 -U"                                  # io_uring
  "-l 8000000 -o 1500000 -y"                      # large, fsync
)
configs=(
  "mode=write-through,ttl=100ms"
  "mode=write-around,ttl=100ms"
  "mode=write-through,coherence=strict"
  "mode=write-around,coherence=strict,admit=always"
  "mode=write-through,coherence=exclusive,admit=lru"
  "mode=write-around,coherence=exclusive"
)

# Drops the pages of the files, not the whole system's, while `dropping` exists.
drop() {
  while [ -e "$T/dropping" ]; do
    for f in "$T"/m/f*; do dd if="$f" iflag=nocache count=0 status=none 2>/dev/null || true; done
    sleep "${DROP_EVERY:-0.05}"
  done
}

same() { diff -r "$T/b" "$T/m" || { bad=$((bad + 1)); echo "FAILED: -o $1: mount and backing differ $2"; }; }

one_run() { # CONFIG RUN
  local i pids=() s dropper
  mount_gild "$T/b" "$T/m" -o "card=$T/c,allow-empty,seq-cutoff=0,publish-after=200ms,$1"
  same "$1" "after a remount"
  touch "$T/dropping"
  drop & dropper=$!
  for i in "${!styles[@]}"; do
    s=$((seed + 100 * $2 + i))
    # shellcheck disable=SC2086
    timeout -k 5 "${LIMIT:-900}" "$FSX" -q -N "$n" -S "$s" -P "$T/log" ${styles[i]} "$T/m/f$i" \
      >"$T/log/out$i" 2>&1 &
    pids[i]=$!
  done
  for i in "${!styles[@]}"; do
    wait "${pids[i]}" || {
      echo "FAILED: -o $1: fsx -N $n -S $((seed + 100 * $2 + i)) ${styles[i]}: exit $?"
      bad=$((bad + 1))
      grep -v '^[0-9]*(\|^[[:space:]]*CLOSE' "$T/log/out$i" || true
      tail -n "${TAIL:-30}" "$T/log/out$i"
    }
  done
  rm "$T/dropping"
  wait "$dropper"
  same "$1" "after fsx"
  "$GILD" status --json "$T/m" | python3 -c 'import json, sys
s = json.load(sys.stdin)
r, f = s["requests"], s["flash"]
print("  %d hits, %d partial, %d misses, %d bypasses; GC copied %d KiB, dropped %d KiB" % (r["hits"],
      r["partial"], r["misses"], r["bypass"], f["gc_copied_bytes"] >> 10, f["gc_dropped_bytes"] >> 10))'
  umount_gild "$T/m"
}

for c in "${configs[@]}"; do
  case $c in *${CONFIGS:-}*) ;; *) continue ;; esac
  "$GILD" format "$T/c" --size "${SUITE_CARD:-9M}" --controllers 1 >/dev/null
  for ((r = 0; r < runs; r++)); do one_run "$c" "$r"; done
  rm -rf "$T/c"
  echo "done: $c"
done
[ "$bad" = 0 ] || fail "$bad of the runs; seed $seed"
