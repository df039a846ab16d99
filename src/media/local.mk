noinst_LIBRARIES += src/media/libmedia.a
src_media_libmedia_a_SOURCES =
