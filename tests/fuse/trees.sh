#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What people do with trees: rsync, cp -a, git, an editor's replace, fio --verify.
. "$SRC/tests/lib.sh"
need_fuse; need rsync git fio
mkdir "$T/b" "$T/m"
echo here >"$T/b/seed"
"$GILD" format "$T/c" --size 96M >/dev/null
mount_gild -o card="$T/c" "$T/b" "$T/m"
M=$T/m B=$T/b

cp -a "$SRC/src" "$M/src"
diff -r "$SRC/src" "$M/src" || fail "cp -a in"
rsync -aH "$M/src/" "$M/rsynced/"
[ -z "$(rsync -aHin --delete "$M/src/" "$M/rsynced/")" ] || fail "rsync sees differences"
rsync -a --inplace --append-verify "$M/src/" "$T/out/"
diff -r "$B/src" "$T/out" || fail "rsync out"

cp -al "$M/src" "$M/links"
[ "$(stat -c %h "$M/links/flash.h")" = 2 ] || fail "hard links"
ln -s src/flash.h "$M/sym"; cmp "$M/sym" "$SRC/src/flash.h"
mkfifo "$M/fifo"; [ -p "$B/fifo" ] || fail "FIFO"

git init -q "$M/repo"
(cd "$M/repo" && cp -r "$M/src" . && git add . &&
  git -c user.name=t -c user.email=t@t commit -qm one && git repack -adq)
git clone -q "$M/repo" "$M/clone"
git -C "$M/clone" fsck --full 2>/dev/null || fail "git fsck"
[ -z "$(git -C "$M/clone" status --porcelain)" ] || fail "git status"

# an editor: write beside, fsync, rename over, while a reader has the old one open
printf old >"$M/text"
exec 9<"$M/text"
printf 'new text' >"$M/text~"; sync "$M/text~"; mv "$M/text~" "$M/text"
[ "$(cat <&9)" = old ] && [ "$(cat "$M/text")" = "new text" ] || fail "replace while open"
exec 9<&-
printf x >>"$M/text"; [ "$(cat "$B/text")" = "new textx" ] || fail "append"
: >"$M/text"; [ ! -s "$B/text" ] || fail "O_TRUNC"

fio --name=v --directory="$M" --rw=randrw --bs=512-64k --size=8M --nrfiles=4 --numjobs=2 \
  --verify=crc32c --verify_fatal=1 --do_verify=1 --ioengine=psync --fallocate=none \
  --randseed=11 --output="$T/fio" || { cat "$T/fio"; fail "fio --verify"; }
diff -r "$B/src" "$M/src" && diff -r "$B/clone" "$M/clone" || fail "mount and backing differ"
umount_gild "$T/m"
mount_gild -o card="$T/c" "$T/b" "$T/m"
diff -r --no-dereference --exclude=fifo "$B" "$M" || fail "mount and backing differ after the remount"
rm -rf "$M/src" "$M/repo" "$M/clone" "$M/rsynced" "$M/links"
[ ! -e "$B/src" ] || fail "rm -rf"
umount_gild "$T/m"
