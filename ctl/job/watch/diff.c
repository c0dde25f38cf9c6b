/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - `sdctl job diff`: shows in which keys two jobs, job files or checkpoints differ, and whether the second can
 * resume from the checkpoints of the first. */
#include "base/json/json-diff.h"
#include "base/memory.h"
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/job/watch/diff-side.h"
#include "ctl/print.h"
#include "ctl/table.h"

#include <string.h>

enum { WHY_BYTES = 500 };

typedef enum GoesOn { GOES_ON_NO, GOES_ON_YES, GOES_ON_UNKNOWN } GoesOn;

typedef struct Diff {
    DiffSide a, b;
    json_t *rows; /* {"key", "a", "b", "bits"} */
    bool bits;    /* rows that are added now are about keys that may change a bit of the weights */
    size_t n_bits;
    GoesOn goes_on;
    char why[WHY_BYTES];
} Diff;

/* ---- comparing ---- */

static void add_row(void *context, const char *key, const json_t *a, const json_t *b)
{
    Diff *d = context;
    json_array_append_new(d->rows, json_pack("{s:s, s:o, s:o, s:b}", "key", key, "a",
                                             a ? json_deep_copy(a) : json_null(), "b",
                                             b ? json_deep_copy(b) : json_null(), "bits", d->bits));
    d->n_bits += d->bits;
}

/* Adds a row only if both sides have the key. A key that only one side has may be of a newer version, or the
 * other side could not be read. */
static void add_known(void *context, const char *key, const json_t *a, const json_t *b)
{
    if (a && b)
        add_row(context, key, a, b);
}

/* Adds a row unless a value is unknown. A value that is missing on a side without an identity is unknown. On a side
 * with an identity, a missing hash means that there was nothing to hash. */
static void add_term(void *context, const char *key, const json_t *a, const json_t *b)
{
    const Diff *d = context;
    if ((a || d->a.has_identity) && (b || d->b.has_identity))
        add_row(context, key, a, b);
}

static bool has_row(const Diff *d, const char *key)
{
    json_t *row;
    size_t i;
    json_array_foreach (d->rows, i, row)
        if (strcmp(json_text(row, "key"), key) == 0)
            return true;
    return false;
}

/* Tells whether a key of the file needs no row, because the terms cover it with defaults filled in, or because the
 * key makes no difference between two jobs. */
static bool is_reported(const Diff *d, const char *key)
{
    static const char *const parts[] = {"train.ema", "train.noise_schedule", "train.optimizer",
                                        "model.init.optimizer"};
    if (strcmp(key, "name") == 0 || has_row(d, key))
        return true;
    if (!d->a.terms || !d->b.terms)
        return false;
    for (size_t i = 0; i < ELEMENTSOF(parts); i++)
        if (strncmp(key, parts[i], strlen(parts[i])) == 0)
            return true;
    return strcmp(key, "model.init") != 0 && /* a URI, which the identity does not cover */
           (json_object_get(d->a.terms, key) || json_object_get(d->b.terms, key));
}

static void add_of_file(void *context, const char *key, const json_t *a, const json_t *b)
{
    if (!is_reported(context, key))
        add_row(context, key, a, b);
}

/* Adds a row with two hashes, for a difference that no other row explains. */
static void add_hashes(Diff *d, const char *key, Hash a, Hash b)
{
    _cleanup_json_ json_t *was = json_hash(a), *is = json_hash(b);
    add_row(d, key, was, is);
}

static void compare(Diff *d)
{
    const DiffSide *a = &d->a, *b = &d->b;
    d->rows = json_array();
    d->bits = true;
    if (a->terms && b->terms)
        (void)json_each_difference(a->terms, b->terms, add_term, d); /* fills d->rows */
    if (d->n_bits == 0 && a->has_identity && b->has_identity &&
        !hash_equal(a->identity, b->identity))
        add_hashes(d, "job identity", a->identity, b->identity);
    const size_t before = d->n_bits;
    if (a->data && b->data)
        (void)json_each_difference(a->data, b->data, add_known, d); /* fills d->rows */
    if (d->n_bits == before && a->has_digest && b->has_digest && !hash_equal(a->digest, b->digest))
        add_hashes(d, "dataset digest", a->digest, b->digest);
    if (a->computes && b->computes)
        (void)json_each_difference(a->computes, b->computes, add_row, d); /* fills d->rows */
    d->bits = false;
    if (a->file && b->file)
        (void)json_each_difference(a->file, b->file, add_of_file, d); /* fills d->rows */
}

/* Tells whether the data of both sides are known well enough to compare them. */
static bool knows_data(const DiffSide *a, const DiffSide *b)
{
    return (a->has_digest && b->has_digest) || (a->data && b->data);
}

static void print_differences(Diff *d)
{
    json_t *row;
    size_t i, used = 0;
    json_array_foreach (d->rows, i, row) {
        const char *key = json_text(row, "key");
        if (json_is_true(json_object_get(row, "bits")) && used + strlen(key) + 16 < WHY_BYTES)
            used +=
                (size_t)snprintf(d->why + used, WHY_BYTES - used, "%s%s", used ? ", " : "", key);
    }
    (void)snprintf(d->why + used, WHY_BYTES - used, " differ%s", d->n_bits == 1 ? "s" : "");
}

