#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Few descriptors. With ulimit -n 1024 many more files are known, and their number stays bounded
# through walks and forgetting; with hardly any left to the running daemon (EMFILE) nobody sees an
# error or a wrong byte; a second mount on the card is refused with the name of its holder.
# FILES (4000): how many are known.
. "$SRC/tests/lib.sh"
need_fuse; need python3 prlimit
files=${FILES:-4000}
mkdir "$T/b" "$T/m" "$T/b2" "$T/m2"
python3 - "$T/b" "$files" <<'P'
import os, sys
for i in range(int(sys.argv[2])):
    d = f"{sys.argv[1]}/{i // 50}"
    if i % 50 == 0: os.mkdir(d)
    with open(f"{d}/{i}", "w") as f: f.write(str(i))
P
"$GILD" format "$T/c" --size 64M >/dev/null
(ulimit -n 1024; mount_gild -o "card=$T/c,admit=always" "$T/b" "$T/m")
pid=$(daemon_pid "$T/m")
descriptors() { find "/proc/$pid/fd" -mindepth 1 | wc -l; }
walk() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 -n 1000 cat | sha256sum); }

want=$(walk "$T/b")
[ "$(walk "$T/m")" = "$want" ] || fail "wrong bytes with 1024 descriptors"
first=$(descriptors)
[ "$first" -le 1024 ] || fail "$first descriptors"
# Everything is forgotten while it is walked again.
for _ in 1 2; do
  walk "$T/m" >"$T/sum" & w=$!
  for _ in 1 2 3 4 5; do echo 2 >/proc/sys/vm/drop_caches; done
  wait $w || fail "an error while everything was forgotten"
  [ "$(cat "$T/sum")" = "$want" ] || fail "wrong bytes while everything was forgotten"
done
last=$(descriptors)
[ "$last" -le $((first + 64)) ] || fail "descriptors grow: $first, then $last"
echo "$files files known, $first descriptors, then $last"

# Sixteen more than it needs, a tenth of what it would keep. An open directory needs one of its own.
echo 3 >/proc/sys/vm/drop_caches
prlimit --pid "$pid" --nofile=$(($(descriptors) + 16)):1024
[ "$(walk "$T/m")" = "$want" ] || fail "wrong bytes without descriptors"
python3 - "$T/m" <<'P' || fail "an error without descriptors"
import os, sys
for i in range(300):
    p = f"{sys.argv[1]}/{i % 40}/new{i}"
    with open(p, "w") as f: f.write("x" * i)
    os.rename(p, p + ".moved")
    assert open(p + ".moved").read() == "x" * i
    if i % 2: os.unlink(p + ".moved")
    os.listdir(os.path.dirname(p))
P
prlimit --pid "$pid" --nofile=1024:1024
diff -r "$T/b" "$T/m" >"$T/diff" || fail "mount and backing differ: $(head -n 3 "$T/diff")"

refused 1 "$GILDFS" -o "card=$T/c,allow-empty" "$T/b2" "$T/m2"
grep -q "$pid" "$T/err" && grep -q "$T/m" "$T/err" || fail "the holder is not named: $(cat "$T/err")"
umount_gild "$T/m"
