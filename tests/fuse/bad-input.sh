#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Bad cards and places, on real mounts: one sentence, exit 1 or 2, nothing changed on disk.
. "$SRC/tests/lib.sh"
need_fuse
mkdir "$T/b" "$T/m" "$T/m2"
echo x >"$T/b/f"
"$GILD" format "$T/c" --size 64M >/dev/null
sums() { (cd "$1" && find . -type f ! -name lock -print0 | sort -z | xargs -0 sha256sum); }
unchanged() { # NAME COMMAND...: refused with 1, and the card as before
  local name=$1; shift
  sums "$T/bad" >"$T/before"
  refused 1 "$@"
  sums "$T/bad" | cmp -s - "$T/before" || fail "$name: the refused card was changed"
  ! grep -q " $T/m " /proc/self/mounts || fail "$name: mounted all the same"
  cat "$T/err"
}
try() { unchanged "$1" mount_gild -o card="$T/bad" "$T/b" "$T/m"; }
fresh() { rm -rf "$T/bad"; cp -a --sparse=always "$T/c" "$T/bad"; }

mount_gild -o card="$T/c" "$T/b" "$T/m"
refused 1 mount_gild -o card="$T/c" "$T/b" "$T/m2"
grep -q "$T/m" "$T/err" || fail "the holder is not named: $(cat "$T/err")"
refused 1 "$GILD" format "$T/c" --size 64M --force
refused 1 "$GILD" recover "$T/c"
"$GILD" format "$T/c2" --size 64M >/dev/null
refused 1 mount_gild -o card="$T/c2" "$T/b" "$T/m"
"$GILD" status "$T/m" >/dev/null || fail "a refused second mount took the socket of the first"
umount_gild "$T/m"
rm -rf "$T/c2"

mkdir "$T/bad"; echo hello >"$T/bad/something"; try "formatted for something else"
medium=$(cd "$T/c" && find . -type f -size +1M ! -name '*.mdb' | head -n 1)
fresh; truncate -s 1M "$T/bad/$medium"; try "truncated"
fresh; truncate -s 0 "$T/bad/$medium"; try "empty medium"
fresh; rm "$T/bad/$medium"; try "medium missing"
fresh; head -c 65536 /dev/urandom | dd of="$T/bad/$medium" conv=notrunc status=none; try "garbage in the medium"
fresh; sed -i 's/"version": *1/"version": 99/' "$T/bad/card.json"; try "newer version"
grep -qi 'version' "$T/err" || fail "newer version not named"
fresh; echo '{"version": ' >"$T/bad/card.json"; try "garbage card.json"
for f in $(cd "$T/c" && find . -name data.mdb); do
  fresh; head -c 8192 /dev/urandom | dd of="$T/bad/$f" conv=notrunc status=none; try "garbage in $f"
  fresh; truncate -s 5000 "$T/bad/$f"; try "truncated $f"
done

mkdir "$T/full"
mount -t tmpfs -o size=20M none "$T/full"
refused 1 "$GILD" format "$T/full/c" --size 64M
[ -z "$(ls "$T/full")" ] || fail "format on a full filesystem left something behind"
umount "$T/full"

chmod 000 "$T/b"
if command -v setpriv >/dev/null; then
  chmod 711 "$T"
  refused 1 setpriv --reuid=65534 --regid=65534 --clear-groups "$GILDFS" "$T/b" "$T/m2"
fi
chmod 755 "$T/b"
