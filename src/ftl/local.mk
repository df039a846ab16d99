noinst_LIBRARIES += src/ftl/libftl.a
src_ftl_libftl_a_SOURCES = \
	src/flash.h src/ftl/ftl.h src/ftl/ftl_media.h src/ftl/ftl_priv.h \
	src/ftl/ftl.c src/ftl/ftl_audit.c src/ftl/ftl_ckpt.c src/ftl/ftl_ctl.c src/ftl/ftl_eb.c \
	src/ftl/ftl_format.c src/ftl/ftl_gc.c src/ftl/ftl_gc.h src/ftl/ftl_gc_move.c src/ftl/ftl_geom.c src/ftl/ftl_load.c \
	src/ftl/ftl_log.c src/ftl/ftl_map.c src/ftl/ftl_media.c src/ftl/ftl_range.c \
	src/ftl/ftl_read.c src/ftl/ftl_recover.c src/ftl/ftl_replay.c src/ftl/ftl_scan.c src/ftl/ftl_thread.c src/ftl/ftl_tomb.c \
	src/ftl/ftl_util.c src/ftl/ftl_walk.c src/ftl/ftl_write.c src/ftl/ftl_zip.c

if HAVE_CHECK
ftl_rig = tests/unit/ftl_rig.c tests/unit/ftl_rig.h
ftl_tests = tests/unit/test_ftl tests/unit/test_ftl_parts tests/unit/test_ftl_gc \
	tests/unit/test_ftl_faults tests/unit/test_ftl_recover tests/unit/test_ftl_reserve tests/stack/test_ftl_crash \
	tests/stack/test_ftl_crash_mt
check_PROGRAMS += $(ftl_tests)
TESTS += $(ftl_tests)
tests_unit_test_ftl_SOURCES = tests/unit/test_ftl.c $(ftl_rig)
tests_unit_test_ftl_LDADD = $(FTL_LIBS) $(CHECK_LIBS)
tests_unit_test_ftl_parts_SOURCES = tests/unit/test_ftl_parts.c
tests_unit_test_ftl_parts_LDADD = $(FTL_LIBS) $(CHECK_LIBS)
tests_unit_test_ftl_gc_SOURCES = tests/unit/test_ftl_gc.c $(ftl_rig)
tests_unit_test_ftl_gc_LDADD = $(FTL_LIBS) $(CHECK_LIBS)
tests_unit_test_ftl_faults_SOURCES = tests/unit/test_ftl_faults.c $(ftl_rig)
tests_unit_test_ftl_faults_LDADD = $(FTL_LIBS) $(CHECK_LIBS)
tests_unit_test_ftl_recover_SOURCES = tests/unit/test_ftl_recover.c $(ftl_rig)
tests_unit_test_ftl_recover_LDADD = $(FTL_LIBS) $(CHECK_LIBS)
tests_unit_test_ftl_reserve_SOURCES = tests/unit/test_ftl_reserve.c $(ftl_rig)
tests_unit_test_ftl_reserve_LDADD = $(FTL_LIBS) $(CHECK_LIBS)
tests_stack_test_ftl_crash_mt_SOURCES = tests/stack/test_ftl_crash_mt.c $(ftl_rig)
tests_stack_test_ftl_crash_mt_LDADD = $(FTL_LIBS) $(CHECK_LIBS)
tests_stack_test_ftl_crash_SOURCES = tests/stack/test_ftl_crash.c tests/stack/ftl_model.c \
	tests/stack/ftl_model.h $(ftl_rig)
tests_stack_test_ftl_crash_LDADD = $(FTL_LIBS) $(CHECK_LIBS)
endif
