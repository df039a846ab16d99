/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "tools/replay_format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *replay_format_count(uint64_t n, char *buf, size_t len)
{
	char digits[24], out[REPLAY_FORMAT_LEN];
	int count = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n), to = 0;

	for (int i = 0; i < count; i++) {
		if (i && (count - i) % 3 == 0)
			out[to++] = ',';
		out[to++] = digits[i];
	}
	out[to] = '\0';
	snprintf(buf, len, "%s", out);
	return buf;
}

const char *replay_format_number(double x, char *buf, size_t len)
{
	double size = fabs(x);

	if (!isfinite(x))
		snprintf(buf, len, "-");
	else if (size >= 1e15)
		snprintf(buf, len, "%.3g", x);
	else if (size >= 999.95)
		replay_format_count((uint64_t)llround(size), buf, len);
	else if (size >= 99.995)
		snprintf(buf, len, "%.1f", x);
	else if (size >= 9.9995)
		snprintf(buf, len, "%.2f", x);
	else if (size >= 0.09995 || size == 0)
		snprintf(buf, len, size == 0 ? "%.0f" : "%.3f", x);
	else
		snprintf(buf, len, "%.3g", x);
	return buf;
}

/* Three significant digits for numbers from 1 to 999. */
static void format_short(double x, const char *unit, char *buf, size_t len)
{
	if (x >= 99.95 || x == floor(x))
		snprintf(buf, len, "%.0f %s", x, unit);
	else if (x >= 9.995)
		snprintf(buf, len, "%.1f %s", x, unit);
	else
		snprintf(buf, len, "%.2f %s", x, unit);
}

const char *replay_format_ns(double ns, const char *micro, char *buf, size_t len)
{
	char us[16];

	snprintf(us, sizeof(us), "%ss", micro);
	if (!isfinite(ns) || ns < 0)
		snprintf(buf, len, "-");
	else if (ns < 999.5)
		format_short(ns, "ns", buf, len);
	else if (ns < 999.5e3)
		format_short(ns / 1e3, us, buf, len);
	else if (ns < 999.5e6)
		format_short(ns / 1e6, "ms", buf, len);
	else if (ns < 99.5e9)
		format_short(ns / 1e9, "s", buf, len);
	else if (ns < 5940e9)
		format_short(ns / 60e9, "min", buf, len);
	else
		format_short(ns / 3600e9, "h", buf, len);
	return buf;
}

const char *replay_format_bytes(double bytes, char *buf, size_t len)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
	unsigned u = 0;

	if (!isfinite(bytes) || bytes < 0) {
		snprintf(buf, len, "-");
		return buf;
	}
	while (bytes >= 999.5 && u + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1000;
		u++;
	}
	format_short(bytes, units[u], buf, len);
	return buf;
}
