#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The backing in trouble: unmounted lazily, mounted over, read-only, replaced, failing with each kind
# of error, hanging, gone and back. Never an empty tree, nothing written beneath, no byte that the
# mode does not allow; what the backing can do again, the mount can.
. "$SRC/tests/lib.sh"
need_fuse; need python3 mkfs.ext4
"$GILD" format "$T/c" --size 64M >/dev/null
python3 "$SRC/tests/fuse/backing-trouble.py" "$T" "$BUILD/tests/fuse/faultfs" || fail "see above"
