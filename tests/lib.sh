# SPDX-License-Identifier: BSD-2-Clause
# Sourced by the shell tests: a scratch directory of the test's own, mounts that are always undone,
# one way to fail. The harness sets GILD, GILDFS, SRC and BUILD; exit 77 means skipped.
set -eu
# O_DIRECT and LMDB want a real filesystem: /var/tmp, where /tmp may be in memory.
T=$(mktemp -d "${TMPDIR:-/var/tmp}/gild-test.XXXXXX")
trap lib_cleanup EXIT
trap 'exit 1' INT TERM HUP

lib_cleanup() {
  lib_rc=$?
  trap - EXIT
  cd /
  awk -v d="$T/" 'index($2, d) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r m; do
    umount "$m" 2>/dev/null || fusermount3 -uq "$m" 2>/dev/null || umount -l "$m" || true
  done
  [ "${KEEP:-}" ] || rm -rf --one-file-system "$T"
  exit "$lib_rc"
}

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAIL: $*" >&2; exit 1; }
need_fuse() { [ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || skip "needs root and /dev/fuse"; }
need() { for lib_c in "$@"; do command -v "$lib_c" >/dev/null || skip "needs $lib_c"; done; }

# gildfs ARGUMENTS...: returns when the mount answers.
mount_gild() { "$GILDFS" "$@"; }
# Unmounts and waits until the daemon has closed the card.
umount_gild() {
  lib_pid=$(daemon_pid "$1")
  umount "$1"
  while [ "$lib_pid" ] && kill -0 "$lib_pid" 2>/dev/null; do sleep 0.02; done
}
# The same, and waits for the daemon's end: on a loaded machine that takes longer than the next mount
# waits for the card.
end_gild() {
  lib_pid=$(daemon_pid "$1")
  umount_gild "$1"
  while kill -0 "$lib_pid" 2>/dev/null; do sleep 0.05; done
}
daemon_pid() { "$GILD" status --json "$1" | sed -n 's/^ *"pid": \([0-9]*\).*/\1/p'; }

# refused CODE COMMAND...: must exit with CODE and print exactly one line on stderr.
refused() {
  lib_want=$1; shift
  lib_rc=0
  "$@" >"$T/out" 2>"$T/err" || lib_rc=$?
  [ "$lib_rc" = "$lib_want" ] || fail "exit $lib_rc instead of $lib_want: $*: $(cat "$T/err")"
  [ "$(wc -l <"$T/err")" = 1 ] || fail "not one sentence: $*: $(cat "$T/err")"
}
