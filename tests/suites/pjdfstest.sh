#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# pjdfstest: POSIX semantics of names, modes, owners and times, as root and as other users.
# PJDFSTEST=DIR with the program pjdfstest and its tests/; PJD_TESTS="rename chmod" chooses.
. "$SRC/tests/suites/lib.sh"
need_fuse
need prove
D=$(suite_find "${PJDFSTEST:-$SUITES_DIR/pjdfstest}" pjdfstest pjdfstest)
suite_mount

run() { # DIR RESULTS: one line a file of tests
  cd "$1"
  for t in $(cd "$D/tests" && find ${PJD_TESTS:-.} -name '*.t' | sed 's,^\./,,' | sort); do
    # Two tests at a time never share a directory: prove makes none of its own.
    if out=$(prove -Q "$D/tests/$t" 2>&1); then
      echo "$t ok"
    else
      echo "$t $(echo "$out" | sed -n 's/.*Failed tests*: *//p' | tr '\n' ' ')"
    fi
  done >"$2"
  cd /
}
run "$N" "$T/native" &
run "$M" "$T/mount"
wait
suite_compare "$T/native" "$T/mount" "$SRC/tests/suites/pjdfstest.explained"
