#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# gild slowdisk used wrongly: one sentence, exit 2 (or 1), nothing left behind. No root needed.
. "$SRC/tests/lib.sh"
mkdir "$T/m" "$T/full" "$T/src"
echo x >"$T/full/f"
mkfifo "$T/fifo"
truncate -s 1000 "$T/tiny"
truncate -s 4M "$T/img"

refused 2 "$GILD" slowdisk
refused 2 "$GILD" slowdisk "$T/img"
refused 2 "$GILD" slowdisk "$T/img" "$T/m" extra
refused 2 "$GILD" slowdisk "$T/img" "$T/m" --model hdd-7
refused 2 "$GILD" slowdisk "$T/img" "$T/m" --stroke 0
refused 2 "$GILD" slowdisk "$T/img" "$T/m" --stroke 101
refused 2 "$GILD" slowdisk "$T/img" "$T/m" --delays perhaps
refused 2 "$GILD" slowdisk "$T/new" "$T/m" --size 1K
refused 2 "$GILD" slowdisk "$T/new" "$T/m" --size 4194305
refused 2 "$GILD" slowdisk --files "$T/src" "$T/m" --size 4M
refused 1 "$GILD" slowdisk "$T/new" "$T/m"
refused 1 "$GILD" slowdisk "$T/new" "$T/full" --size 4M
refused 1 "$GILD" slowdisk "$T/new" "$T/none" --size 4M
refused 1 "$GILD" slowdisk "$T/new" "$T/img" --size 4M
refused 1 "$GILD" slowdisk "$T/img" "$T/m" --size 8M
refused 1 "$GILD" slowdisk "$T/tiny" "$T/m"
refused 1 "$GILD" slowdisk "$T/fifo" "$T/m"
refused 1 "$GILD" slowdisk "$T/src" "$T/m"
refused 1 "$GILD" slowdisk /dev/null "$T/m"
refused 1 "$GILD" slowdisk --files "$T/none" "$T/m"
refused 1 "$GILD" slowdisk --files "$T/img" "$T/m"
refused 1 "$GILD" slowdisk --files "$T" "$T/m"
refused 1 "$GILD" slowdisk --files "$T/m" "$T/m"
[ ! -e "$T/new" ] || fail "a refused slowdisk left its image behind"
[ "$(cat "$T/full/f")" = x ] || fail "a refused slowdisk changed its mount point"
