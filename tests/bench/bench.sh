#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# make bench: the ratios that gildfs promises, both sides measured in one run, alternating, medians.
#
# usage: bench.sh [ROUNDS] [ROW...]     rows: warm hits rclone html ram meta list pages; default: all
#   warm    page-cache-warm files, mount against the native directory, 1/4/16 clients
#   hits    flash hits with the page cache dropped, against the same files native on the same disk
#   rclone  the same load, mount against rclone's VFS cache (where rclone is installed)
#   html    bytes on flash for real HTML, of its size
#   ram     bytes of the daemon's memory for each known file
#   meta    creating, renaming, removing files of 8 KiB, against bindfs (where it is installed)
#   list    ls -f and ls -l of 50,000 entries, against bindfs
#   pages   pages/s of the web load on a modelled hdd-6 array, warm against the array alone
#
# Needs root and /dev/fuse. The files: 20,000 of about 29 KB, cut from real HTML (and, for the part a
# web tree has in images, incompressible): build/content where it exists, else fetched.
. "$SRC/tests/lib.sh"
need_fuse; need python3
rounds=3
case ${1:-} in [0-9]*) rounds=$1; shift ;; esac
rows=${*:-warm hits rclone html ram meta list pages}
filebench=$BUILD/tests/bench/filebench
content=${CONTENT:-$BUILD/content}
case " $rows " in
  *' warm '* | *' hits '* | *' rclone '* | *' html '* | *' pages '*)
    [ -f "$content/list" ] || "$SRC/contrib/web-content" "$content" "${CONTENT_SIZE:-full}" ;;
esac

