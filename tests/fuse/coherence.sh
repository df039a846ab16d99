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

# Replaced behind the mount while its name is believed: ESTALE once at most, not until the ttl is over.
mkdir "$T/b2" "$T/m2"
echo old >"$T/b2/f"
"$GILD" format "$T/c2" --size 64M >/dev/null
mount_gild -o "card=$T/c2,ttl=1h" "$T/b2" "$T/m2"
stat "$T/m2/f" >/dev/null
echo new >"$T/b2/n"
mv "$T/b2/n" "$T/b2/f"
cat "$T/m2/f" 2>/dev/null || true
tries=0
until [ "$(cat "$T/m2/f" 2>/dev/null)" = new ]; do
  tries=$((tries + 1))
  [ $tries -lt 1000 ] || fail "a replaced file cannot be read"
done
