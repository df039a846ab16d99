#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A small card over a larger tree: compare, copy, unmount, again. GC and eviction run; the status
# says what happened.
. "$SRC/tests/lib.sh"
need_fuse; need python3
mkdir "$T/b" "$T/m"
# About 150 MB that does not compress and 40 MB that does, against 64 MB of flash.
python3 - "$T/b" <<'P'
import os, random, sys
random.seed(7)
top = sys.argv[1]
for d in range(40):
    os.mkdir(f"{top}/d{d}")
    for f in range(20):
        n = random.choice((900, 9000, 70000, 300001, 700000))
        with open(f"{top}/d{d}/f{f}", "wb") as o:
            o.write(random.randbytes(n) if f % 4 else b"<p>gold leaf %d</p>\n" % d * (n // 20))
P
"$GILD" format "$T/c" --size 64M >/dev/null
mount_gild -o card="$T/c" "$T/b" "$T/m"
diff -r "$T/b" "$T/m" || fail "first comparison"
# (cp -a B/. M/copy would copy copy into itself for ever: cp tells it is its own source by st_dev,
# and a mount has one of its own.)
(cd "$T/b" && set -- * && mkdir "$T/m/copy" && cp -a "$@" "$T/m/copy")
diff -r "$T/b/d3" "$T/m/copy/d3" || fail "the copy differs"
umount_gild "$T/m"
mount_gild -o card="$T/c" "$T/b" "$T/m"
diff -r "$T/b" "$T/m" || fail "comparison after the remount"
diff -r "$T/m/d3" "$T/b/copy/d3" || fail "the copy differs after the remount"
cat "$T"/m/d5/* "$T"/m/d5/* >/dev/null

"$GILD" status "$T/m"; "$GILD" stats "$T/m" | grep -E "fill|evict"
"$GILD" status --json "$T/m" >"$T/status"
python3 - "$T/status" <<'P'
import json, sys
s = json.load(open(sys.argv[1]))
for k in ("hits", "misses", "partial", "bypass", "total", "hit_ratio"): s["requests"][k]
for k in ("hit", "miss"):
    for p in ("p50", "p90", "p99", "max"): s["latency_ns"][k][p]
f = s["flash"]
assert f["host_write_bytes"] > 64 << 20, "the card was hardly written"
assert f["flash_write_bytes"] > 0 and f["write_amplification"] > 0
assert f["compression_ratio"] > 1, f["compression_ratio"]
assert f["live_bytes"] < f["raw_bytes"]
r = s["requests"]
assert r["hits"] + r["misses"] + r["partial"] + r["bypass"] == r["total"] and r["total"] > 0
assert s["bytes"]["hit"] + s["bytes"]["backing"] == s["bytes"]["total"]
assert f["gc_dropped_bytes"] + f["gc_copied_bytes"] > 0, "GC did not run"
print("hits %d of %d, WA %.2f" % (r["hits"], r["total"], f["write_amplification"]))
P
"$GILD" status "$T/m"
"$GILD" stats "$T/m" | grep -q hits || fail "gild stats"
"$GILD" stats --prometheus "$T/m" | grep -q '^gildfs_read_hits [0-9]' || fail "Prometheus form"
"$GILD" stats --json "$T/m" | python3 -c 'import json,sys; json.load(sys.stdin)["read"]["hits"]'
"$GILD" flush "$T/m"
"$GILD" status | grep -q "$T/m over $T/b" || fail "list of mounts"
umount_gild "$T/m"
