#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# kill -9 of a daemon whose kernel thread is dropping pages for it and waits for a READ that nobody
# will answer: whoever uses the mount gets an error soon, the daemon's process goes away, a new mount
# can be made. First that very moment, made to last by a backing that hangs; then a storm of changes
# behind the mount with kills at random moments (ROUNDS, GILD_SEED).
. "$SRC/tests/lib.sh"
need_fuse; need python3
mkdir "$T/b" "$T/f" "$T/m"
: >"$T/control"
"$GILD" format "$T/c" --size 64M >/dev/null
ulimit -c 0
seed=${GILD_SEED:-$(date +%s)}
echo "seed $seed"
python3 "$SRC/tests/fuse/killed.py" "$T" "$BUILD/tests/fuse/faultfs" "${ROUNDS:-12}" "$seed" ||
  fail "seed $seed"
