noinst_LIBRARIES += src/base/libbase.a
src_base_libbase_a_SOURCES = \
	src/base/clock.c src/base/clock.h \
	src/base/hash.c src/base/hash.h \
	src/base/htab.c src/base/htab.h \
	src/base/lock.c src/base/lock.h \
	src/base/log.c src/base/log.h \
	src/base/options.c src/base/options.h src/base/options_priv.h src/base/options_value.c \
	src/base/workq.c src/base/workq.h
