noinst_LIBRARIES += src/stats/libstats.a
src_stats_libstats_a_SOURCES = \
	src/stats/hist.c src/stats/hist.h \
	src/stats/stats.c src/stats/stats.h src/stats/stats.tbl

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_stats
TESTS += tests/unit/test_stats
tests_unit_test_stats_SOURCES = tests/unit/test_stats.c tests/unit/unit_util.h
tests_unit_test_stats_LDADD = $(STATS_LIBS) $(CHECK_LIBS)
endif
