#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The power goes while backing and card lie on real filesystems (FS=ext4 or xfs) on disks with write
# caches: CUTS moments of a recorded run (make check-crash: 100), each with another part of what was
# not flushed. See powercut.py. GILD_SEED is printed; what a run records depends on timing, too.
# In a mount namespace of its own: a mount that lives on in somebody else's copy keeps its daemon.
[ "${GILD_TEST_NS:-}" ] || ! unshare -m --propagation slave true 2>/dev/null || GILD_TEST_NS=1 exec unshare -m --propagation slave "$0" "$@"
# Disks in memory where there is room: what is lost is decided here, not by the machine's disk.
[ "${TMPDIR:-}" ] || [ "$(df --output=avail -B1M /dev/shm 2>/dev/null | tail -n 1)" -lt 2048 ] || export TMPDIR=/dev/shm
. "$SRC/tests/lib.sh"
need_fuse; need python3 losetup "mkfs.${FS:-ext4}"
losetup -f >/dev/null 2>&1 || skip "needs loop devices"
[ -x "$BUILD/tests/fuse/recdisk" ] || make -s -C "$BUILD" tests/fuse/recdisk || skip "needs recdisk"
export T
rc=0
python3 "$SRC/tests/fuse/powercut.py" "${CUTS:-6}" "${GILD_SEED:-$(date +%s)}" || rc=$?
exit "$rc"
