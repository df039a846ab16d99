noinst_LIBRARIES += src/backing/libbacking.a
src_backing_libbacking_a_SOURCES =
