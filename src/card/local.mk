noinst_LIBRARIES += src/card/libcard.a
src_card_libcard_a_SOURCES =
