/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Charts. The drawing surface is CHART_W by CHART_H units, shown at about that many CSS pixels, so
 * that text inside has the size of text outside.
 */
#include <config.h>

#include "tools/report_chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay_format.h"

#define CHART_W 560.0
#define CHART_H 260.0
#define CHART_LEFT 62.0
#define CHART_RIGHT 14.0
#define CHART_TOP 12.0
#define CHART_BOTTOM 40.0
#define CHART_LOG_SPREAD 12.0 /* largest to smallest latency from which the axis is logarithmic */
#define CHART_HOVERS 100      /* strips that show the values under the pointer */
#define CHART_LABEL 48        /* bytes of a label in a tooltip */
#define CHART_MAX_BANDS 400

void report_escape(FILE *to, const char *text)
{
	for (; text && *text; text++) {
		switch (*text) {
		case '&':
			fputs("&amp;", to);
			break;
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		case '\'':
			fputs("&#39;", to);
			break;
		default:
			fputc((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text, to);
		}
	}
}

const char *report_class(unsigned colour, char *buf, size_t len)
{
	snprintf(buf, len, "s%u%s", colour % REPORT_COLOURS,
		 colour >= REPORT_COLOURS ? " again" : "");
	return buf;
}

static void chart_open(FILE *to, const char *title, const char *unit_text, const char *note)
{
	fputs("<figure class=\"card\"><figcaption><b>", to);
	report_escape(to, title);
	fputs("</b> <span>", to);
	report_escape(to, unit_text);
	fputs("</span>", to);
	if (note) {
		fputs(" <span class=\"note\">", to);
		report_escape(to, note);
		fputs("</span>", to);
	}
	fputs("</figcaption>\n", to);
}

static void chart_close(FILE *to)
{
	fputs("</figure>\n", to);
}

static void chart_empty(FILE *to, const char *text)
{
	fputs("<p class=\"empty\">", to);
	report_escape(to, text);
	fputs("</p>\n", to);
}

static void chart_open_svg(FILE *to, const char *title)
{
	fprintf(to, "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"", CHART_W, CHART_H);
	report_escape(to, title);
	fputs("\">\n", to);
}

static void chart_y_axis(FILE *to, const struct report_scale *y)
{
	char label[64];

	for (int i = 0; i < y->count; i++) {
		double at = report_scale_at(y, y->ticks[i]);

		fprintf(to, "<line class=\"%s\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>"
			    "<text class=\"y\" x=\"%g\" y=\"%.1f\">%s</text>\n",
			i || y->log ? "grid" : "axis", CHART_LEFT, CHART_W - CHART_RIGHT, at, at,
			CHART_LEFT - 8, at + 4,
			report_scale_label(y, y->ticks[i], label, sizeof(label)));
	}
	if (y->log)
		fprintf(to, "<line class=\"axis\" x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\"/>\n",
			CHART_LEFT, CHART_W - CHART_RIGHT, CHART_H - CHART_BOTTOM,
			CHART_H - CHART_BOTTOM);
}

static void chart_x_axis(FILE *to, const struct report_scale *x, const char *title, bool grid)
{
	double bottom = CHART_H - CHART_BOTTOM;
	char label[64];

	for (int i = 0; i < x->count; i++) {
		double at = report_scale_at(x, x->ticks[i]);

		fprintf(to, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\"/>"
			    "<text class=\"x\" x=\"%.1f\" y=\"%g\">%s</text>\n",
			grid ? "grid" : "axis", at, at, grid ? CHART_TOP : bottom, bottom + 4, at,
			bottom + 18, report_scale_label(x, x->ticks[i], label, sizeof(label)));
	}
	fprintf(to, "<text class=\"x title\" x=\"%g\" y=\"%g\">%s</text>\n",
		(CHART_LEFT + CHART_W - CHART_RIGHT) / 2, CHART_H - 5, title);
}

/* The extent of all that is drawn; false when that is nothing. */
struct chart_extent {
	double x_max, y_min, y_max; /* y_min: the smallest above 0 */
};

static bool chart_measure(const struct report_lines *chart, struct chart_extent *e)
{
	bool any = false;

	e->x_max = e->y_max = 0;
	e->y_min = INFINITY;
	for (size_t i = 0; i < chart->count; i++)
		for (size_t k = 0; k < chart->series[i].count; k++) {
			const struct report_point *p = &chart->series[i].points[k];

			e->x_max = fmax(e->x_max, p->x);
			if (!isfinite(p->y))
				continue;
			any = true;
			e->y_max = fmax(e->y_max, p->y);
			if (p->y > 0)
				e->y_min = fmin(e->y_min, p->y);
		}
	return any;
}

static void chart_draw_series(FILE *to, const struct report_series *s,
			      const struct report_scale *x, const struct report_scale *y)
{
	bool pen = false;
	char class[32];

	fprintf(to, "<path class=\"line %s\" d=\"", report_class(s->colour, class, sizeof(class)));
	for (size_t i = 0; i < s->count; i++) {
		const struct report_point *p = &s->points[i];

		if (!isfinite(p->y) || (y->log && p->y <= 0)) {
			pen = false;
			continue;
		}
		fprintf(to, "%c%.1f %.1f", pen ? 'L' : 'M', report_scale_at(x, p->x),
			report_scale_at(y, p->y));
		pen = true;
	}
	fputs("\"/>\n", to);
	/* A point without neighbours makes no line; few points are easier to see as such. */
	for (size_t i = 0; i < s->count; i++) {
		bool before = i && isfinite(s->points[i - 1].y);
		bool after = i + 1 < s->count && isfinite(s->points[i + 1].y);

		if (isfinite(s->points[i].y) && ((!before && !after) || s->count <= 12))
			fprintf(to, "<circle class=\"dot s%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n",
				s->colour % REPORT_COLOURS, report_scale_at(x, s->points[i].x),
				report_scale_at(y, s->points[i].y));
	}
}

static void chart_format_value(enum report_unit unit, double v, char *buf, size_t len)
{
	char number[REPLAY_FORMAT_LEN];

	if (unit == REPORT_NS)
		replay_format_ns(v, "\xc2\xb5", buf, len);
	else
		snprintf(buf, len, "%s%s", replay_format_number(v, number, sizeof(number)),
			 unit == REPORT_PERCENT ? " %" : "");
}

/* A label that may be long, cut between characters: tooltips repeat it hundreds of times. */
static void chart_short_label(FILE *to, const char *label)
{
	char cut[CHART_LABEL + 8];
	size_t len = strlen(label);

	if (len <= CHART_LABEL) {
		report_escape(to, label);
		return;
	}
	len = CHART_LABEL;
	while (len && ((unsigned char)label[len] & 0xc0) == 0x80)
		len--;
	snprintf(cut, sizeof(cut), "%.*s\xe2\x80\xa6", (int)len, label);
	report_escape(to, cut);
}

/* Invisible strips whose tooltip tells the values: an inspection without a script. */
static void chart_draw_hovers(FILE *to, const struct report_lines *chart,
			      const struct report_scale *x)
{
	double width = (CHART_W - CHART_RIGHT - CHART_LEFT) / CHART_HOVERS;
	char value[REPLAY_FORMAT_LEN + 8];

	for (int h = 0; h < CHART_HOVERS; h++) {
		double lo = x->hi * h / CHART_HOVERS, hi = x->hi * (h + 1) / CHART_HOVERS;
		bool any = false;

		for (size_t i = 0; i < chart->count; i++) {
			const struct report_series *s = &chart->series[i];
			size_t k = 0;

			while (k < s->count && (s->points[k].x < lo || !isfinite(s->points[k].y)))
				k++;
			if (k == s->count || s->points[k].x >= hi)
				continue;
			if (!any)
				fprintf(to, "<rect class=\"hover\" x=\"%.1f\" y=\"%g\" "
					    "width=\"%.1f\" height=\"%g\"><title>%.1f s",
					CHART_LEFT + h * width, CHART_TOP, width,
					CHART_H - CHART_TOP - CHART_BOTTOM, s->points[k].x);
			any = true;
			chart_format_value(chart->unit, s->points[k].y, value, sizeof(value));
			fprintf(to, "\n%s  ", value);
			chart_short_label(to, s->label);
		}
		if (any)
			fputs("</title></rect>\n", to);
	}
}

void report_chart_lines(FILE *to, const struct report_lines *chart)
{
	struct report_scale x, y;
	struct chart_extent e;
	bool any = chart_measure(chart, &e);
	bool log_y = chart->unit == REPORT_NS && e.y_min < e.y_max &&
		     e.y_max / e.y_min > CHART_LOG_SPREAD;
	char axis[32];

	chart_open(to, chart->title, chart->unit_text, any && log_y ? "logarithmic" : NULL);
	if (!any) {
		chart_empty(to, chart->empty);
		chart_close(to);
		return;
	}
	report_scale_linear(&x, REPORT_ELAPSED, ceil(e.x_max - 1e-6), true);
	report_scale_place(&x, CHART_LEFT, CHART_W - CHART_RIGHT);
	if (log_y)
		report_scale_log(&y, chart->unit, e.y_min, e.y_max);
	else
		report_scale_linear(&y, chart->unit, chart->fixed_max > 0 ? chart->fixed_max : e.y_max,
				    false);
	report_scale_place(&y, CHART_H - CHART_BOTTOM, CHART_TOP);
	chart_open_svg(to, chart->title);
	if (chart->warmup > 0)
		fprintf(to, "<rect class=\"warmup\" x=\"%g\" y=\"%g\" width=\"%.1f\" height=\"%g\">"
			    "<title>warm-up: not in the averages</title></rect>\n",
			CHART_LEFT, CHART_TOP, report_scale_at(&x, chart->warmup) - CHART_LEFT,
			CHART_H - CHART_TOP - CHART_BOTTOM);
	chart_y_axis(to, &y);
	snprintf(axis, sizeof(axis), "elapsed time, %s", report_scale_elapsed_unit(&x));
	chart_x_axis(to, &x, axis, false);
	for (size_t i = 0; i < chart->count; i++)
		chart_draw_series(to, &chart->series[i], &x, &y);
	chart_draw_hovers(to, chart, &x);
	fputs("</svg>\n", to);
	chart_close(to);
}

static void chart_format_ratio(double ratio, char *buf, size_t len)
{
	snprintf(buf, len, "%.*f\xc3\x97", ratio >= 100 ? 0 : ratio >= 10 ? 1 : 2, ratio);
}

void report_chart_bars(FILE *to, const char *title, const char *unit_text,
		       const struct report_bar *bars, size_t count)
{
	double max = 0;
	char ratio[32];

	chart_open(to, title, unit_text, NULL);
	for (size_t i = 0; i < count; i++)
		max = fmax(max, bars[i].value);
	for (size_t i = 0; i < count; i++) {
		const struct report_bar *b = &bars[i];

		fprintf(to, "<div class=\"bar s%u\"><span class=\"name\" title=\"",
			b->colour % REPORT_COLOURS);
		report_escape(to, b->label);
		fputs("\">", to);
		report_escape(to, b->label);
		fputs("</span><span class=\"value\">", to);
		report_escape(to, b->text);
		fputs("</span><span class=\"ratio\">", to);
		if (b->ratio > 0 && isfinite(b->ratio)) {
			chart_format_ratio(b->ratio, ratio, sizeof(ratio));
			fputs(ratio, to);
		}
		fprintf(to, "</span><span class=\"track\"><i style=\"width:%.2f%%\"></i></span></div>\n",
			max > 0 ? 100 * b->value / max : 0);
	}
	chart_close(to);
}

/* Bands of equal ratio. A sample bucket that lies in two is shared by its width. */
struct chart_bands {
	double lo, ratio; /* band i is [lo * ratio^i, lo * ratio^(i+1)) */
	int count;
	double percent[CHART_MAX_BANDS];
};

static double chart_band_low(const struct chart_bands *b, int i)
{
	return b->lo * pow(b->ratio, i);
}

static void chart_fill_bands(struct chart_bands *b, const struct hist *h)
{
	double total = 0;

	memset(b->percent, 0, sizeof(b->percent));
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		total += (double)h->bucket[i];
	for (unsigned i = 0; total > 0 && i < HIST_BUCKETS; i++) {
		double n = (double)h->bucket[i], low, high;
		int k;

		if (n <= 0)
			continue;
		low = (double)hist_bucket_low(i);
		high = i + 1 < HIST_BUCKETS ? (double)hist_bucket_low(i + 1) : low * 1.03;
		k = low > b->lo ? (int)(log(low / b->lo) / log(b->ratio) + 1e-9) : 0;
		for (; k < b->count && chart_band_low(b, k) < high; k++) {
			double from = fmax(low, chart_band_low(b, k));
			double until = fmin(high, chart_band_low(b, k + 1));

			if (until > from)
				b->percent[k] += 100 * n / total * (until - from) / (high - low);
		}
	}
}

/* The smallest and largest latency of all, in ns; false without samples. */
static bool chart_measure_hists(const struct report_histogram *hists, size_t count, double *lo,
				double *hi)
{
	*lo = INFINITY;
	*hi = 0;
	for (size_t i = 0; i < count; i++)
		for (unsigned k = 0; hists[i].hist && k < HIST_BUCKETS; k++)
			if (hists[i].hist->bucket[k]) {
				double low = (double)hist_bucket_low(k);

				*lo = fmin(*lo, fmax(low, 10));
				*hi = fmax(*hi, fmax(low * 1.04, 11));
			}
	return *hi > 0;
}

static void chart_draw_bands(FILE *to, const struct report_histogram *h,
			     const struct chart_bands *b, const struct report_scale *x,
			     const struct report_scale *y)
{
	double bottom = report_scale_at(y, 0), p99 = (double)hist_percentile(h->hist, 99);
	char class[32];
	int first = 0, last = b->count - 1;

	while (first < last && b->percent[first] <= 0)
		first++;
	while (last > first && b->percent[last] <= 0)
		last--;
	report_class(h->colour, class, sizeof(class));
	/* One shape filled, and its outline on top, for overlaps to stay readable. */
	for (int pass = 0; pass < 2; pass++) {
		fprintf(to, "<path class=\"%s %s\" d=\"M%.1f %.1f", pass ? "line" : "area", class,
			report_scale_at(x, chart_band_low(b, first)), bottom);
		for (int i = first; i <= last; i++)
			fprintf(to, "V%.1fH%.1f", report_scale_at(y, b->percent[i]),
				report_scale_at(x, chart_band_low(b, i + 1)));
		fprintf(to, "V%.1f\"/>\n", bottom);
	}
	if (p99 > 0)
		fprintf(to, "<line class=\"line mark %s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" "
			    "y2=\"%.1f\"/>\n",
			class, report_scale_at(x, p99), report_scale_at(x, p99), CHART_TOP, bottom);
}

static void chart_band_hovers(FILE *to, const struct report_histogram *hists, size_t count,
			      const struct chart_bands *bands, const struct report_scale *x)
{
	char low[REPLAY_FORMAT_LEN], high[REPLAY_FORMAT_LEN];

	for (int i = 0; i < bands[0].count; i++) {
		double from = report_scale_at(x, chart_band_low(&bands[0], i));
		double to_x = report_scale_at(x, chart_band_low(&bands[0], i + 1));

		fprintf(to, "<rect class=\"hover\" x=\"%.1f\" y=\"%g\" width=\"%.1f\" "
			    "height=\"%g\"><title>%s to %s",
			from, CHART_TOP, to_x - from, CHART_H - CHART_TOP - CHART_BOTTOM,
			replay_format_ns(chart_band_low(&bands[0], i), "\xc2\xb5", low, sizeof(low)),
			replay_format_ns(chart_band_low(&bands[0], i + 1), "\xc2\xb5", high,
					 sizeof(high)));
		for (size_t k = 0; k < count; k++) {
			fprintf(to, "\n%.2f %%  ", bands[k].percent[i]);
			chart_short_label(to, hists[k].label);
		}
		fputs("</title></rect>\n", to);
	}
}

static void chart_draw_histograms(FILE *to, const struct report_histogram *hists, size_t count,
				  struct chart_bands *bands, double lo, double hi)
{
	struct report_scale x, y;
	double top = 0;

	report_scale_log(&x, REPORT_NS, lo, hi);
	report_scale_place(&x, CHART_LEFT, CHART_W - CHART_RIGHT);
	for (size_t i = 0; i < count; i++) {
		/* Ten bands a decade, five where that would be too fine for the width. */
		double decades = log10(x.hi / x.lo), per = decades > 7.5 ? 5 : 10;

		bands[i].lo = x.lo;
		bands[i].ratio = pow(10, 1 / per);
		bands[i].count = (int)fmin(CHART_MAX_BANDS, ceil(decades * per - 1e-6));
		chart_fill_bands(&bands[i], hists[i].hist);
		for (int k = 0; k < bands[i].count; k++)
			top = fmax(top, bands[i].percent[k]);
	}
	report_scale_linear(&y, REPORT_PERCENT, top, false);
	report_scale_place(&y, CHART_H - CHART_BOTTOM, CHART_TOP);
	chart_y_axis(to, &y);
	chart_x_axis(to, &x, "time; dashed: 99th percentile", false);
	for (size_t i = 0; i < count; i++)
		chart_draw_bands(to, &hists[i], &bands[i], &x, &y);
	chart_band_hovers(to, hists, count, bands, &x);
}

void report_chart_histogram(FILE *to, const char *title, const char *empty,
			    const struct report_histogram *hists, size_t count)
{
	struct report_histogram *drawn = calloc(count ? count : 1, sizeof(*drawn));
	struct chart_bands *bands = calloc(count ? count : 1, sizeof(*bands));
	double lo, hi;
	size_t n = 0;

	chart_open(to, title, "percent of all, per band", NULL);
	for (size_t i = 0; drawn && i < count; i++)
		if (hists[i].hist && hists[i].hist->count)
			drawn[n++] = hists[i];
	if (bands && chart_measure_hists(drawn, n, &lo, &hi)) {
		chart_open_svg(to, title);
		chart_draw_histograms(to, drawn, n, bands, lo, hi);
		fputs("</svg>\n", to);
	} else {
		chart_empty(to, empty);
	}
	chart_close(to);
	free(drawn);
	free(bands);
}
