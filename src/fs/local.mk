noinst_LIBRARIES += src/fs/libfs.a
src_fs_libfs_a_SOURCES = src/fs/fs.h src/fs/fs_priv.h src/fs/fs.c src/fs/fs_attr.c \
	src/fs/fs_data.c src/fs/fs_dir.c src/fs/fs_init.c src/fs/fs_invalidate.c \
	src/fs/fs_ioctl.c src/fs/fs_loop.c src/fs/fs_msg.c \
	src/fs/fs_name.c src/fs/fs_park.c src/fs/fs_xattr.c

if HAVE_CHECK
check_PROGRAMS += tests/wire/test_wire tests/wire/test_wire_loop
TESTS += tests/wire/test_wire tests/wire/test_wire_loop
# Over a tree in RAM in place of cache and backing: no libcache, no libbacking.
WIRE_SOURCES = tests/wire/ram_cache.c tests/wire/ram_cache.h tests/wire/ram_data.c \
	tests/wire/ram_priv.h tests/wire/wire.c tests/wire/wire.h
WIRE_LIBS = src/fs/libfs.a $(STATS_LIBS) $(FUSE_LIBS) $(CHECK_LIBS)
tests_wire_test_wire_SOURCES = tests/wire/test_wire.c $(WIRE_SOURCES)
tests_wire_test_wire_LDADD = $(WIRE_LIBS)
tests_wire_test_wire_loop_SOURCES = tests/wire/test_wire_loop.c $(WIRE_SOURCES)
tests_wire_test_wire_loop_LDADD = $(WIRE_LIBS)
endif

# The load of `make bench`: needs nothing of ours.
check_PROGRAMS += tests/bench/filebench
tests_bench_filebench_SOURCES = tests/bench/filebench.c

# The disks of tests/fuse/powercut.sh.
check_PROGRAMS += tests/fuse/recdisk
tests_fuse_recdisk_SOURCES = tests/fuse/recdisk.c
tests_fuse_recdisk_LDADD = $(FUSE_LIBS)
