noinst_LIBRARIES += src/cache/libcache.a
src_cache_libcache_a_SOURCES = \
	src/cache/cache.c src/cache/cache.h src/cache/cache_priv.h \
	src/cache/cache_file.c src/cache/cache_file.h src/cache/cache_record.c \
	src/cache/cache_fill.c src/cache/cache_flight.c \
	src/cache/cache_known.c src/cache/cache_modify.c src/cache/cache_name.c src/cache/cache_node.c \
	src/cache/cache_policy.c src/cache/cache_policy.h \
	src/cache/cache_publish.c src/cache/cache_read.c \
	src/cache/cache_sketch.c src/cache/cache_sketch.h \
	src/cache/cache_stream.c src/cache/cache_sweep.c src/cache/cache_write.c \
	src/cache/policy_always.c src/cache/policy_freq.c src/cache/policy_lru.c

if HAVE_CHECK
check_PROGRAMS += $(cache_tests)
TESTS += $(cache_tests)
cache_tests = tests/unit/test_cache_read tests/unit/test_cache_write \
	tests/unit/test_cache_crash tests/unit/test_cache_errors tests/unit/test_cache_policy \
	tests/stack/test_stack
CACHE_TEST_SOURCES = tests/unit/cache_env.c tests/unit/cache_env.h \
	tests/unit/ram_flash.c tests/unit/ram_flash.h tests/unit/unit_util.h
CACHE_TEST_LIBS = src/cache/libcache.a src/backing/libbacking.a $(STATS_LIBS) $(CHECK_LIBS)
tests_unit_test_cache_read_SOURCES = tests/unit/test_cache_read.c $(CACHE_TEST_SOURCES)
tests_unit_test_cache_read_LDADD = $(CACHE_TEST_LIBS)
tests_unit_test_cache_write_SOURCES = tests/unit/test_cache_write.c $(CACHE_TEST_SOURCES)
tests_unit_test_cache_write_LDADD = $(CACHE_TEST_LIBS)
tests_unit_test_cache_crash_SOURCES = tests/unit/test_cache_crash.c $(CACHE_TEST_SOURCES)
tests_unit_test_cache_crash_LDADD = $(CACHE_TEST_LIBS)
tests_unit_test_cache_errors_SOURCES = tests/unit/test_cache_errors.c $(CACHE_TEST_SOURCES)
tests_unit_test_cache_errors_LDADD = $(CACHE_TEST_LIBS)
tests_unit_test_cache_errors_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=backing_getattr \
	-Wl,--wrap=backing_lookup \
	-Wl,--wrap=backing_pread -Wl,--wrap=backing_pwrite -Wl,--wrap=backing_fsync \
	-Wl,--wrap=backing_syncfs
tests_unit_test_cache_policy_SOURCES = tests/unit/test_cache_policy.c tests/unit/unit_util.h
tests_unit_test_cache_policy_LDADD = $(CACHE_TEST_LIBS)
tests_stack_test_stack_SOURCES = tests/stack/test_stack.c tests/stack/stack_ops.c \
	tests/stack/stack_ops.h tests/stack/power.c tests/stack/power.h tests/unit/card_rig.h \
	$(CACHE_TEST_SOURCES)
tests_stack_test_stack_LDADD = $(CACHE_LIBS) $(CHECK_LIBS)
tests_stack_test_stack_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_gettime -Wl,--wrap=statx \
	-Wl,--wrap=fsync -Wl,--wrap=fdatasync -Wl,--wrap=syncfs -Wl,--wrap=pwrite \
	-Wl,--wrap=pwritev2 -Wl,--wrap=ftruncate -Wl,--wrap=fallocate -Wl,--wrap=copy_file_range \
	-Wl,--wrap=renameat -Wl,--wrap=renameat2 -Wl,--wrap=linkat -Wl,--wrap=unlinkat
endif
