noinst_LIBRARIES += src/base/libbase.a
src_base_libbase_a_SOURCES =
