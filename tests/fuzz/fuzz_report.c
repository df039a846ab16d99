/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Results of gild replay, as gild report reads them: what is accepted is drawn, written out again,
 * and must be accepted then too.
 */
#include <config.h>

#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/replay_result.h"
#include "tools/report_html.h"

static void report_draw(const struct replay_result *r)
{
	const struct replay_result *results[] = {r, r};
	static const char *const labels[] = {"a", "b"};
	struct report_page page = {.title = r->settings.label, .results = results, .labels = labels,
				   .count = 2, .published = true};
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	fuzz_assert(to);
	if (!page.title)
		page.title = "none";
	fuzz_assert(report_html_write(to, &page) == 0);
	fclose(to);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *json = json_loadb((const char *)data, size, 0, NULL), *again;
	struct replay_result *r, *same;
	char why[256];

	fuzz_quiet();
	if (json && replay_result_from_json(&r, json, why, sizeof(why)) == 0) {
		report_draw(r);
		again = replay_result_to_json(r);
		fuzz_assert(again);
		fuzz_assert(replay_result_from_json(&same, again, why, sizeof(why)) == 0);
		replay_result_destroy(same);
		replay_result_destroy(r);
		json_decref(again);
	}
	json_decref(json);
	return 0;
}
