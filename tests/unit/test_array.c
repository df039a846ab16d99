/* SPDX-License-Identifier: BSD-2-Clause
 * An array of one card: the membership record, and that everything goes through. */
#include <config.h>

#include "array/array.h"
#include "card_rig.h"

static struct rig rig;

START_TEST(a_new_card_becomes_the_only_member)
{
	struct array_member m, again;
	struct flash_health h;
	struct flash_stats s;
	struct flash *array;

	rig_make(&rig, 2, true, 1);
	ck_assert_ok(rig_open(&rig));
	ck_assert_int_eq(array_member_get(rig.card, &m), -ENOENT);
	ck_assert_ok(rig_write(rig.card, 1, 0, 1, 1000, false));
	ck_assert_ok(array_open(&array, &rig.card, 1, ARRAY_STRIPE));
	ck_assert_ok(array_member_get(rig.card, &m));
	ck_assert_uint_eq(m.members, 1);
	ck_assert_uint_eq(m.index, 0);
	ck_assert_uint_eq(m.live, 1);
	ck_assert_uint_eq(m.generation, 1);
	array->ops->health(array, &h);
	ck_assert_uint_eq(h.generation, 1);
	array->ops->stats(array, &s);
	ck_assert_uint_ge(s.max_stamp, 1001);
	/* The interface goes through, the membership record does not. */
	ck_assert_ok(rig_write(array, 1, 5, 20, 2000, true));
	ck_assert_int_eq(rig_read(array, 1, 24), 2000);
	ck_assert_ok(rig_put(array, 4, 2001, 40));
	ck_assert_int_eq(rig_get(array, 4), 2001);
	ck_assert_ok(array->ops->trim(array, 1, 0, 10, 2002));
	ck_assert_int_eq(rig_read(array, 1, 5), 0);
	ck_assert_int_eq(array->ops->ctl_put(array, FLASH_CTL_MEMBER, (const uint8_t *)&m, &m, 1, 9),
			 -EINVAL);
	ck_assert_ok(array->ops->flush(array));
	ck_assert_ok(array->ops->close(array));
	ck_assert_ok(rig_open(&rig));
	ck_assert_ok(array_open(&array, &rig.card, 1, ARRAY_STRIPE));
	ck_assert_ok(array_member_get(rig.card, &again));
	ck_assert_mem_eq(&m, &again, sizeof(m)); /* the same set */
	ck_assert_int_eq(rig_read(array, 1, 24), 2000);
	ck_assert_ok(array->ops->close(array));
	rig_destroy(&rig);
}
END_TEST

START_TEST(members_of_larger_sets_are_refused)
{
	struct array_member m = {.set = {1}, .index = 1, .members = 2, .mode = ARRAY_MIRROR,
				 .generation = 3};
	struct flash *array, *two[2];
	uint8_t key[FLASH_CTL_KEY] = {0};

	rig_make(&rig, 2, true, 1);
	ck_assert_ok(rig_open(&rig));
	ck_assert_ok(array_member_put(rig.card, &m, 5));
	ck_assert_int_eq(array_open(&array, &rig.card, 1, ARRAY_MIRROR), -ESTALE);
	two[0] = two[1] = rig.card;
	ck_assert_int_eq(array_open(&array, two, 2, ARRAY_MIRROR), -ENOTSUP);
	ck_assert_int_eq(array_open(&array, two, 0, ARRAY_MIRROR), -EINVAL);
	ck_assert_ok(rig.card->ops->ctl_put(rig.card, FLASH_CTL_MEMBER, key, "short", 5, 6));
	ck_assert_int_eq(array_open(&array, &rig.card, 1, ARRAY_MIRROR), -EUCLEAN);
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
}
END_TEST

START_TEST(a_card_that_cannot_remember_is_refused)
{
	struct flash *array;

	rig_make(&rig, 1, false, 1);
	ck_assert_ok(rig_open(&rig));
	media_fault_kill(rig.fault[0], true);
	ck_assert_int_eq(array_open(&array, &rig.card, 1, ARRAY_STRIPE), -EIO);
	rig_close(&rig);
	rig_destroy(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("array");
	TCase *t = tcase_create("array");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_new_card_becomes_the_only_member);
	tcase_add_test(t, members_of_larger_sets_are_refused);
	tcase_add_test(t, a_card_that_cannot_remember_is_refused);
	suite_add_tcase(s, t);
	return unit_main(s);
}
