#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Wrong use of the command line: one sentence, exit 2 (or 1), nothing changed. No root needed.
. "$SRC/tests/lib.sh"
mkdir "$T/b" "$T/m" "$T/empty"
echo x >"$T/b/f"

refused 2 "$GILDFS"
refused 2 "$GILDFS" "$T/b"
refused 2 "$GILDFS" "" "$T/m"
refused 2 "$GILDFS" "$T/b" "$T/m" extra
refused 2 "$GILDFS" -o nosuchoption "$T/b" "$T/m"
refused 2 "$GILDFS" -o mode=sideways "$T/b" "$T/m"
refused 2 "$GILDFS" -o ttl=soon "$T/b" "$T/m"
refused 2 "$GILDFS" -o card="$T/c" -o card-size=1G "$T/b" "$T/m"
refused 2 "$GILDFS" -o raid=1,card="$T/c" "$T/b" "$T/m"
refused 2 "$GILDFS" --nosuch "$T/b" "$T/m"
refused 2 "$GILDFS" "$T/b" "$T/m" -o
refused 1 "$GILDFS" "$T/none" "$T/m"
refused 1 "$GILDFS" -o rw,strictatime,lazytime,nodiratime,x-systemd.automount "$T/none" "$T/m"
refused 1 "$GILDFS" "$T/b/f" "$T/m"
refused 1 "$GILDFS" "$T/b" "$T/none"
refused 1 "$GILDFS" "$T/empty" "$T/m"
mkdir "$T/b/inside"
refused 2 "$GILDFS" "$T/b" "$T/b/inside"
refused 2 "$GILDFS" "$T/b/inside" "$T/b"
refused 2 "$GILDFS" "$T/b" "$T/b"
refused 2 "$GILDFS" -o card="$T/b/card" "$T/b" "$T/m"
refused 2 "$GILDFS" -o card="$T/m/card" "$T/b" "$T/m"
refused 1 "$GILDFS" -o card="$T/nocard" "$T/b" "$T/m"
[ ! -e "$T/nocard" ] && [ ! -e "$T/b/card" ] || fail "a refused mount left something behind"

refused 2 "$GILD" nosuch
refused 2 "$GILD" format "$T/c"
refused 2 "$GILD" format --size 64M
refused 2 "$GILD" format "$T/c" --size lots
refused 2 "$GILD" format "$T/c" --size 64M --op most
refused 2 "$GILD" format "$T/c" --size 64M --controllers 99
refused 1 "$GILD" format "$T/c" --size 1K
refused 1 "$GILD" format "$T/c" --size 900000T
[ ! -e "$T/c" ] || fail "a refused format left $T/c behind"
refused 1 "$GILD" format "$T/b" --size 64M
[ "$(cat "$T/b/f")" = x ] || fail "format changed a directory that was not a card"
refused 2 "$GILD" flush
refused 1 "$GILD" flush "$T/m"
refused 1 "$GILD" status "$T/m"
refused 2 "$GILD" stats --json --prometheus "$T/m"
refused 1 "$GILD" recover "$T/nocard"

"$GILD" format "$T/c" --size 64M >/dev/null
refused 1 "$GILD" format "$T/c" --size 64M
"$GILD" format "$T/c" --size 64M --force >/dev/null
"$GILD" status "$T/c" | grep -q '4 controllers' || fail "status of a card"
"$GILD" status --json "$T/c" | grep -q '"controllers": 4' || fail "JSON status of a card"
for c in format status stats flush recover replay report slowdisk; do
  "$GILD" $c --help | grep -q "^Usage: gild $c" || fail "gild $c --help"
done
"$GILDFS" --help | grep -q '^Usage: gildfs' || fail "gildfs --help"
"$GILDFS" --version | grep -q '^gildfs [0-9]' || fail "gildfs --version"
