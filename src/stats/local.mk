noinst_LIBRARIES += src/stats/libstats.a
src_stats_libstats_a_SOURCES =
