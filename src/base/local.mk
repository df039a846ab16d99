noinst_LIBRARIES += src/base/libbase.a
src_base_libbase_a_SOURCES = \
	src/base/clock.c src/base/clock.h \
	src/base/hash.c src/base/hash.h \
	src/base/htab.c src/base/htab.h \
	src/base/lock.c src/base/lock.h \
	src/base/signals.h \
	src/base/log.c src/base/log.h \
	src/base/options.c src/base/options.h src/base/options_priv.h src/base/options_value.c \
	src/base/workq.c src/base/workq.h

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_base tests/unit/test_options
TESTS += tests/unit/test_base tests/unit/test_options
tests_unit_test_base_SOURCES = tests/unit/test_base.c tests/unit/unit_util.h
tests_unit_test_base_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
tests_unit_test_options_SOURCES = tests/unit/test_options.c tests/unit/unit_util.h
tests_unit_test_options_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
endif
