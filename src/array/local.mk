noinst_LIBRARIES += src/array/libarray.a
src_array_libarray_a_SOURCES = src/array/array.c src/array/array.h

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_array
TESTS += tests/unit/test_array
tests_unit_test_array_SOURCES = tests/unit/test_array.c tests/unit/card_rig.h tests/unit/unit_util.h
tests_unit_test_array_LDADD = $(ARRAY_LIBS) $(CHECK_LIBS)
endif
