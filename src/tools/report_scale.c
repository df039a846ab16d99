/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "tools/report_scale.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tools/replay_format.h"

#define SCALE_MICRO "\xc2\xb5" /* the micro sign in UTF-8 */
#define SCALE_LEAST 1.0        /* where a logarithmic axis begins at the lowest: a nanosecond */
#define SCALE_DECADES 8        /* more than these and only each second is labelled */

/* The smallest of 1, 2, 2.5, 5 times a power of ten that is at least x. */
static double scale_round_step(double x)
{
	static const double nice[] = {1, 2, 2.5, 5, 10};
	double power = pow(10, floor(log10(x)));

	for (int i = 0; i < 5; i++)
		if (nice[i] * power >= x * (1 - 1e-9))
			return nice[i] * power;
	return 10 * power;
}

static double scale_time_step(double hi)
{
	static const double steps[] = {0.1, 0.2, 0.5, 1,    2,    5,    10,   15,    30,   60,
				       120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (hi / steps[i] <= 8)
			return steps[i];
	return 3600 * scale_round_step(hi / 3600 / 6);
}

static void scale_clear(struct report_scale *s, enum report_unit unit)
{
	memset(s, 0, sizeof(*s));
	s->unit = unit;
}

void report_scale_linear(struct report_scale *s, enum report_unit unit, double hi, bool exact)
{
	scale_clear(s, unit);
	if (!isfinite(hi) || hi < 1e-12)
		hi = 1;
	if (unit == REPORT_ELAPSED)
		s->step = scale_time_step(hi);
	else
		s->step = scale_round_step(hi / 4.5);
	s->hi = exact ? hi : s->step * ceil(hi / s->step - 1e-9);
	while (s->count < REPORT_TICKS && s->count * s->step <= s->hi * (1 + 1e-9)) {
		s->ticks[s->count] = s->count * s->step;
		s->count++;
	}
}

void report_scale_log(struct report_scale *s, enum report_unit unit, double lo, double hi)
{
	static const double nice[] = {1, 2, 5};
	double decades;
	int first, last, each;

	scale_clear(s, unit);
	s->log = true;
	if (!isfinite(lo) || lo < SCALE_LEAST)
		lo = SCALE_LEAST;
	if (!isfinite(hi) || hi <= lo)
		hi = lo * 10;
	decades = log10(hi / lo);
	first = (int)floor(log10(lo) + 1e-9);
	last = (int)ceil(log10(hi) - 1e-9);
	each = decades > SCALE_DECADES ? 2 : 1;
	s->lo = pow(10, first);
	s->hi = pow(10, last);
	/* Narrow ranges may begin and end within a decade. */
	for (int i = 2; decades < 2.5 && i > 0; i--)
		if (nice[i] * pow(10, first) <= lo * (1 + 1e-9)) {
			s->lo = nice[i] * pow(10, first);
			break;
		}
	for (int i = 1; decades < 2.5 && i < 3; i++)
		if (nice[i] * pow(10, last - 1) >= hi * (1 - 1e-9)) {
			s->hi = nice[i] * pow(10, last - 1);
			break;
		}
	for (int power = first; power <= last; power += each)
		for (int i = 0; i < (decades < 2.5 ? 3 : 1) && s->count < REPORT_TICKS; i++) {
			double tick = nice[i] * pow(10, power);

			if (tick >= s->lo * (1 - 1e-9) && tick <= s->hi * (1 + 1e-9))
				s->ticks[s->count++] = tick;
		}
}

void report_scale_place(struct report_scale *s, double from, double to)
{
	s->from = from;
	s->to = to;
}

double report_scale_at(const struct report_scale *s, double value)
{
	double part;

	if (!(value > s->lo))
		return s->from;
	if (!(value < s->hi))
		return s->to;
	part = s->log ? log(value / s->lo) / log(s->hi / s->lo)
		      : (value - s->lo) / (s->hi - s->lo);
	return s->from + part * (s->to - s->from);
}

static double scale_elapsed_divisor(const struct report_scale *s)
{
	return s->hi <= 180 ? 1 : s->hi <= 3 * 3600 ? 60 : 3600;
}

const char *report_scale_elapsed_unit(const struct report_scale *s)
{
	double d = scale_elapsed_divisor(s);

	return d == 1 ? "s" : d == 60 ? "min" : "h";
}

/* As many decimals as tell one tick from the next. */
static void scale_format_step(double value, double step, char *buf, size_t len)
{
	int digits = 0;

	for (double x = step; digits < 12 && fabs(x - round(x)) > 1e-6 * fabs(x); x *= 10)
		digits++;
	if (value < step / 1000)
		snprintf(buf, len, "0");
	else if (!digits && value < 1e15)
		replay_format_count((uint64_t)llround(value), buf, len);
	else
		snprintf(buf, len, "%.*f", digits, value);
}

static void scale_format_ns_step(const struct report_scale *s, double value, char *buf, size_t len)
{
	static const char *const units[] = {"ns", SCALE_MICRO "s", "ms", "s"};
	char number[REPLAY_FORMAT_LEN];
	double size = 1;
	int u = 0;

	if (value <= 0) {
		snprintf(buf, len, "0");
		return;
	}
	while (u < 3 && s->hi >= 1000 * size) {
		size *= 1000;
		u++;
	}
	scale_format_step(value / size, s->step / size, number, sizeof(number));
	snprintf(buf, len, "%s %s", number, units[u]);
}

const char *report_scale_label(const struct report_scale *s, double value, char *buf, size_t len)
{
	double d = scale_elapsed_divisor(s), step = s->log ? value : s->step;

	switch (s->unit) {
	case REPORT_ELAPSED:
		scale_format_step(value / d, step / d, buf, len);
		break;
	case REPORT_PERCENT:
		scale_format_step(value, step, buf, len - 4);
		strcat(buf, " %");
		break;
	case REPORT_NS:
		if (s->log)
			replay_format_ns(value, SCALE_MICRO, buf, len);
		else
			scale_format_ns_step(s, value, buf, len);
		break;
	case REPORT_NUMBER:
		scale_format_step(value, step, buf, len);
		break;
	}
	return buf;
}
