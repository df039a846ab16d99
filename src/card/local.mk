noinst_LIBRARIES += src/card/libcard.a
src_card_libcard_a_SOURCES = \
	src/card/card.c src/card/card.h src/card/card_priv.h src/card/card_ctl.c src/card/card_dir.c \
	src/card/card_format.c src/card/card_open.c src/card/card_out.c src/card/card_recover.c \
	src/card/card_walk.c
