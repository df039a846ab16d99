#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# No file past 800 lines, no function past 80 (plan before you exceed: split by what it does).
cd "$SRC" || exit 1
find src tests -name '*.[ch]' | sort | xargs awk '
  FNR == 1 { if (lines > 800) { print file ": " lines " lines"; bad = 1 } file = FILENAME; start = 0 }
  { lines = FNR }
  /^{/ { start = FNR }
  /^}/ { if (start && FNR - start > 80) { print FILENAME ":" start ": a function of " FNR - start " lines"; bad = 1 } start = 0 }
  END { if (lines > 800) { print file ": " lines " lines"; bad = 1 } exit bad }'
