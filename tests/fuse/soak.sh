#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A long mixed load (soak.py): no byte is wrong, and memory, descriptors and threads of the daemon
# stay as they are. SOAK seconds (20; the number in tests/README is an hour's), GILD_SEED.
. "$SRC/tests/lib.sh"
need_fuse
need python3
mkdir "$T/b" "$T/m"
"$GILD" format "$T/card" --size "${SOAK_CARD:-64M}" >/dev/null
mount_gild -o "card=$T/card,allow-empty" "$T/b" "$T/m"
python3 "$SRC/tests/fuse/soak.py" "$T/m" "$T/b" "$(daemon_pid "$T/m")" "${SOAK:-20}" \
  "${GILD_SEED:-$(date +%s)}" || fail "soak"
"$GILD" status "$T/m"
umount_gild "$T/m"
mount_gild -o "card=$T/card" "$T/b" "$T/m"
diff -r "$T/b" "$T/m" || fail "the mount differs from the backing"
