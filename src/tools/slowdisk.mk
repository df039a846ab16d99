# gild slowdisk: local.mk puts these into the gild program.
gild_slowdisk_sources = \
	src/tools/cmd_slowdisk.c \
	src/tools/disk_drive.c src/tools/disk_drive.h \
	src/tools/disk_model.c src/tools/disk_model.h \
	src/tools/slowdisk.c src/tools/slowdisk.h \
	src/tools/slowdisk_delay.c src/tools/slowdisk_delay.h \
	src/tools/slowdisk_fileio.c \
	src/tools/slowdisk_files.c src/tools/slowdisk_files.h \
	src/tools/slowdisk_image.c src/tools/slowdisk_image.h \
	src/tools/slowdisk_io.c \
	src/tools/slowdisk_nodes.c src/tools/slowdisk_nodes.h \
	src/tools/slowdisk_session.c

dist_man_MANS += man/gild-slowdisk.1

if HAVE_CHECK
check_PROGRAMS += tests/unit/test_disk_model
TESTS += tests/unit/test_disk_model
tests_unit_test_disk_model_SOURCES = tests/unit/test_disk_model.c \
	src/tools/disk_drive.c src/tools/disk_drive.h src/tools/disk_model.c src/tools/disk_model.h
tests_unit_test_disk_model_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
endif
