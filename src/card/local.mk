noinst_LIBRARIES += src/card/libcard.a
src_card_libcard_a_SOURCES = \
	src/card/card.c src/card/card.h src/card/card_priv.h src/card/card_ctl.c src/card/card_dir.c \
	src/card/card_format.c src/card/card_open.c src/card/card_out.c src/card/card_recover.c \
	src/card/card_walk.c

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_card tests/unit/test_card_ctl tests/unit/test_card_dir
TESTS += tests/unit/test_card tests/unit/test_card_ctl tests/unit/test_card_dir
tests_unit_test_card_SOURCES = tests/unit/test_card.c tests/unit/card_rig.h tests/unit/unit_util.h
tests_unit_test_card_LDADD = $(CARD_LIBS) $(CHECK_LIBS)
tests_unit_test_card_ctl_SOURCES = \
	tests/unit/test_card_ctl.c tests/unit/card_rig.h tests/unit/unit_util.h
tests_unit_test_card_ctl_LDADD = $(CARD_LIBS) $(CHECK_LIBS)
tests_unit_test_card_dir_SOURCES = \
	tests/unit/test_card_dir.c tests/unit/card_rig.h tests/unit/unit_util.h
tests_unit_test_card_dir_LDADD = $(CARD_LIBS) $(CHECK_LIBS)
endif
