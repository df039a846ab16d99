# gild replay and gild report: the sources that src/tools/local.mk puts into gild, manuals, tests.
replay_sources = \
	src/tools/replay_content.c src/tools/replay_content.h \
	src/tools/replay_format.c src/tools/replay_format.h \
	src/tools/replay_load.c src/tools/replay_load.h \
	src/tools/replay_log.c src/tools/replay_log.h \
	src/tools/replay_mount.c src/tools/replay_mount.h \
	src/tools/replay_result.c src/tools/replay_result.h
report_sources = \
	src/tools/report_chart.c src/tools/report_chart.h \
	src/tools/report_html.c src/tools/report_html.h \
	src/tools/report_scale.c src/tools/report_scale.h \
	src/tools/report_tables.c src/tools/report_tables.h
gild_replay_sources = src/tools/cmd_replay.c src/tools/cmd_report.c $(replay_sources) $(report_sources)

dist_man_MANS += man/gild-replay.1 man/gild-report.1

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_replay tests/unit/test_report
TESTS += tests/unit/test_replay tests/unit/test_report
tests_unit_test_replay_SOURCES = tests/unit/test_replay.c src/tools/cmd_replay.c \
	src/tools/gild.h $(replay_sources)
tests_unit_test_replay_LDADD = $(STATS_LIBS) $(CHECK_LIBS)
tests_unit_test_report_SOURCES = tests/unit/test_report.c src/tools/cmd_replay.c \
	src/tools/cmd_report.c src/tools/gild.h $(replay_sources) $(report_sources)
tests_unit_test_report_LDADD = $(STATS_LIBS) $(CHECK_LIBS)
endif
