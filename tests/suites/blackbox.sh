#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Black-box cases of what users of caching filesystems suffered: BLACKBOX=FILE, a script that takes
# M=mount B=backing S=staleness W=settle PID=daemon from its environment and prints `ID PASS|FAIL`.
# Each coherence x write mode in turn, unless SUITE_OPTS says which.
. "$SRC/tests/suites/lib.sh"
need_fuse
need sqlite3 fio git xfs_io python3
P=${BLACKBOX:-$SUITES_DIR/blackbox.sh}
[ -f "$P" ] || skip "needs the black-box cases, as $P"

# Changes behind the mount are not to be seen in exclusive mode: there these do not apply.
behind="T01 T03 T04 T08 T09 T10"
all=$(sed -n 's/^C\[\(T[0-9]*\)\].*/\1/p' "$P")
for SUITE_OPTS in ${SUITE_OPTS:-coherence=ttl,mode=write-through coherence=ttl,mode=write-around \
  coherence=strict,mode=write-through coherence=strict,mode=write-around \
  coherence=exclusive,mode=write-through coherence=exclusive,mode=write-around}; do
  ids=$all
  case $SUITE_OPTS in *exclusive*) for i in $behind; do ids=$(echo "$ids" | grep -vx "$i"); done ;; esac
  suite_mount
  M=$M B=$B S=2 W=3 PID=$(daemon_pid "$M") bash "$P" $ids >"$T/out" || true
  echo "$SUITE_OPTS: $(tail -n 1 "$T/out")"
  grep -v 'PASS$\|^pass=' "$T/out" >>"$T/bad" || true
  suite_umount
done
[ ! -s "$T/bad" ] || fail "$(cat "$T/bad")"