static void judge(Diff *d)
{
    const DiffSide *unknown = !d->a.has_identity ? &d->a : !d->b.has_identity ? &d->b : NULL;
    if (d->n_bits > 0) {
        d->goes_on = GOES_ON_NO;
        print_differences(d);
    } else if (unknown || !knows_data(&d->a, &d->b)) {
        d->goes_on = GOES_ON_UNKNOWN;
        (void)snprintf(d->why, sizeof(d->why), "%s%s is not known",
                       unknown ? "the identity of " : "whether the data are the same",
                       unknown ? unknown->name : "");
    } else {
        d->goes_on = GOES_ON_YES;
        (void)snprintf(d->why, sizeof(d->why), "nothing differs that may change a bit");
    }
}

/* ---- output ---- */

static void add_values(Table *t, const json_t *a, const json_t *b)
{
    _cleanup_free_ char *text_a = NULL, *text_b = NULL;
    json_value_texts(a, b, &text_a, &text_b);
    table_add(t, PAINT_NONE, "%s", json_is_null(a) ? "-" : text_a);
    table_add(t, PAINT_NONE, "%s", json_is_null(b) ? "-" : text_b);
}

static const char *older_text(const DiffSide *side)
{
    return side->has_identity && !side->terms ? side->name : NULL;
}

/* Makes the column head: a job's name, or the last part of a path, or for a manifest.json the name of its folder. */
static void head_of(const char *name, char *ret, size_t size)
{
    const size_t n = strlen(name);
    const char *slash = strrchr(name, '/');
    const size_t end = slash && strcmp(slash, "/manifest.json") == 0 ? (size_t)(slash - name) : n;
    size_t from = end;
    while (from > 0 && name[from - 1] != '/')
        from--;
    (void)snprintf(ret, size, "%.*s", (int)(end - from), name + from);
}

static void print_rows(const Diff *d)
{
    char first[80], second[80];
    head_of(d->a.name, first, sizeof(first));
    head_of(d->b.name, second, sizeof(second));
    const char *heads[] = {"KEY", first, second, "CHANGES BITS"};
    Table *t = table_new(heads, ELEMENTSOF(heads));
    json_t *row;
    size_t i;
    json_array_foreach (d->rows, i, row) {
        table_add(t, PAINT_NONE, "%s", json_text(row, "key"));
        add_values(t, json_object_get(row, "a"), json_object_get(row, "b"));
        table_add(t, PAINT_NONE, json_is_true(json_object_get(row, "bits")) ? "yes" : "no");
    }
    table_print(t);
}

static void print_text(const Diff *d)
{
    static const char *const verdicts[] = {"would not go on", "would go on", "may go on"};
    const char *older = older_text(&d->a) ?: older_text(&d->b);
    if (json_array_size(d->rows) > 0)
        print_rows(d);
    else
        printf("no key differs\n");
    if (older)
        printf("of %s only the hashes are known: an earlier version wrote it\n", older);
    for (size_t i = 0; i < d->a.n_notes; i++)
        printf("%s\n", d->a.notes[i]);
    for (size_t i = 0; i < d->b.n_notes; i++)
        printf("%s\n", d->b.notes[i]);
    printf("%s %s from the checkpoints of %s: %s\n", d->b.name, verdicts[d->goes_on], d->a.name,
           d->why);
}

static json_t *diff_json(const Diff *d)
{
    json_t *notes = json_array();
    for (size_t i = 0; i < d->a.n_notes; i++)
        json_array_append_new(notes, json_string(d->a.notes[i]));
    for (size_t i = 0; i < d->b.n_notes; i++)
        json_array_append_new(notes, json_string(d->b.notes[i]));
    return json_pack("{s:s, s:s, s:O, s:o, s:s, s:o}", "a", d->a.name, "b", d->b.name,
                     "differences", d->rows, "goes_on",
                     d->goes_on == GOES_ON_UNKNOWN ? json_null()
                                                   : json_boolean(d->goes_on == GOES_ON_YES),
                     "why", d->why, "notes", notes);
}

static int read_both(const Arguments *a, Diff *d, Error *err)
{
    _cleanup_(model_freep) Model *model = NULL;
    int r = 0;
    if (diff_side_is_job(a->operand) || diff_side_is_job(a->second))
        r = model_open(&a->client, &model, err);
    if (r == 0)
        r = diff_side_read(a->operand, model, &d->a, err);
    return r < 0 ? r : diff_side_read(a->second, model, &d->b, err);
}

int job_diff(const Arguments *a)
{
    Error err = ERROR_INIT;
    Diff d = {0};
    if (!a->second)
        return arguments_refuse(a->verb, "two are needed: a job, a job file or a manifest.json "
                                         "each");
    int r = read_both(a, &d, &err);
    if (r == 0) {
        compare(&d);
        judge(&d);
    }
    if (r == 0 && a->json)
        print_json(diff_json(&d));
    else if (r == 0)
        print_text(&d);
    json_decref(d.rows);
    diff_side_clear(&d.a);
    diff_side_clear(&d.b);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}
