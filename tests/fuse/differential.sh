#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Random operations through the mount and on a shadow directory, with changes behind the mount,
# unmounts and kill -9 in between (differential.py). ROUNDS, SECONDS_EACH, GILD_SEED, OPTIONS change
# it; the seed is printed.
. "$SRC/tests/lib.sh"
need_fuse; need python3
seed=${GILD_SEED:-$(date +%s)}
echo "seed $seed"
"$GILD" format "$T/c" --size "${SIZE:-64M}" >/dev/null
python3 "$SRC/tests/fuse/differential.py" "$T" "${ROUNDS:-5}" "${SECONDS_EACH:-3}" "$seed" "${TTL_MS:-100}" \
  "card=$T/c,ttl=${TTL_MS:-100}ms${OPTIONS:+,$OPTIONS}" || fail "seed $seed"
