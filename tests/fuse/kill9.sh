#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The daemon is killed (-9) at random moments: under our own writers, fio, rsync, git and sqlite,
# while it mounts and recovers, flushes, unmounts; gild format and gild recover are killed, too.
# After each: the mount is the backing, byte for byte; what was acknowledged is there. See kill9.py.
# ROUNDS (15; make check-crash: 200), GILD_SEED (printed).
# In a mount namespace of its own: a mount that lives on in somebody else's copy keeps its daemon.
[ "${GILD_TEST_NS:-}" ] || ! unshare -m --propagation slave true 2>/dev/null || GILD_TEST_NS=1 exec unshare -m --propagation slave "$0" "$@"
. "$SRC/tests/lib.sh"
need_fuse; need python3
export T
exec_rc=0
python3 "$SRC/tests/fuse/kill9.py" "${ROUNDS:-15}" "${GILD_SEED:-$(date +%s)}" || exec_rc=$?
exit $exec_rc
