#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Changes behind the mount, every kind in every coherence mode, while mounted and not: nothing older
# than the mode promises is seen, by any way to look (coherence.py). GILD_LONG=1: every way first.
. "$SRC/tests/lib.sh"
need_fuse; need python3
mkdir "$T/b" "$T/m"
seed=${GILD_SEED:-$(date +%s)}
echo "seed $seed"
"$GILD" format "$T/c" --size 128M >/dev/null
python3 "$SRC/tests/fuse/coherence.py" "$T" "$seed" || fail "seed $seed"
