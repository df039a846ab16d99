/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One controller over RAM: the operations of the flash contract.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ftl_rig.h"

START_TEST(test_write_read)
{
	struct rig r;

	rig_init(&r, 32, false);
	for (uint64_t seed = 0; seed < 4; seed++) {
		ck_assert_int_eq(rig_write(&r, 7, 100 * seed + 3, 40, seed, false), 0);
		rig_expect(&r, 7, 100 * seed + 3, 40, seed);
	}
	rig_expect_absent(&r, 7, 43, 60);
	rig_expect_absent(&r, 8, 3, 40);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	for (uint64_t seed = 0; seed < 4; seed++)
		rig_expect(&r, 7, 100 * seed + 3, 40, seed);
	rig_reopen(&r);
	for (uint64_t seed = 0; seed < 4; seed++)
		rig_expect(&r, 7, 100 * seed + 3, 40, seed);
	rig_expect_absent(&r, 7, 43, 60);
	rig_done(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl");
	TCase *t = tcase_create("operations");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, test_write_read);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
