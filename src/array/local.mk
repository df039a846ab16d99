noinst_LIBRARIES += src/array/libarray.a
src_array_libarray_a_SOURCES = src/array/array.c src/array/array.h

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_array tests/stack/test_mirror_toy
TESTS += tests/unit/test_array tests/stack/test_mirror_toy
tests_unit_test_array_SOURCES = tests/unit/test_array.c tests/unit/card_rig.h tests/unit/unit_util.h
tests_unit_test_array_LDADD = $(ARRAY_LIBS) $(CHECK_LIBS)
tests_stack_test_mirror_toy_SOURCES = \
	tests/stack/test_mirror_toy.c tests/stack/toy_mirror.c tests/stack/toy_mirror.h \
	tests/unit/card_rig.h tests/unit/unit_util.h
tests_stack_test_mirror_toy_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
tests_stack_test_mirror_toy_LDADD = $(ARRAY_LIBS) $(CHECK_LIBS)
endif