drop() { sync; echo 3 >/proc/sys/vm/drop_caches; }
median() { sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
rate() { "$filebench" "$1" -t "$2" -s "$3" | awk '{print $1}'; }
# row NAME A B TARGET: medians of the two files of numbers and of their pairwise ratios
row() {
  printf '%-28s %12.0f %12.0f   ratio %7.3f   target %s\n' "$1" "$(median <"$2")" "$(median <"$3")" \
    "$(paste "$2" "$3" | awk '$2 > 0 {print $1 / $2}' | median)" "$4"
}

make_files() {
  python3 - "$content" "$T/b" <<'P'
import os, random, sys
content, top = sys.argv[1:]
r = random.Random(1)
html = []
for d, _, names in sorted(os.walk(content)):
    html += [os.path.join(d, n) for n in sorted(names) if n.endswith((".html", ".htm"))]
text = b"".join(open(p, "rb").read() for p in html[:8000])
for i in range(20000):
    d = f"{top}/{i // 200}"
    if i % 200 == 0: os.makedirs(d)
    n = r.randrange(18000, 40000)
    o = r.randrange(max(1, len(text) - n))
    open(f"{d}/{i}", "wb").write(text[o:o + n] if i % 4 else r.randbytes(n))
P
  sync
}
start_mount() { mkdir -p "$T/m"; "$GILDFS" -o "card=$T/c,admit=always" "$T/b" "$T/m"; }
# Reads everything until all of it is on flash, then mounts anew.
fill_flash() {
  local before=-1 done=0
  "$GILD" format "$T/c" --size 1G >/dev/null
  start_mount
  while [ "$done" != "$before" ]; do
    before=$done
    drop; find "$T/m" -type f -print0 | xargs -0 -n 500 cat >/dev/null
    "$GILD" flush "$T/m"
    done=$("$GILD" stats "$T/m" | awk '$1 == "fill" && $2 == "done" {print $3}')
  done
  umount "$T/m"
  start_mount
}

# The third of three passes: the kernel asks for names again that are older than the ttl of 1 s, and
# the first passes take longer than that.
bench_warm() {
  local t r
  for t in 1 4 16; do
    : >"$T/a"; : >"$T/n"
    for r in $(seq "$rounds"); do
      for _ in 1 2; do rate "$T/b" $t "$r" >/dev/null; done; rate "$T/b" $t "$r" >>"$T/n"
      for _ in 1 2; do rate "$T/m" $t "$r" >/dev/null; done; rate "$T/m" $t "$r" >>"$T/a"
    done
    row "warm pages, $t clients" "$T/a" "$T/n" ">= 0.7"
  done
}
bench_hits() {
  local t r target
  for t in 1 4 16; do
    case $t in 1) target=0.55 ;; 4) target=0.5 ;; 16) target=0.35 ;; esac
    : >"$T/a"; : >"$T/n"
    for r in $(seq "$rounds"); do
      drop; rate "$T/b" $t "$r" >>"$T/n"
      drop; rate "$T/m" $t "$r" >>"$T/a"
    done
    row "flash hits, $t clients" "$T/a" "$T/n" ">= $target"
  done
}
bench_rclone() {
  local t r
  command -v rclone >/dev/null || { echo "rclone is not installed: row left out"; return; }
  mkdir -p "$T/r" "$T/rcache"
  rclone mount "$T/b" "$T/r" --daemon --vfs-cache-mode full --cache-dir "$T/rcache" \
    --vfs-cache-max-size 2G --config "$T/none" >/dev/null 2>&1
  rate "$T/r" 4 0 >/dev/null
  for t in 1 4 16; do
    : >"$T/a"; : >"$T/n"
    for r in $(seq "$rounds"); do
      drop; rate "$T/r" $t "$r" >>"$T/n"
      drop; rate "$T/m" $t "$r" >>"$T/a"
    done
    row "against rclone, $t clients" "$T/a" "$T/n" ">= 5"
  done
  umount "$T/r"
}
bench_html() {
  mkdir -p "$T/hm"
  "$GILD" format "$T/hc" --size 2G >/dev/null
  "$GILDFS" -o "card=$T/hc,admit=always,seq-cutoff=0" "$content" "$T/hm"
  for r in 1 2 3; do find "$T/hm" -type f \( -name '*.html' -o -name '*.htm' \) -print0 | xargs -0 -n 200 cat >/dev/null; drop; done
  "$GILD" flush "$T/hm"
  "$GILD" status --json "$T/hm" | python3 -c '
import json, sys
f = json.load(sys.stdin)["flash"]
print("HTML on flash                %9.1f MB of %7.1f MB   ratio %7.3f   target <= 0.30"
      % (f["stored_bytes"] / 1e6, f["host_write_bytes"] / 1e6, f["stored_bytes"] / f["host_write_bytes"]))'
  umount "$T/hm"
}
bench_ram() {
  local pid a b n
  mkdir -p "$T/many" "$T/mm"
  python3 -c '
import os, sys
for i in range(200000):
    d = "%s/%d" % (sys.argv[1], i // 1000)
    if i % 1000 == 0: os.mkdir(d)
    os.close(os.open("%s/page-%06d.html" % (d, i), os.O_CREAT | os.O_WRONLY))' "$T/many"
  "$GILD" format "$T/mc" --size 64M >/dev/null
  "$GILDFS" -o "card=$T/mc" "$T/many" "$T/mm"
  pid=$(daemon_pid "$T/mm")
  a=$(awk '/VmRSS/ {print $2}' "/proc/$pid/status")
  # Whoever drops the kernel's caches meanwhile makes it forget: then once more.
  for _ in 1 2 3; do
    find "$T/mm" -type f -size +1M
    n=$("$GILD" stats "$T/mm" | awk '$1 == "file" && $2 == "known" {print $3}')
    [ "$n" -lt 190000 ] || break
  done
  b=$(awk '/VmRSS/ {print $2}' "/proc/$pid/status")
  printf 'RAM a known file              %9d bytes (%d files; fixed %d MiB)   target <= 400\n' \
    $(((b - a) * 1024 / n)) $n $((a / 1024))
  umount "$T/mm"
}
# Two directories of one disk, one behind bindfs, one behind gildfs.
bench_bindfs() { # meta|list TARGET
  local r op dir=$T/$1
  command -v bindfs >/dev/null || { echo "bindfs is not installed: row left out"; return; }
  mkdir -p "$dir/a" "$dir/n" "$dir/am" "$dir/nm"
  if [ "$1" = list ]; then
    for r in a n; do mkdir "$dir/$r/d"; (cd "$dir/$r/d" && seq -f 'entry%06.0f' 50000 | xargs touch); done
  fi
  "$GILD" format "$dir/c" --size 256M >/dev/null
  "$GILDFS" -o "card=$dir/c,allow-empty" "$dir/a" "$dir/am"
  bindfs "$dir/n" "$dir/nm"
  for r in $(seq "$rounds"); do
    for side in n a; do
      python3 "$SRC/tests/bench/meta.py" "$dir/${side}m/d" "$1" >"$dir/out"
      while read -r op value; do echo "$value" >>"$dir/$side.$op"; done <"$dir/out"
    done
  done
  for op in "$dir"/a.*; do
    op=${op##*/a.}
    row "$1: $op" "$dir/a.$op" "$dir/n.$op" "$2"
  done
  umount "$dir/am"
  umount "$dir/nm"
}
bench_meta() { bench_bindfs meta ">= 0.6"; }
bench_list() { bench_bindfs list ">= 1"; }
bench_pages() {
  (cd "$SRC" && ./quickstart --content "$content" --seconds "${PAGE_SECONDS:-45}" >"$T/quickstart.log" 2>&1) || { tail -n 20 "$T/quickstart.log"; return 1; }
  python3 - "$SRC"/build/results/1-slow.json "$SRC"/build/results/3-warm.json <<'P'
import json, sys
a, b = (json.load(open(p))["totals"]["measured"] for p in sys.argv[1:])
rate = lambda t: t["pages"] / t["seconds"]
print("pages/s, hdd-6, warm         %12.1f %12.1f   ratio %7.1f   target >= 10" % (rate(b), rate(a), rate(b) / rate(a)))
P
}

case "$rows" in *warm* | *hits* | *rclone*) make_files; fill_flash ;; esac
printf '%-28s %12s %12s\n' "medians of $rounds rounds" "gildfs" "other side"
for r in $rows; do bench_$r; done
