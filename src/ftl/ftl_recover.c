/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gild recover: everything from the log alone. All EBs are read (footers where there are), all
 * records applied in the order of their lsn (rules in ftl_replay.c), and a checkpoint made.
 *
 * Where parts of the log are lost it cannot be told what is the newest version: clean data is dropped.
 * Dirty data is kept, there is no other copy.
 *
 * Differences to what was: clean lines that GC dropped may be back; counters begin anew, as only the
 * log's own are known. The superblock stays unclean, so that the next open says so: stamps that were
 * lost may be in use elsewhere.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

static int recover_eb(struct ftl *f, struct ftl_eb *eb)
{
	struct ftl_media_eb h;
	int err = ftl_scan_header(f, eb->index, &h);

	if (err == -ENOMEM)
		return err;
	if (err) { /* all had one since the format */
		log_error(FTL_MODULE, "controller %u: the header of erase block %u is lost (%s), and what"
			  " it holds with it", f->super.controller, eb->index, strerror(-err));
		f->c.media_errors++;
		f->health = FLASH_DEGRADED;
		return 0;
	}
	eb->erase_count = h.erase_count;
	if (h.seq >= f->next_seq)
		f->next_seq = h.seq + 1;
	if (h.state == FTL_EB_ERASED)
		return 0;
	if (h.stream >= FTL_STREAMS || ftl_eb_find(f, FTL_POS(h.seq, 0))) {
		log_error(FTL_MODULE, "controller %u: the header of erase block %u makes no sense",
			  f->super.controller, eb->index);
		f->c.media_errors++;
		f->health = FLASH_DEGRADED;
		return 0;
	}
	ftl_eb_set_seq(f, eb, h.seq);
	ftl_eb_set_state(f, eb, EB_OPEN);
	eb->stream = h.stream;
	eb->first_lsn = h.first_lsn;
	return ftl_scan_read(f, eb);
}

static int recover_all(struct ftl *f)
{
	struct ftl_foundlist l = {.v = NULL};
	int err = 0;

	f->next_lsn = f->durable_lsn = f->super.lsn;
	f->next_seq = f->super.seq;
	f->max_stamp = f->super.stamp;
	for (uint32_t i = 0; i < f->geom.ebs && !err; i++)
		err = recover_eb(f, &f->ebs[i]);
	if (!err)
		err = ftl_replay_cut(f, NULL, true, &l);
	if (!err)
		err = ftl_replay_apply(f, &l, true);
	if (!err && f->health == FLASH_DEGRADED) {
		log_error(FTL_MODULE, "controller %u: parts of the log are lost: all clean data is"
			  " dropped, as it may be old", f->super.controller);
		err = ftl_replay_drop_clean(f);
	}
	if (!err)
		log_info(FTL_MODULE, "controller %u: recovered %zu records: %" PRIu64 " sectors, %"
			 PRIu64 " of them dirty, %" PRIu64 " control records", f->super.controller,
			 l.n, f->live_sectors, f->dirty_sectors, f->ctl_records);
	free(l.v);
	ftl_replay_close(f, true);
	return err;
}

int ftl_recover(struct media *m, struct meta *meta)
{
	struct ftl_options o = {.background = false};
	struct ftl *f;
	int err = ftl_new(&f, m, meta, &o);

	if (err)
		return err;
	f->tolerant = true;
	err = ftl_meta_clear(meta);
	if (!err)
		err = recover_all(f);
	if (!err)
		err = ftl_media_flush(f);
	if (!err)
		err = ftl_settle(f, false);
	if (!err && !meta_count(meta, FTL_T_STATE))
		err = -EIO;
	if (err)
		log_error(FTL_MODULE, "controller %u: recovery failed: %s", f->super.controller,
			  strerror(-err));
	ftl_free(f);
	return err;
}
