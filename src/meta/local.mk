noinst_LIBRARIES += src/meta/libmeta.a
src_meta_libmeta_a_SOURCES = \
	src/meta/meta.c src/meta/meta.h src/meta/meta_priv.h \
	src/meta/meta_check.c src/meta/meta_file.h src/meta/meta_free.c src/meta/meta_guard.c \
	src/meta/meta_open.c

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_meta
TESTS += tests/unit/test_meta
tests_unit_test_meta_SOURCES = tests/unit/test_meta.c tests/unit/unit_util.h
tests_unit_test_meta_LDADD = $(META_LIBS) $(CHECK_LIBS)
endif
