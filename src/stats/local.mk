noinst_LIBRARIES += src/stats/libstats.a
src_stats_libstats_a_SOURCES = \
	src/stats/hist.c src/stats/hist.h \
	src/stats/stats.c src/stats/stats.h src/stats/stats.tbl
