#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The layer order of ARCHITECTURE, held against the includes. A directory may include its own
# headers and those listed; system headers that belong to one directory stay there.
cd "$SRC/src" || exit 1
bad=0
allowed() {
  case $1 in
    base) echo base ;;
    stats) echo stats base ;;
    meta) echo meta stats base ;;
    media) echo media stats base ;;
    ftl) echo ftl media meta stats base ;;
    card) echo card ftl media meta stats base ;;
    array) echo array stats base ;;
    backing) echo backing base ;;
    cache) echo cache backing meta stats base ;;
    fs) echo fs cache backing stats base ;;
    tools) echo tools fs cache array card ftl media meta backing stats base ;;
  esac
}
for dir in base stats meta media ftl card array backing cache fs tools; do
  for inc in $(sed -n 's/^#include "\([a-z]*\)\/.*/\1/p' "$dir"/*.[ch] | sort -u); do
    case " $(allowed $dir) " in
      *" $inc "*) ;;
      *) echo "src/$dir includes src/$inc: against the layer order"; bad=1 ;;
    esac
  done
  if grep -l 'include "flash.h"' "$dir"/*.[ch] >/dev/null 2>&1; then
    case $dir in ftl | card | array | cache | tools) ;; *)
      echo "src/$dir includes flash.h"; bad=1 ;; esac
  fi
done
only_in() { # PATTERN DIRECTORY...
  pattern=$1; shift
  for f in $(grep -rlE "#include <$pattern" . --include='*.[ch]'); do
    dir=${f#./}; dir=${dir%%/*}
    case " $* " in *" $dir "*) ;; *) echo "src/${f#./} includes <$pattern>, which belongs to $*"; bad=1 ;; esac
  done
}
only_in lmdb.h meta
only_in fuse fs tools
only_in zstd.h ftl
only_in 'isa-l|isa-l/|crc.h' base ftl
exit $bad
