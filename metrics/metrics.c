/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - see metrics.h.
 *
 * The key of a series is the text of its labels as Prometheus reads it, and series are sorted by this key. So one
 * string serves for lookup and for output. */
#include "metrics/metrics.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { KEY_BYTES = 768 };

typedef struct Series {
    char *key;    /* job="a",phase="stop"; "" without labels */
    double value; /* for SUMMARY and HISTOGRAM: the sum */
    uint64_t count;
    uint64_t *buckets; /* n_bounds counts, not cumulative; metrics_write() adds them up */
} Series;

typedef struct Family {
    const MetricFamily *family;
    Series *series; /* sorted by key */
    size_t n, size;
} Family;

struct Metrics {
    Family *families;
    size_t n, n_series;
    uint64_t dropped;
};

Metrics *metrics_new(const MetricFamily *table, size_t n)
{
    Metrics *m = memory_new(Metrics);
    m->families = memory_zeroed(n, sizeof(*m->families));
    m->n = n;
    for (size_t i = 0; i < n; i++)
        m->families[i].family = &table[i];
    return m;
}

static void series_clear(Series *s)
{
    free(s->key);
    free(s->buckets);
}

static void family_forget(Metrics *m, Family *f)
{
    for (size_t i = 0; i < f->n; i++)
        series_clear(&f->series[i]);
    assert(m->n_series >= f->n);
    m->n_series -= f->n;
    f->n = 0;
}

Metrics *metrics_free(Metrics *m)
{
    if (!m)
        return NULL;
    for (size_t i = 0; i < m->n; i++) {
        family_forget(m, &m->families[i]);
        free(m->families[i].series);
    }
    free(m->families);
    free(m);
    return NULL;
}

/* ---- keys ---- */

typedef struct Key {
    char text[KEY_BYTES];
    size_t n;
    bool cut;
} Key;

static void key_put(Key *key, char c)
{
    if (key->n + 1 < sizeof(key->text))
        key->text[key->n++] = c;
    else
        key->cut = true;
}

static void key_add_pair(Key *key, const char *label, const char *value)
{
    for (const char *p = label; *p; p++)
        key_put(key, *p);
    key_put(key, '=');
    key_put(key, '"');
    for (const char *p = value; *p; p++) {
        if (*p == '\\' || *p == '"' || *p == '\n')
            key_put(key, '\\');
        key_put(key, *p == '\n' ? 'n' : *p);
    }
    key_put(key, '"');
}

static bool key_make(Key *key, const MetricFamily *family, const MetricLabels *labels)
{
    key->n = 0;
    key->cut = false;
    for (int i = 0; i < METRIC_LABELS_MAX && family->labels[i]; i++) {
        assert(labels->values[i]);
        if (i > 0)
            key_put(key, ',');
        key_add_pair(key, family->labels[i], labels->values[i]);
    }
    key->text[key->n] = '\0';
    return !key->cut;
}

/* Returns the index of the key, or the index where it must be inserted. */
static size_t position_of(const Family *f, const char *key, bool *ret_found)
{
    size_t from = 0, to = f->n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        int order = strcmp(f->series[middle].key, key);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    *ret_found = false;
    return from;
}

static Series *insert(Metrics *m, Family *f, size_t at, const char *key)
{
    if (m->n_series >= METRICS_SERIES_MAX)
        return NULL;
    f->series = memory_grow(f->series, f->n, &f->size, sizeof(*f->series));
    Series made = {.key = memory_text(key)};
    if (f->family->kind == METRIC_HISTOGRAM)
        made.buckets = memory_zeroed(f->family->n_bounds, sizeof(*made.buckets));
    assert(at <= f->n && f->n < f->size);
    memmove(&f->series[at + 1], &f->series[at], (f->n - at) * sizeof(*f->series));
    f->series[at] = made;
    f->n++;
    m->n_series++;
    return &f->series[at];
}

/* Returns the series with these labels, and makes it if necessary. NULL: there are too many series, or the key is too
 * long. */
static Series *series_get(Metrics *m, int family, const MetricLabels *labels)
{
    assert(family >= 0 && (size_t)family < m->n);
    Family *f = &m->families[family];
    Key key;
    bool found = false;
    Series *series = NULL;
    if (key_make(&key, f->family, labels)) {
        size_t at = position_of(f, key.text, &found);
        series = found ? &f->series[at] : insert(m, f, at, key.text);
    }
    m->dropped += !series;
    return series;
}

/* ---- values ---- */

static MetricKind kind_of(const Metrics *m, int family) { return m->families[family].family->kind; }

void metrics_set(Metrics *m, int family, MetricLabels labels, double value)
{
    if (!m)
        return;
    assert(kind_of(m, family) == METRIC_GAUGE || kind_of(m, family) == METRIC_COUNTER);
    Series *s = series_get(m, family, &labels);
    if (s)
        s->value = value;
}

