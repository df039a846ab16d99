#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The filesystem part of the Linux Test Project: its `syscalls` list as far as it is about files,
# and (LTP_FS=1) its `fs` list of stress tests. LTP=DIR, where it is installed. LTP_ONLY=REGEX.
# Tests that bring their own loop device use one filesystem only: it lies on the mount, too.
. "$SRC/tests/suites/lib.sh"
need_fuse
D=$(suite_find "${LTP:-$SUITES_DIR/ltp}" runtest/syscalls "the Linux Test Project")
suite_mount
export LTPROOT=$D PATH=$D/testcases/bin:$PATH LTP_COLORIZE_OUTPUT=n LTP_SINGLE_FS_TYPE=ext4

files='access|chdir|chmod|chown|chroot|close|copy_file_range|creat|dup|execve|execveat|faccessat'
files="$files|fallocate|fchdir|fchmod|fchown|fcntl|fdatasync|fgetxattr|flistxattr|flock|fremovexattr"
files="$files|fsetxattr|fstat|fsync|ftruncate|futimesat|getcwd|getdents|getxattr|inotify|fanotify"
files="$files|io_|lchown|lgetxattr|link|listxattr|llistxattr|llseek|lremovexattr|lseek|lstat|mkdir"
files="$files|mknod|mmap|msync|munmap|mincore|madvise|name_to_handle_at|open|posix_fadvise|pread"
files="$files|pwrite|read|removexattr|rename|rmdir|sendfile|setxattr|splice|stat|symlink|sync|tee"
files="$files|truncate|umask|unlink|utime|vmsplice|write|diotest|setfsuid|ioctl_fi"
select_tests() {
  grep -Ev '^(#|$)' "$D/runtest/syscalls" | grep -E "^(l|f)?($files)"
  [ -z "${LTP_FS:-}" ] || grep -E '^(gf|rwtest|fs_inod|linker|openfile|inode|stream|ftest|lftest|writetest|fs_di)' "$D/runtest/fs"
}
run() { # DIR RESULTS [TESTS]
  export TMPDIR=$1
  chmod 1777 "$1"
  while read -r name command; do
    cd "$1"
    rc=0
    timeout -k 5 "${LTP_TIMEOUT:-120}" bash -c "$command" >"$2.log" 2>&1 </dev/null || rc=$?
    case $rc in
      0) echo "$name ok" ;;
      32) ;; # not for this machine
      *) echo "$name exit $rc $(grep -Eh 'TFAIL|TBROK|TWARN' "$2.log" | head -n 2 | tr '\n' ' ')" ;;
    esac
  done <"${3:-$T/tests}" >"$2"
  cd /
}
select_tests | grep -E "^(${LTP_ONLY:-.*})" >"$T/tests"
run "$N" "$T/native" &
run "$M" "$T/mount"
wait
# What fails gets a second chance with the machine to itself: both sides compete for loop devices.
awk '$2 != "ok" {print $1}' "$T/mount" >"$T/again"
if [ -s "$T/again" ]; then
  grep -E "^($(paste -sd'|' "$T/again"))[[:space:]]" "$T/tests" >"$T/tests2"
  run "$M" "$T/mount2" "$T/tests2"
  awk 'NR == FNR {second[$1] = $0; next} {print $1 in second ? second[$1] : $0}' "$T/mount2" "$T/mount" >"$T/mount3"
  mv "$T/mount3" "$T/mount"
fi
suite_compare "$T/native" "$T/mount" "$SRC/tests/suites/ltp.explained"
