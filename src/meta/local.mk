noinst_LIBRARIES += src/meta/libmeta.a
src_meta_libmeta_a_SOURCES = \
	src/meta/meta.c src/meta/meta.h src/meta/meta_priv.h \
	src/meta/meta_check.c src/meta/meta_open.c
