noinst_LIBRARIES += src/backing/libbacking.a
src_backing_libbacking_a_SOURCES = \
	src/backing/backing.c src/backing/backing.h src/backing/backing_priv.h \
	src/backing/backing_attr.c \
	src/backing/backing_data.c \
	src/backing/backing_dir.c \
	src/backing/backing_fd.c \
	src/backing/backing_fs.c \
	src/backing/backing_name.c \
	src/backing/bnode.c

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_backing tests/unit/test_backing_ops
TESTS += tests/unit/test_backing tests/unit/test_backing_ops
tests_unit_test_backing_SOURCES = tests/unit/test_backing.c tests/unit/backing_scratch.h
tests_unit_test_backing_LDADD = $(BACKING_LIBS) $(CHECK_LIBS)
tests_unit_test_backing_ops_SOURCES = tests/unit/test_backing_ops.c tests/unit/backing_scratch.h
tests_unit_test_backing_ops_LDADD = $(BACKING_LIBS) $(CHECK_LIBS)
tests_unit_test_backing_ops_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=mkdirat -Wl,--wrap=clock_gettime
endif
