noinst_LIBRARIES += src/meta/libmeta.a
src_meta_libmeta_a_SOURCES =
