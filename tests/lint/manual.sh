#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Help and manual agree, in both directions: every option of --help stands in the page, every option
# the page lists exists; every subcommand has a page.
bad=0
# Help lists options indented, "  -f, --force". Pages tag them after .TP (man) or .It (mdoc).
options_of_help() { "$@" --help | sed -nE 's/^  +(-[a-zA-Z], )?(--[a-z][a-z_-]*).*/\2/p' | sort -u; }
options_of_page() {
  sed 's/Fl -/--/g; s/\\-/-/g; s/\\f[BIRP]//g' "$1" |
    awk '/^\.It / || tag {print} {tag = /^\.TP/}' | grep -oE -- '--[a-z][a-z_-]*' | sort -u
}
compare() { # PAGE COMMAND...
  page=$SRC/man/$1; shift
  if [ ! -f "$page" ]; then echo "no manual page $page for: $*"; bad=1; return; fi
  help=$(options_of_help "$@") || true
  listed=$(options_of_page "$page") || true
  for o in $help; do
    [ "$o" = --help ] || echo "$listed" | grep -qx -- "$o" || { echo "$page lacks $o of $*"; bad=1; }
  done
  for o in $listed; do
    echo "$help" | grep -qx -- "$o" || [ "$o" = --help ] || { echo "$page has $o, which $* does not know"; bad=1; }
  done
}
compare gildfs.1 "$GILDFS"
for c in $("$GILD" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
  compare "gild-$c.1" "$GILD" "$c"
done
if command -v mandoc >/dev/null; then
  mandoc -T lint -W warning "$SRC"/man/*.1 | grep -vE 'UNSUPP|STYLE|cross reference to self' && bad=1
fi
exit $bad
