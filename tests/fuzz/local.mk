# Fuzzers: `make check` replays their corpora, `make fuzz` searches (clang's libFuzzer).
fuzz_programs = tests/fuzz/fuzz_medium tests/fuzz/fuzz_meta tests/fuzz/fuzz_card \
	tests/fuzz/fuzz_control tests/fuzz/fuzz_options tests/fuzz/fuzz_replay \
	tests/fuzz/fuzz_report tests/fuzz/fuzz_handle
check_PROGRAMS += $(fuzz_programs)
TESTS += $(fuzz_programs)
EXTRA_DIST += tests/fuzz/corpus tests/run-fuzz

FUZZ_COMMON = tests/fuzz/fuzz.h tests/fuzz/fuzz_util.c
if !FUZZ
FUZZ_COMMON += tests/fuzz/fuzz_main.c
endif
FUZZ_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
FUZZ_LINK = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_medium_SOURCES = tests/fuzz/fuzz_medium.c tests/fuzz/fuzz_image.c \
	tests/fuzz/fuzz_image.h $(FUZZ_COMMON)
tests_fuzz_fuzz_medium_CPPFLAGS = $(FUZZ_CPPFLAGS)
tests_fuzz_fuzz_medium_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_medium_LDADD = $(FTL_LIBS)
tests_fuzz_fuzz_meta_SOURCES = tests/fuzz/fuzz_meta.c $(FUZZ_COMMON)
tests_fuzz_fuzz_meta_CPPFLAGS = $(FUZZ_CPPFLAGS)
tests_fuzz_fuzz_meta_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_meta_LDADD = $(META_LIBS)
tests_fuzz_fuzz_card_SOURCES = tests/fuzz/fuzz_card.c $(FUZZ_COMMON)
tests_fuzz_fuzz_card_CPPFLAGS = $(FUZZ_CPPFLAGS)
tests_fuzz_fuzz_card_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_card_LDADD = src/cache/libcache.a $(CARD_LIBS)
tests_fuzz_fuzz_control_SOURCES = tests/fuzz/fuzz_control.c src/tools/cmd_mount.c \
	src/tools/cmd_format.c $(FUZZ_COMMON)
tests_fuzz_fuzz_control_CPPFLAGS = $(FUZZ_CPPFLAGS)
tests_fuzz_fuzz_control_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_control_LDADD = $(ARRAY_LIBS)
tests_fuzz_fuzz_options_SOURCES = tests/fuzz/fuzz_options.c src/tools/gildfs_options.c \
	$(FUZZ_COMMON)
tests_fuzz_fuzz_options_CPPFLAGS = $(FUZZ_CPPFLAGS)
tests_fuzz_fuzz_options_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_options_LDADD = $(BASE_LIBS)
tests_fuzz_fuzz_replay_SOURCES = tests/fuzz/fuzz_replay.c src/tools/replay_content.c \
	src/tools/replay_log.c $(FUZZ_COMMON)
tests_fuzz_fuzz_replay_CPPFLAGS = $(FUZZ_CPPFLAGS)
tests_fuzz_fuzz_replay_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_replay_LDADD = $(STATS_LIBS)
tests_fuzz_fuzz_report_SOURCES = tests/fuzz/fuzz_report.c src/tools/replay_result.c \
	src/tools/replay_format.c $(report_sources) $(FUZZ_COMMON)
tests_fuzz_fuzz_report_CPPFLAGS = $(FUZZ_CPPFLAGS)
tests_fuzz_fuzz_report_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_report_LDADD = $(STATS_LIBS)
tests_fuzz_fuzz_handle_SOURCES = tests/fuzz/fuzz_handle.c $(FUZZ_COMMON)
tests_fuzz_fuzz_handle_CPPFLAGS = $(FUZZ_CPPFLAGS)
tests_fuzz_fuzz_handle_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_handle_LDADD = $(BACKING_LIBS)

fuzz:
	FUZZ='$(fuzz_programs)' SRC='$(abs_top_srcdir)' BUILD='$(abs_top_builddir)' \
		$(top_srcdir)/tests/run-fuzz
.PHONY: fuzz
