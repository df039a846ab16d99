/* SPDX-License-Identifier: BSD-2-Clause
 * Between options.c (words, messages, help) and options_value.c (values). */
#ifndef GILD_BASE_OPTIONS_PRIV_H
#define GILD_BASE_OPTIONS_PRIV_H

#include "base/options.h"

/* Parses `text` (NULL: a flag without argument) and stores it. -EINVAL: malformed, -ERANGE: outside
 * min..max, -ENOMEM. */
int options_store(const struct option_spec *s, void *into, const char *text);
void options_zero(const struct option_spec *s, void *into);
/* What a value has to look like, as words for a message. */
void options_expectation(const struct option_spec *s, char *buf, size_t len);

#endif
