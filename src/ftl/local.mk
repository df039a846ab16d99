noinst_LIBRARIES += src/ftl/libftl.a
src_ftl_libftl_a_SOURCES =
