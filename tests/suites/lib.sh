# SPDX-License-Identifier: BSD-2-Clause
# Sourced by the runners of public test suites. A suite is built elsewhere and runs twice: in a
# directory of a scratch ext4, and in a gildfs mount over another directory of the same ext4. What
# fails only on the mount fails here, unless NAME.explained (`test: reason`) says why FUSE or the
# mode makes it so.
#
#   make check-suites                                   every suite that is found
#   make check-suites suites=tests/suites/pjdfstest.sh  one
#   SUITE_OPTS=coherence=strict,mode=write-around       mount options
#   SUITE_CARD=256M SUITE_DISK=8G                       sizes
#   PJDFSTEST=DIR LTP=DIR XFSTESTS=DIR ...              where a suite lies; default: below SUITES_DIR
. "$SRC/tests/lib.sh"
SUITES_DIR=${SUITES_DIR:-/usr/local/lib}

# suite_find DEFAULT FILE WHAT: prints the suite's directory, the one where FILE exists.
suite_find() {
  [ -e "$1/$2" ] || skip "needs $3, built, in $1 (no $2 there)"
  echo "$1"
}

# The ext4 on $T/disk, $N for the native side, $B behind the mount and $M.
suite_mount() {
  need mkfs.ext4
  mkdir -p "$T/disk" "$T/mnt"
  truncate -s "${SUITE_DISK:-8G}" "$T/img"
  mkfs.ext4 -qF -m 0 "$T/img"
  mount -o loop,acl,user_xattr "$T/img" "$T/disk"
  N=$T/disk/native B=$T/disk/tree M=$T/mnt
  mkdir "$N" "$B"
  chmod 755 "$T"
  "$GILD" format "$T/card" --size "${SUITE_CARD:-256M}" >/dev/null
  mount_gild -o "card=$T/card,allow-empty,suid,dev${SUITE_OPTS:+,$SUITE_OPTS}" "$B" "$M"
}
suite_umount() { # and the disk: the daemon lets go of it a moment after the mount
  end_gild "$M"
  umount "$T/disk"
  rm -rf "$T/img" "$T/card"
}

# suite_compare NATIVE MOUNT EXPLAINED: files of lines `test result`, result `ok` or what went wrong.
suite_compare() {
  suite_new=0
  while read -r suite_test suite_result; do
    [ "$suite_result" = ok ] && continue
    suite_native=$(awk -v t="$suite_test" '$1 == t {$1 = ""; print substr($0, 2); exit}' "$1")
    if [ -n "$suite_native" ] && [ "$suite_native" != ok ]; then
      echo "also on ext4: $suite_test: $suite_result"
    elif [ -f "$3" ] && grep -q "^$suite_test: " "$3"; then
      echo "explained: $(grep "^$suite_test: " "$3")"
    else
      echo "FAIL: $suite_test: $suite_result"
      suite_new=$((suite_new + 1))
    fi
  done <"$2"
  echo "$(grep -c ' ok$' "$2") of $(wc -l <"$2") pass on the mount, $(grep -c ' ok$' "$1") of $(wc -l <"$1") on ext4;" \
    "options ${SUITE_OPTS:-(default)}"
  [ "$(wc -l <"$2")" -gt 0 ] || fail "nothing ran"
  [ "$suite_new" = 0 ] || fail "$suite_new fail on the mount only"
}
