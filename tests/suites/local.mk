# Public suites, built elsewhere (tests/suites/lib.sh says where they are looked for).
suites = tests/suites/pjdfstest.sh tests/suites/test_syscalls.sh tests/suites/blackbox.sh \
	tests/suites/ltp.sh tests/suites/fsx.sh tests/suites/fsstress.sh tests/suites/xfstests.sh \
	tests/suites/stress-ng.sh
EXTRA_DIST += tests/suites/lib.sh tests/suites/test_syscalls.explained \
	tests/suites/xfstests.explained $(suites)
check-suites: all
	@TEST_TIMEOUT=14400 && export TEST_TIMEOUT && \
		$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/run-mounted $(suites)
.PHONY: check-suites
