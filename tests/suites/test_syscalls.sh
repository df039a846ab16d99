#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# libfuse's test_syscalls: each call through the mount, its effect looked at in the backing, too.
# TEST_SYSCALLS=FILE, the program built from libfuse's test/test_syscalls.c.
. "$SRC/tests/suites/lib.sh"
need_fuse
P=${TEST_SYSCALLS:-$SUITES_DIR/test_syscalls}
[ -x "$P" ] || skip "needs libfuse's test/test_syscalls.c, built, as $P"
suite_mount

results() { # one line a test
  sed -n 's/^+* *[0-9.]*s* *\([0-9][0-9]*\) \[\(.*\)\] OK$/\1 ok/p; s/^ *\([0-9][0-9]*\) \[.*\] \(.*() - .*\)$/\1 \2/p' |
    awk '!seen[$1 $2]++'
}
run() { # DIR REALDIR-OR-EMPTY
  mkdir -p "$1"
  chmod 1777 "$1"
  "$P" "$1" ${2:+":$2"} 2>&1 || true
}
run "$N/d" "" | results >"$T/native"
run "$M/d" "$B/d" | results >"$T/mount"
# As a user, whose permissions count.
run_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$P" "$1" ${2:+":$2"} -u 2>&1 || true; }
mkdir -m 1777 "$N/u" "$B/u"
run_user "$N/u" "" | results | sed 's/^/user-/' >>"$T/native"
run_user "$M/u" "" | results | sed 's/^/user-/' >>"$T/mount"
suite_compare "$T/native" "$T/mount" "$SRC/tests/suites/test_syscalls.explained"
