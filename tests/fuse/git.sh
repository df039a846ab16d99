#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# git by several processes on the mount: clones, commits, pushes, repacks and gc of one repository,
# and in turns the same behind the mount. All commits are there and fsck finds nothing, on the mount,
# in the backing and after a remount. ROUNDS=n: longer.
. "$SRC/tests/lib.sh"
need_fuse; need git python3
export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
export GIT_CONFIG_GLOBAL="$T/config" GIT_CONFIG_NOSYSTEM=1
git config --global gc.auto 0
git config --global safe.directory '*'
git config --global init.defaultBranch main
git config --global core.fsync all
mkdir "$T/b" "$T/m"
"$GILD" format "$T/c" --size 96M >/dev/null
mount_gild -o card="$T/c",ttl=200ms,admit=always,allow-empty "$T/b" "$T/m"

git init -q "$T/m/first"
cp -r "$SRC/src/cache" "$SRC/src/ftl" "$T/m/first"
git -C "$T/m/first" add .
git -C "$T/m/first" commit -qm first
git clone -q --bare "$T/m/first" "$T/m/up.git"

commits() { # TREE NAME N: commits on a branch of its own, each pushed; its id is noted then
  for i in $(seq "$3"); do
    date +%N >>"$1/$2"; echo "$i" >>"$1/cache/cache.c"
    git -C "$1" add . && git -C "$1" commit -qm "$2 $i" &&
      git -C "$1" push -q origin "HEAD:refs/heads/$2" || return 1
    git -C "$1" rev-parse HEAD >>"$T/pushed.$2"
  done
}
worker() { # TOP NAME N
  # not by hard links: those git takes from a list of objects that repack removes meanwhile
  git clone -q --no-local "$1/up.git" "$1/$2" && commits "$1/$2" "$2" "$3" &&
    git -C "$1/$2" repack -Adq && git -C "$1/$2" fetch -q origin
}
turn() { # TOP NAME: three workers, and one who repacks what they push to
  pids= bad=
  for w in 1 2 3; do worker "$1" "$2-$w" "${COMMITS:-3}" & pids="$pids $!"; done
  for i in 1 2; do git -C "$1/up.git" repack -Adq || bad="$bad repack"; done
  git -C "$1/up.git" gc -q || bad="$bad gc"
  for p in $pids; do wait "$p" || bad="$bad worker"; done
  [ -z "$bad" ] || fail "$2:$bad"
}
audit() { # TOP
  for r in "$1"/*; do
    git -C "$r" fsck --full --strict >"$T/fsck" 2>&1 || fail "fsck $r: $(cat "$T/fsck")"
    ! grep -Ev '^(dangling|notice|Checking)' "$T/fsck" || fail "fsck $r"
  done
  for p in "$T"/pushed.*; do
    [ "$(git -C "$1/up.git" rev-parse "refs/heads/${p##*.}")" = "$(tail -n 1 "$p")" ] ||
      fail "${p##*.}: not what was pushed"
    while read -r id; do
      git -C "$1/up.git" merge-base --is-ancestor "$id" "refs/heads/${p##*.}" || fail "$id is lost"
    done <"$p"
  done
}

for round in $(seq "${ROUNDS:-1}"); do
  turn "$T/m" "mount$round"
  turn "$T/b" "behind$round"
  python3 -c 'import time; time.sleep(.25)' # the ttl
  audit "$T/m"
  turn "$T/m" "again$round"
done
audit "$T/m"
for r in "$T"/m/*-*; do [ -z "$(git -C "$r" status --porcelain)" ] || fail "status of $r"; done
end_gild "$T/m"
audit "$T/b"
mount_gild -o card="$T/c",ttl=200ms,admit=always,allow-empty "$T/b" "$T/m"
audit "$T/m"
diff -r --no-dereference "$T/b" "$T/m" || fail "mount and backing differ"
end_gild "$T/m"
