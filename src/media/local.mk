noinst_LIBRARIES += src/media/libmedia.a
src_media_libmedia_a_SOURCES = \
	src/media/media.c src/media/media.h src/media/media_priv.h \
	src/media/media_file.c src/media/media_ram.c src/media/media_region.c \
	src/media/media_fault.c
