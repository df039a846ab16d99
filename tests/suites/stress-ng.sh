#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# stress-ng's stressors of the filesystem class (those that work below --temp-path), each a moment
# with --verify, on ext4 and on the mount over it; a wrong byte on either side is an exit code.
# STRESS="rename xattr ...": these; STRESS_SECONDS=n: longer.
. "$SRC/tests/suites/lib.sh"
need_fuse; need stress-ng
suite_mount
all="access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup fallocate
  fanotify fcntl fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd inode-flags
  inotify io iomix lease link locka lockf lockofd mknod open rename symlink sync-file touch utime
  verity xattr"
run() { # DIR RESULTS
  for s in ${STRESS:-$all}; do
    rc=0
    timeout -k 5 "$((${STRESS_SECONDS:-1} + 120))" stress-ng "--$s" 1 -t "${STRESS_SECONDS:-1}" \
      --verify --temp-path "$1" >"$2.log" 2>&1 </dev/null || rc=$?
    case $rc in
      0) echo "$s ok" ;;
      3|4) ;; # no resources, or not for this machine
      *) echo "$s exit $rc $(grep -E 'fail:|error:' "$2.log" | head -n 2 | tr '\n' ' ')" ;;
    esac
  done >"$2"
}
run "$N" "$T/native" &
run "$M" "$T/mount"
wait
suite_compare "$T/native" "$T/mount" "$SRC/tests/suites/stress-ng.explained"
