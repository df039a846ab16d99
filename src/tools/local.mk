bin_PROGRAMS += src/tools/gildfs src/tools/gild

src_tools_gildfs_SOURCES = src/tools/gildfs.c src/tools/gildfs_options.c src/tools/gildfs_options.h \
	src/tools/gildfs_paths.c src/tools/stack.c src/tools/stack.h src/tools/control.c \
	src/tools/control.h src/tools/mount_status.c src/tools/mount_status.h \
	src/tools/watchdog.c src/tools/watchdog.h \
	src/tools/privileges.c src/tools/privileges.h
src_tools_gildfs_LDADD = $(FS_LIBS)

src_tools_gild_SOURCES = src/tools/gild.c src/tools/gild.h src/tools/control.c src/tools/control.h \
	src/tools/query.h src/tools/cmd_mount.c src/tools/cmd_format.c src/tools/cmd_status.c \
	$(gild_replay_sources) $(gild_slowdisk_sources)
src_tools_gild_LDADD = $(ARRAY_LIBS) $(FUSE_LIBS)
