#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Do the crash tests test anything? Breaks one rule after the other in a copy of the sources and
# expects the power-cut tests to fail. Run by hand from a build directory: tests/stack/mutants.sh
# [NAME...]; MUTANTS=DIR keeps the copy. Each line: rule broken, test, file, perl substitution over
# the whole file.
set -eu
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
D=${MUTANTS:-$(mktemp -d "${TMPDIR:-/var/tmp}/mutants.XXXXXX")}
[ "${MUTANTS:-}" ] || trap 'rm -rf "$D"' EXIT
mutants() { cat <<'M'
open-record-skipped test_stack src/cache/cache_modify.c s/err = record \? cfile_put\(c, n, number, &v, true\) : cfile_delete\(c, n\);/err = 0;/
open-record-not-flushed test_stack src/cache/cache_modify.c s/err = cache_commit\(c\);/err = 0;/
publish-without-sync test_stack src/cache/cache_publish.c s/e = backing_fsync\(c->backing, p->o->n->bnode, false\);/e = 0;/
publish-without-flush test_stack src/cache/cache_publish.c s/(cpublish_check\(c, &r->one\[i\]\);\n\t\tif \(!err\)\n\t\t\terr = )cache_commit\(c\)/${1}0/
open-is-trusted test_cache_crash src/cache/cache_file.c s/rec->state != CFILE_PUBLISHED \|\| //
ctime-ignored test_stack src/cache/cache_node.c s/ && a->csec == b->csec && a->cnsec == b->cnsec;/;/
young-is-published test_stack src/cache/cache_fill.c s/bool young = /bool young = 0 \&\& /
numbers-not-flushed test_stack src/cache/cache_file.c s/(cfile_reserve_locked.*?\tif \(!err\)\n\t\terr = )c->flash->ops->flush\(c->flash\)/${1}0/s
partial-sectors-kept test_stack src/cache/cache_write.c s/cmodify_drop\(m, lo, first - lo\);//
trim-not-logged test_stack src/cache/cache_modify.c s/err = f->ops->trim\(f, m->number, first, count, cache_stamp\(m->c\)\);/err = 0;/
legs-not-made-equal test_stack src/card/card.c s/return r < 0 \? r : card_ctl_reconcile\(card\);/return r;/
gap-in-the-log-ignored test_ftl_crash src/ftl/ftl_replay.c s/while \(n < out->n && out->v\[n\]\.x\.lsn < cut\)/while (n < out->n)/
cut-does-not-stay-cut test_ftl_crash src/ftl/ftl_replay.c s/ftl_scan_settle\(f, eb, durable, cut\);/ftl_scan_settle(f, eb, durable, UINT64_MAX);/
block-reused-before-checkpoint test_ftl_crash src/ftl/ftl_ckpt.c s/err = ckpt_flush\(f\);/err = ckpt_flush(f);\n\tif (!err)\n\t\terr = ftl_ckpt_erase(f);/; s/pending_ckpt > f->super\.checkpoint\)\n\t\t\tcontinue/pending_ckpt > f->super.checkpoint + 1)\n\t\t\tcontinue/
block-reused-in-checkpoint test_ftl_crash src/ftl/ftl_ckpt.c s/eb->state != EB_PENDING \|\| !eb->pending_ckpt \|\|\n\s*eb->pending_ckpt > f->super\.checkpoint/eb->state != EB_PENDING/
checkpoint-before-flush test_ftl_crash src/ftl/ftl_ckpt.c s/(err = )ckpt_flush\(f\);/${1}0;/
drop-forgets-the-older test_ftl_crash src/ftl/ftl_write.c s/e\.flags \|= FTL_X_OLDER;/;/
erased-header-not-flushed test_ftl_crash src/ftl/ftl_ckpt.c s/if \(n && !err\)\n\t\terr = ftl_media_flush\(f\);/;/
flush-does-not-wait test_ftl_crash_mt src/ftl/ftl_log.c s/while \(!f->failed && log_pending_below\(f, \*cover\)\)/while (0)/
M
}
copy() { rm -rf "$D/src" && mkdir -p "$D/src" "$D/build" && cp -r "$SRC/." "$D/src" && rm -rf "$D/src/.git"; }
run() { # the test with more cuts than make check
  GILD_CUTS=${CUTS:-500} GILD_CRASH_ROUNDS=${CUTS:-500} "./$1" >"$D/log" 2>&1
}
copy
cd "$D/build"
[ -e Makefile ] || ../src/configure -q --enable-debug >/dev/null
bad=0
while read -r name test file change; do
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  cp "$D/src/$file" "$D/keep"
  perl -0pi -e "$change" "$D/src/$file"
  if cmp -s "$D/keep" "$D/src/$file"; then
    echo "$name: does not apply"; bad=1; continue
  fi
  prog=tests/stack/$test
  [ "$test" != test_cache_crash ] || prog=tests/unit/$test
  make "$prog" >"$D/make.log" 2>&1 || { tail -5 "$D/make.log"; echo "$name: does not build"; bad=1; }
  if run "$prog"; then echo "$name: SURVIVED"; bad=1; else echo "$name: caught"; fi
  cp "$D/keep" "$D/src/$file"
done < <(mutants)
exit $bad
