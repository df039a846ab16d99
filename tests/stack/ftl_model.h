/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a controller may hold after a power cut.
 *
 * A workload is a sequence of units (a line's part of a write, a trim, a mark_clean, a control
 * record). The log is applied as a prefix, so after a crash there must be one number p of units, at
 * least those covered by the last good flush, at most those begun, such that every cell (sector or
 * control record) is as after p units; a clean sector may also be absent where GC may drop.
 */
#ifndef GILD_TESTS_FTL_MODEL_H
#define GILD_TESTS_FTL_MODEL_H

#include "../unit/ftl_rig.h"

#define MODEL_FILES 4   /* 0 is the volume */
#define MODEL_SECTORS 112
#define MODEL_CTL 8
#define MODEL_CELLS (MODEL_FILES * MODEL_SECTORS + MODEL_CTL)

struct model_state {
	uint64_t stamp; /* of the write, 0: absent */
	bool dirty;
};

struct model {
	bool drops; /* GC may drop clean lines */
	unsigned units, flushed, cap;
	uint64_t left_out[8]; /* stamps to be used later */
	struct model_cell {
		unsigned n, cap;
		/* Stamps of clean versions, one of which was dropped and may come back: before the
		 * first event. */
		unsigned nghosts;
		uint64_t ghosts[16];
		uint64_t trimmed, cleaned; /* highest stamp of a trim or deletion, of a mark_clean */
		struct model_event {
			unsigned unit; /* the state holds from unit + 1 units on */
			struct model_state s;
		} *v;
	} cell[MODEL_CELLS];
};

void model_init(struct model *m, bool drops);
void model_free(struct model *m);
/* Each adds one unit: call before the operation. What has a higher stamp stays as it is; a write or
 * control record must be allowed there (model_allows). */
void model_write(struct model *m, unsigned file, unsigned sector, unsigned count, uint64_t stamp,
		 bool dirty);
void model_trim(struct model *m, unsigned file, unsigned sector, unsigned count, uint64_t stamp);
void model_clean(struct model *m, unsigned file, unsigned sector, unsigned count, uint64_t stamp);
void model_ctl(struct model *m, unsigned key, uint64_t stamp, bool deletion);
/* An old stamp: no trim, deletion or mark with a higher one is known, which need not be kept. */
bool model_allows(const struct model *m, unsigned cell, unsigned count, uint64_t stamp, bool dirty);
void model_flushed(struct model *m); /* after a successful flush */
/* Compares with the controller; then what was found is the only state. false: differs (printed). */
bool model_check(struct model *m, struct rig *r);
/* Contents: by stamp. */
void model_ctl_value(uint64_t stamp, uint8_t *buf, size_t *len);
uint64_t model_seed(uint64_t stamp);

#endif
