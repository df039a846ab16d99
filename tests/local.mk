# Tests that are not one layer's own: the command line, the house rules, real mounts, benchmarks.
# `make check` needs no root. `make check-fuse` mounts (root, /dev/fuse). `make check-all` runs both
# and the sanitizers, and ends with one line that counts them. `make bench` measures ratios.
AM_TESTS_ENVIRONMENT = \
	GILD='$(abs_top_builddir)/src/tools/gild'; export GILD; \
	GILDFS='$(abs_top_builddir)/src/tools/gildfs'; export GILDFS; \
	BUILD='$(abs_top_builddir)'; export BUILD; \
	SRC='$(abs_top_srcdir)'; export SRC; \
	CK_TIMEOUT_MULTIPLIER=10; export CK_TIMEOUT_MULTIPLIER;

cli_tests = tests/cli/options.sh tests/cli/slowdisk.sh
lint_tests = tests/lint/layers.sh tests/lint/sizes.sh tests/lint/manual.sh
dist_check_SCRIPTS += $(cli_tests) $(lint_tests) $(fuse_tests)
TESTS += $(cli_tests) $(lint_tests)
EXTRA_DIST += tests/fuse/semantics.py tests/summary tests/run-mounted tests/lib.sh tests/README tests/fuse/differential.py tests/fuse/kill9.py \
	tests/fuse/powercut.py 	tests/check-crash tests/stack/mutants.sh

fuse_tests = tests/fuse/shown-by.sh tests/fuse/bad-input.sh tests/fuse/trees.sh tests/fuse/kill9.sh tests/fuse/powercut.sh \
	tests/fuse/differential.sh tests/fuse/recover.sh tests/fuse/coherence.sh tests/fuse/slowdisk.sh \
	tests/fuse/semantics.sh tests/fuse/fstab.sh tests/fuse/control.sh tests/fuse/card-trouble.sh
fuse_tests += tests/fuse/operations.sh
EXTRA_DIST += tests/fuse/operations.py tests/fuse/operations_names.py tests/fuse/operations_data.py \
	tests/fuse/operations_rights.py tests/fuse/operations_readonly.py
fuse_tests += tests/fuse/killed.sh tests/fuse/backing-trouble.sh tests/fuse/generations.sh tests/fuse/hostile.sh
fuse_tests += tests/fuse/sqlite.sh tests/fuse/git.sh tests/suites/stress-ng.sh
EXTRA_DIST += tests/fuse/sqlite.py

check-fuse: all tests/fuse/faultfs
	$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/run-mounted $(fuse_tests)

# The crash tests at length: 10,000 cut points and 200 kills. CRASH chooses parts, GILD_SEED repeats.
check-crash: all $(check_PROGRAMS)
	@$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/check-crash

# The Check programs and the fuzzers' corpora once more: with address and undefined-behaviour
# sanitizer, and with thread sanitizer those that have threads.
asan_tests = $(filter-out tests/bench/% tests/fuse/%,$(check_PROGRAMS))
one_thread = tests/fuzz/% tests/unit/test_cache_policy tests/unit/test_disk_model \
	tests/unit/test_ftl_parts tests/unit/test_options tests/unit/test_report \
	tests/stack/test_ftl_crash
tsan_tests = $(filter-out $(one_thread),$(asan_tests))
sanitize_logs = $(asan_tests:%=sanitize/asan/%.log) $(tsan_tests:%=sanitize/tsan/%.log)
EXTRA_DIST += tests/run-sanitized

run-sanitizers: all
	-$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/run-sanitized asan '--enable-asan --enable-ubsan' $(asan_tests)
	-$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/run-sanitized tsan --enable-tsan $(tsan_tests)

check-sanitize: run-sanitizers
	$(top_srcdir)/tests/summary $(sanitize_logs)

check-all: all
	-$(MAKE) $(AM_MAKEFLAGS) check
	-$(MAKE) $(AM_MAKEFLAGS) check-fuse
	-$(MAKE) $(AM_MAKEFLAGS) run-sanitizers
	$(top_srcdir)/tests/summary $(TEST_LOGS) $(fuse_tests:.sh=.log) $(sanitize_logs)

check-valgrind: $(check_PROGRAMS)
	for t in $(check_PROGRAMS); do \
		CK_FORK=no valgrind -q --error-exitcode=1 --leak-check=full ./$$t || exit 1; done

.PHONY: check-fuse check-crash check-all check-sanitize check-valgrind run-sanitizers bench

# A backing in trouble, for the tests on real mounts.
check_PROGRAMS += tests/fuse/faultfs
tests_fuse_faultfs_SOURCES = tests/fuse/faultfs.c
tests_fuse_faultfs_LDADD = $(FUSE_LIBS)
EXTRA_DIST += tests/fuse/killed.py tests/fuse/coherence.py tests/fuse/backing-trouble.py tests/fuse/generations.py

# Measured, never asserted: tests/README holds the last results.
EXTRA_DIST += tests/bench/bench.sh tests/bench/meta.py
bench: all tests/bench/filebench
	@$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/bench/bench.sh $(BENCH)

include tests/suites/local.mk
fuse_tests += tests/fuse/calls.sh tests/fuse/descriptors.sh
EXTRA_DIST += tests/fuse/calls.py tests/fuse/calls_data.py tests/fuse/calls_attr.py

# By hand: an hour.
EXTRA_DIST += tests/fuse/soak.sh tests/fuse/soak.py
