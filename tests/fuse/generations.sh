#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Many readers of files that are written and replaced behind the mount all the time, with listings and
# copies beside them: no block goes back, none is older than promised, nobody gets stuck
# (generations.py). Fifty readers of one missing file make one read. MODES, SECONDS_EACH,
# GILD_SEED.
. "$SRC/tests/lib.sh"
need_fuse; need python3
mkdir "$T/b" "$T/m"
seed=${GILD_SEED:-$(date +%s)}
echo "seed $seed"
"$GILD" format "$T/c" --size 128M >/dev/null
python3 "$SRC/tests/fuse/generations.py" "$T" "${SECONDS_EACH:-4}" "$seed" || fail "seed $seed"