void metrics_know(Metrics *m, int family, MetricLabels labels)
{
    if (!m)
        return;
    assert(kind_of(m, family) != METRIC_GAUGE);
    (void)series_get(m, family, &labels); /* the result is not needed */
}

void metrics_add(Metrics *m, int family, MetricLabels labels, double by)
{
    if (!m)
        return;
    assert(kind_of(m, family) == METRIC_COUNTER && by >= 0);
    Series *s = series_get(m, family, &labels);
    if (s)
        s->value += by;
}

void metrics_observe(Metrics *m, int family, MetricLabels labels, double value)
{
    if (!m)
        return;
    assert(kind_of(m, family) == METRIC_HISTOGRAM);
    Series *s = series_get(m, family, &labels);
    if (!s)
        return;
    const MetricFamily *f = m->families[family].family;
    size_t i = 0;
    while (i < f->n_bounds && !(value <= f->bounds[i]))
        i++;
    if (i < f->n_bounds)
        s->buckets[i]++;
    s->value += value;
    s->count++;
}

void metrics_observe_sum(Metrics *m, int family, MetricLabels labels, double sum, uint64_t n)
{
    if (!m)
        return;
    assert(kind_of(m, family) == METRIC_SUMMARY);
    Series *s = series_get(m, family, &labels);
    if (!s)
        return;
    s->value += sum;
    s->count += n;
}

void metrics_forget_gauges(Metrics *m)
{
    for (size_t i = 0; m && i < m->n; i++)
        if (m->families[i].family->kind == METRIC_GAUGE)
            family_forget(m, &m->families[i]);
}

/* Tells whether the key contains the pair label="value". Quotes inside values are escaped, so the pair's text cannot
 * occur inside a value. */
static bool key_has(const char *key, const Key *pair)
{
    for (const char *p = key; (p = strstr(p, pair->text)); p++)
        if (p == key || p[-1] == ',')
            return true;
    return false;
}

void metrics_forget(Metrics *m, const char *label, const char *value)
{
    Key pair = {.n = 0};
    key_add_pair(&pair, label, value);
    pair.text[pair.n] = '\0';
    for (size_t i = 0; m && i < m->n; i++) {
        Family *f = &m->families[i];
        size_t kept = 0;
        for (size_t k = 0; k < f->n; k++) {
            if (key_has(f->series[k].key, &pair))
                series_clear(&f->series[k]);
            else
                f->series[kept++] = f->series[k];
        }
        m->n_series -= f->n - kept;
        f->n = kept;
    }
}

uint64_t metrics_dropped(const Metrics *m) { return m ? m->dropped : 0; }

/* ---- the text ---- */

/* Writes the number with 15 digits, or with 17 if 15 do not give the same number when read back. */
static void write_number(FILE *to, double value)
{
    char text[32];
    if (isnan(value) || isinf(value)) {
        (void)fputs(isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf", to);
        return;
    }
    (void)snprintf(text, sizeof(text), "%.15g", value);
    if (strtod(text, NULL) != value)
        (void)snprintf(text, sizeof(text), "%.17g", value);
    (void)fputs(text, to);
}

static void write_sample(FILE *to, const char *name, const char *suffix, const char *key,
                         double value)
{
    (void)fprintf(to, *key ? "%s%s{%s} " : "%s%s%s ", name, suffix, key);
    write_number(to, value);
    (void)fputc('\n', to);
}

static void write_buckets(FILE *to, const MetricFamily *f, const Series *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < f->n_bounds; i++) {
        n += s->buckets[i];
        (void)fprintf(to, "%s_bucket{%s%sle=\"%g\"} %llu\n", f->name, s->key, *s->key ? "," : "",
                      f->bounds[i], (unsigned long long)n);
    }
    (void)fprintf(to, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", f->name, s->key, *s->key ? "," : "",
                  (unsigned long long)s->count);
}

static void write_family(FILE *to, const Family *family)
{
    static const char *const type_names[] = {"gauge", "counter", "summary", "histogram"};
    const MetricFamily *f = family->family;
    (void)fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name,
                  type_names[f->kind]);
    for (size_t i = 0; i < family->n; i++) {
        const Series *s = &family->series[i];
        if (f->kind == METRIC_GAUGE || f->kind == METRIC_COUNTER) {
            write_sample(to, f->name, "", s->key, s->value);
            continue;
        }
        if (f->kind == METRIC_HISTOGRAM)
            write_buckets(to, f, s);
        write_sample(to, f->name, "_sum", s->key, s->value);
        write_sample(to, f->name, "_count", s->key, (double)s->count);
    }
}

void metrics_write(const Metrics *m, unsigned groups, FILE *to)
{
    for (size_t i = 0; m && i < m->n; i++) {
        const Family *f = &m->families[i];
        if (f->n > 0 && (f->family->group == 0 || (f->family->group & groups)))
            write_family(to, f);
    }
}
