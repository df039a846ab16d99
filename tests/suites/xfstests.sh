#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# xfstests' generic tests on two mounts made by mount(8). What fails, or takes longer than LIMIT
# seconds, is run once more on ext4, and fails here unless it does there or xfstests.explained names
# it. Needs the users fsgqa, fsgqa2 and 123456-fsgqa with a home. XFSTESTS=DIR; TESTS are the arguments
# of its `check`; RESULTS=DIR keeps what the tests wrote.
. "$SRC/tests/suites/lib.sh"
need_fuse
need mkfs.ext4 losetup
D=$(suite_find "${XFSTESTS:-$SUITES_DIR/xfstests}" ltp/fsstress xfstests)
id fsgqa >/dev/null 2>&1 || skip "needs the users fsgqa, fsgqa2 and 123456-fsgqa"
# mount(8) looks for gildfs in the system's directories: there, but only for us.
if [ "${GILD_NS:-}" != 1 ]; then
  GILD_NS=1 unshare -m --propagation slave "$0"
  exit
fi
mount -t tmpfs none /usr/local/sbin
ln -s "$GILDFS" /usr/local/sbin/gildfs
# It takes the type of a FUSE mount for "fuse", and unmounts by the source, which is no device here.
sed -e 's/-e .s\/fuse.ceph-fuse/-e "s:fuse[.]gildfs:fuse:" &/' \
  -e '/^_scratch_unmount()/,/^}/s/tmpfs)/tmpfs|fuse)/' \
  -e '/^_test_unmount()/,/^}/s/TEST_DEV/TEST_DIR/' "$D/common/rc" >"$T/rc"
chmod 755 "$T"

# Everything below a test that takes too long is killed; check goes on.
kill_tree() {
  local p
  for p in $(ps -o pid= --ppid "$1"); do kill_tree "$p"; done
  kill -9 "$1" 2>/dev/null || true
}
watch() {
  local p secs args
  while kill -0 "$1" 2>/dev/null; do
    ps -o pid=,etimes=,args= --ppid "$1" | while read -r p secs args; do
      case $args in *tests/generic/*) ;; *) continue ;; esac
      [ "$secs" -lt "${LIMIT:-300}" ] || { echo "took too long: $args"; kill_tree "$p"; }
    done
    sleep 2
  done
}
# check CONFIG RESULTS ARGUMENTS...: leaves `failed` and `summary` in RESULTS.
check() {
  local conf=$1 dir=$2 pid
  shift 2
  mkdir -p "$dir"
  cd "$D"
  HOST_OPTIONS=$conf RESULT_BASE=$dir ./check "$@" >"$dir/out" 2>&1 &
  pid=$!
  watch "$pid" &
  wait "$pid" || true
  cd /
  grep '^Ran: ' "$dir/out" | tail -n 1 | tr ' ' '\n' | sed 1d | sort -u >"$dir/ran"
  grep '^Not run: ' "$dir/out" | tail -n 1 | tr ' ' '\n' | sed 1,2d | sort -u >"$dir/not-run"
  grep '^Failures: ' "$dir/out" | tail -n 1 | tr ' ' '\n' | sed 1d | sort -u >"$dir/failed"
}

words="allow-empty,suid,dev${SUITE_OPTS:+,$SUITE_OPTS}"
for k in test scratch; do
  # A filesystem of its own for each backing: some tests fill what they find.
  mkdir "$T/$k" "$T/$k.mnt"
  truncate -s "${SUITE_DISK:-6G}" "$T/$k.img" "$T/$k.ext4"
  mkfs.ext4 -qF "$T/$k.img"
  mount -o loop "$T/$k.img" "$T/$k"
  "$GILD" format "$T/$k.card" --size "${SUITE_CARD:-512M}" >/dev/null
done
cat >"$T/gildfs.config" <<END
export FSTYP=fuse FUSE_SUBTYP=.gildfs
export TEST_DEV=$T/test TEST_DIR=$T/test.mnt SCRATCH_DEV=$T/scratch SCRATCH_MNT=$T/scratch.mnt
export TEST_FS_MOUNT_OPTS="-o $words,card=$T/test.card" MOUNT_OPTIONS="-o $words,card=$T/scratch.card"
END
mount --bind "$T/rc" "$D/common/rc"
# shellcheck disable=SC2086
check "$T/gildfs.config" "$T/results" ${TESTS:--g quick -x clone,dedupe,quota,shutdown,encrypt,verity,casefold,dax,swap,trim,log,thin,fiexchange}
umount "$D/common/rc"
for k in test scratch; do umount "$T/$k.mnt" 2>/dev/null || true; done
[ -z "${RESULTS:-}" ] || cp -r "$T/results" "$RESULTS"
[ -s "$T/results/ran" ] || { tail "$T/results/out"; fail "nothing ran"; }

explained=$SRC/tests/suites/xfstests.explained
while read -r t; do grep -q "^$t: " "$explained" || echo "$t"; done <"$T/results/failed" >"$T/unclear"
: >"$T/new"
if [ -s "$T/unclear" ]; then
  test=$(losetup -f --show "$T/test.ext4") scratch=$(losetup -f --show "$T/scratch.ext4")
  mkfs.ext4 -qF "$test"
  cat >"$T/ext4.config" <<END
export FSTYP=ext4 TEST_DEV=$test TEST_DIR=$T/test.mnt SCRATCH_DEV=$scratch SCRATCH_MNT=$T/scratch.mnt
END
  # shellcheck disable=SC2046
  check "$T/ext4.config" "$T/ext4" $(cat "$T/unclear")
  for k in test scratch; do umount "$T/$k.mnt" 2>/dev/null || true; done
  losetup -d "$test" "$scratch"
  grep -vxFf "$T/ext4/failed" "$T/unclear" >"$T/new" || true
fi
while read -r t; do
  if grep -q "^$t: " "$explained"; then
    grep "^$t: " "$explained" | sed 's/^/explained: /'
  elif grep -qx "$t" "$T/new"; then
    echo "FAIL: $t"
  else
    echo "also on ext4: $t"
  fi
done <"$T/results/failed"
ran=$(wc -l <"$T/results/ran") skipped=$(wc -l <"$T/results/not-run") bad=$(wc -l <"$T/results/failed")
echo "$((ran - skipped - bad)) pass, $bad fail, $skipped do not apply; options ${SUITE_OPTS:-(default)}"
while read -r t; do grep -A 40 "^$t " "$T/results/out" | sed -n '1p;2,40{/^    /!q;p}'; done <"$T/new"
[ ! -s "$T/new" ] || fail "$(wc -l <"$T/new") fail on the mount only"
