#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# fsstress of xfstests by several processes on mounts of every mode, while another drops caches. Then
# mount and backing must be equal in content, type, owner, mode, times, links and xattrs: as they
# are, read from flash, after a remount, and after the card's maps are rebuilt from its log.
# XFSTESTS=DIR; PROCS processes, N operations each; RUNS, GILD_SEED, CONFIGS as for fsx.sh.
. "$SRC/tests/suites/lib.sh"
need_fuse
need rsync
FSSTRESS=$(suite_find "${XFSTESTS:-$SUITES_DIR/xfstests}" ltp/fsstress xfstests)/ltp/fsstress
if [ "${GILD_NS:-}" != 1 ]; then # see fsx.sh
  GILD_NS=1 unshare -m --propagation slave "$0"
  exit
fi
seed=${GILD_SEED:-$(date +%s)}
echo "seed $seed"
mkdir "$T/b" "$T/m" "$T/log"
configs=(
  "mode=write-through,ttl=100ms"
  "mode=write-around,coherence=strict,admit=always"
  "mode=write-through,coherence=exclusive,admit=lru"
)

drop() { while [ -d "$T/log" ]; do echo 3 >/proc/sys/vm/drop_caches; sleep "${DROP_EVERY:-0.5}"; done; }
mount_it() { mount_gild "$T/b" "$T/m" -o "card=$T/c,allow-empty,seq-cutoff=0,publish-after=200ms,$1"; }
same() {
  rsync -aHXn --checksum --delete --itemize-changes "$T/b/" "$T/m/" >"$T/log/differences"
  [ ! -s "$T/log/differences" ] || { head -20 "$T/log/differences"; fail "$1; seed $seed"; }
}

one_run() { # CONFIG SEED
  mount_it "$1"
  timeout -k 5 "${LIMIT:-300}" "$FSSTRESS" -d "$T/m" -p "${PROCS:-6}" -n "${N:-1500}" -s "$2" -m 8 \
    -f sync=0 -f bulkstat=0 -f bulkstat1=0 >"$T/log/out" 2>&1 ||
    { tail -20 "$T/log/out"; fail "fsstress -s $2 on $1: exit $?"; }
  same "$1: after fsstress -s $2"
  echo 3 >/proc/sys/vm/drop_caches
  same "$1: with the caches dropped"
  umount_gild "$T/m"
  mount_it "$1"
  same "$1: after a remount"
  umount_gild "$T/m"
}

drop &
dropper=$!
for c in "${configs[@]}"; do
  case $c in *${CONFIGS:-}*) ;; *) continue ;; esac
  "$GILD" format "$T/c" --size "${SUITE_CARD:-24M}" --controllers 2 >/dev/null
  for ((r = 0; r < ${RUNS:-2}; r++)); do one_run "$c" $((seed + r)); done
  until flock -n "$T/c/lock" true; do sleep 0.05; done
  find "$T/c" -name "*.mdb" -delete
  "$GILD" recover "$T/c" >"$T/log/recover" || { cat "$T/log/recover"; fail "gild recover"; }
  mount_it "$c"
  same "$c: after gild recover"
  umount_gild "$T/m"
  rm -rf "$T/c" "$T"/b/*
  echo "done: $c"
done
rm -rf "$T/log"
wait "$dropper"
