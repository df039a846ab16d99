noinst_LIBRARIES += src/array/libarray.a
src_array_libarray_a_SOURCES = src/array/array.c src/array/array.h
