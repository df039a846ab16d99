noinst_LIBRARIES += src/fs/libfs.a
src_fs_libfs_a_SOURCES =
