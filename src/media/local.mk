noinst_LIBRARIES += src/media/libmedia.a
src_media_libmedia_a_SOURCES = \
	src/media/media.c src/media/media.h src/media/media_priv.h \
	src/media/media_file.c src/media/media_ram.c src/media/media_region.c \
	src/media/media_fault.c

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_media tests/unit/test_fault
TESTS += tests/unit/test_media tests/unit/test_fault
tests_unit_test_media_SOURCES = tests/unit/test_media.c tests/unit/unit_util.h
tests_unit_test_media_LDADD = $(MEDIA_LIBS) $(CHECK_LIBS)
tests_unit_test_fault_SOURCES = tests/unit/test_fault.c tests/unit/unit_util.h
tests_unit_test_fault_LDADD = $(MEDIA_LIBS) $(CHECK_LIBS)
endif
