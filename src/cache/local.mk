noinst_LIBRARIES += src/cache/libcache.a
src_cache_libcache_a_SOURCES = \
	src/cache/cache.c src/cache/cache.h src/cache/cache_priv.h \
	src/cache/cache_file.c src/cache/cache_file.h src/cache/cache_record.c \
	src/cache/cache_fill.c src/cache/cache_flight.c \
	src/cache/cache_modify.c src/cache/cache_name.c src/cache/cache_node.c \
	src/cache/cache_policy.c src/cache/cache_policy.h \
	src/cache/cache_publish.c src/cache/cache_read.c \
	src/cache/cache_sketch.c src/cache/cache_sketch.h \
	src/cache/cache_stream.c src/cache/cache_write.c \
	src/cache/policy_always.c src/cache/policy_freq.c src/cache/policy_lru.c
