dist_man_MANS += man/gildfs.1 man/gild.1 man/gild-format.1 man/gild-status.1 man/gild-stats.1 \
	man/gild-flush.1 man/gild-invalidate.1 man/gild-recover.1
