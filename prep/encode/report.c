/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - see report.h. The same tables of fields serve for reading and writing. */
#include "prep/encode/report.h"

#include "base/json/field-table.h"
#include "base/memory.h"
#include "prep/raw/raw-sample.h"
#include "prep/raw/utf8.h"

#include <inttypes.h>
#include <string.h>

enum { VALUES_MAX = 1 << 27, ROWS_MAX = 1 << 16 };

#define AT(T, member) .offset = offsetof(T, member), .size = sizeof(((T *)NULL)->member)
#define COUNT(T, key, member)                                                                      \
    {                                                                                              \
        .name = key, .type = FIELD_INT64, .need = JSON_REQUIRED, AT(T, member), .max = INT64_MAX   \
    }
#define TEXT(T, key, member)                                                                       \
    {                                                                                              \
        .name = key, .type = FIELD_VERBATIM, .need = JSON_REQUIRED, AT(T, member)                  \
    }
#define STRING(T, key, member)                                                                     \
    {                                                                                              \
        .name = key, .type = FIELD_STRING, .need = JSON_REQUIRED, AT(T, member)                    \
    }
#define IDENTITY(T)                                                                                \
    {                                                                                              \
        .name = "identity", .type = FIELD_HASH, .need = JSON_REQUIRED, AT(T, identity)             \
    }
#define LIST(T, key, member, count, Element, table, most)                                          \
    {                                                                                              \
        .name = key, .type = FIELD_LIST, .need = JSON_REQUIRED, .offset = offsetof(T, member),     \
        .size = (most), .fields = (table), .n_fields = ELEMENTSOF(table),                          \
        .element_bytes = sizeof(Element), .count_offset = offsetof(T, count)                       \
    }

static const Field row_fields[] = {
    COUNT(RejectRow, "index", index),
    STRING(RejectRow, "key", key),
    TEXT(RejectRow, "reason", reason),
    STRING(RejectRow, "text", text),
};

static const Field file_fields[] = {
    TEXT(PartFile, "name", name),
    COUNT(PartFile, "samples", n_samples),
    COUNT(PartFile, "bytes", n_bytes),
    TEXT(PartFile, "xxh3_64", xxh3_64),
    STRING(PartFile, "samples_xxh3_64", samples),
};

static const Field part_fields[] = {
    IDENTITY(PartReport),
    COUNT(PartReport, "unit", unit),
    COUNT(PartReport, "part", part),
    COUNT(PartReport, "raw", n_raw),
    {.name = "raw_members_xxh3_128", .type = FIELD_HASH, AT(PartReport, raw_members)},
    {.name = "raw_bytes_xxh3_128", .type = FIELD_HASH, AT(PartReport, raw_bytes)},
    {.name = "file",
     .type = FIELD_OBJECT,
     .need = JSON_REQUIRED,
     AT(PartReport, file),
     .fields = file_fields,
     .n_fields = ELEMENTSOF(file_fields)},
    LIST(PartReport, "rejected", rows, n_rows, RejectRow, row_fields, ROWS_MAX),
};

static const Field reason_fields[] = {
    TEXT(ReasonCount, "reason", reason),
    COUNT(ReasonCount, "n", n),
};

static const Field named_fields[] = {STRING(struct NamedKey, "key", key)};

static const Field input_fields[] = {
    COUNT(InputTotals, "units", n_units),
    COUNT(InputTotals, "without_sample", n_no_sample),
    COUNT(InputTotals, "without_end", n_cut),
    COUNT(InputTotals, "damaged", n_damaged),
    COUNT(InputTotals, "members", n_members),
    COUNT(InputTotals, "members_of_no_sample", n_strays),
    COUNT(InputTotals, "member_bytes", member_bytes),
    COUNT(InputTotals, "bytes_of_no_sample", stray_bytes),
    COUNT(InputTotals, "frame_bytes", frame_bytes),
    COUNT(InputTotals, "lost_bytes", lost_bytes),
};

static const Field unit_fields[] = {
    IDENTITY(UnitReport),
    COUNT(UnitReport, "unit", unit),
    STRING(UnitReport, "name", name),
    COUNT(UnitReport, "bytes", n_bytes),
    STRING(UnitReport, "damage", damage),
    {.name = "input",
     .type = FIELD_OBJECT,
     .need = JSON_REQUIRED,
     AT(UnitReport, input),
     .fields = input_fields,
     .n_fields = ELEMENTSOF(input_fields)},
    COUNT(UnitReport, "raw", n_raw),
    COUNT(UnitReport, "parts", n_parts_raw),
    LIST(UnitReport, "files", files, n_files, PartFile, file_fields, REPORT_PARTS_MAX),
    {.name = "rejected",
     .type = FIELD_ARRAY,
     .need = JSON_REQUIRED,
     .offset = offsetof(UnitReport, reasons.counts),
     .size = REPORT_REASONS_MAX,
     .fields = reason_fields,
     .n_fields = ELEMENTSOF(reason_fields),
     .element_bytes = sizeof(ReasonCount),
     .count_offset = offsetof(UnitReport, reasons.n)},
    LIST(UnitReport, "named", named, n_named, struct NamedKey, named_fields, ROWS_MAX),
};

static char *format(const Field *fields, size_t n_fields, const void *record)
{
    _cleanup_json_ json_t *json = json_object();
    field_table_write(json, fields, n_fields, record);
    _cleanup_free_ char *text = memory_given(json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT));
    return memory_format("%s\n", text);
}

static int parse(const char *source, const char *text, size_t n_bytes, const Field *fields,
                 size_t n_fields, void *record, Error *err)
{
    _cleanup_json_ json_t *json = NULL;
    int r = json_parse_bounded(source, text, n_bytes, VALUES_MAX, &json, err);
    if (r < 0)
        return r;
    JsonReader reader = json_open(source, json, JSON_ANY_KEYS, err);
    field_table_read(&reader, fields, n_fields, record);
    return json_close(&reader);
}

char *report_name(const char *name) { return memory_given(utf8_make(name, strlen(name))); }

/* ---- parts ---- */

enum { SAMPLE_HASH_DIGITS = 16 };

char *part_file_hashes(const uint64_t *hashes, size_t n)
{
    char *text = memory_zeroed(n * SAMPLE_HASH_DIGITS + 1, 1);
    for (size_t i = 0; i < n; i++)
        (void)snprintf(text + i * SAMPLE_HASH_DIGITS, SAMPLE_HASH_DIGITS + 1, "%016" PRIx64,
                       hashes[i]);
    return text;
}

uint64_t part_file_sample(const PartFile *file, int64_t sample)
{
    char digits[SAMPLE_HASH_DIGITS + 1] = "";
    memcpy(digits, file->samples + sample * SAMPLE_HASH_DIGITS, SAMPLE_HASH_DIGITS);
    return strtoull(digits, NULL, 16);
}

static int check_file(const char *source, const PartFile *file, Error *err)
{
    size_t n = file->samples ? strlen(file->samples) : 0;
    if ((uint64_t)file->n_samples == n / SAMPLE_HASH_DIGITS && n % SAMPLE_HASH_DIGITS == 0 &&
        (n == 0 || strspn(file->samples, "0123456789abcdef") == n))
        return 0;
    return error_set(err, -EINVAL, "%s: samples_xxh3_64: no %" PRId64 " hashes", source,
                     file->n_samples);
}

char *report_key(const char *key)
{
    size_t n = strlen(key);
    return memory_bytes(key, n > REPORT_KEY_MAX ? utf8_prefix(key, REPORT_KEY_MAX) : n);
}

void part_report_clear(PartReport *report)
{
    for (size_t i = 0; i < report->n_rows; i++) {
        free(report->rows[i].key);
        free(report->rows[i].text);
    }
    free(report->rows);
    free(report->file.samples);
    *report = (PartReport){0};
}

void part_report_add(PartReport *report, int64_t index, const char *key, const char *reason,
                     const char *text)
{
    report->rows = memory_grow(report->rows, report->n_rows, &report->room, sizeof(RejectRow));
    RejectRow *row = &report->rows[report->n_rows++];
    *row = (RejectRow){.index = index,
                       .key = report_key(key),
                       .text = memory_given(utf8_make(text, strlen(text)))};
    (void)snprintf(row->reason, sizeof(row->reason), "%s", reason);
}

void part_report_take_rows(PartReport *all, PartReport *part)
{
    for (size_t i = 0; i < part->n_rows; i++) {
        all->rows = memory_grow(all->rows, all->n_rows, &all->room, sizeof(RejectRow));
        all->rows[all->n_rows++] = part->rows[i];
    }
    part->n_rows = 0;
}

static int compare_rows(const void *a, const void *b)
{
    int64_t x = ((const RejectRow *)a)->index, y = ((const RejectRow *)b)->index;
    return (x > y) - (x < y);
}

void part_report_sort(PartReport *report)
{
    if (report->n_rows > 0)
        qsort(report->rows, report->n_rows, sizeof(report->rows[0]), compare_rows);
}

char *part_report_format(const PartReport *report)
{
    return format(part_fields, ELEMENTSOF(part_fields), report);
}

int part_report_parse(const char *source, const char *text, size_t n_bytes, PartReport *ret,
                      Error *err)
{
    PartReport report = {0};
    int r = parse(source, text, n_bytes, part_fields, ELEMENTSOF(part_fields), &report, err);
    if (r == 0)
        r = check_file(source, &report.file, err);
    if (r < 0) {
        part_report_clear(&report);
        return r;
    }
    report.room = report.n_rows;
    *ret = report;
    return 0;
}

char *part_report_rows(const PartReport *report)
{
    size_t n = 0, room = 0;
    char *text = NULL;
    for (size_t i = 0; i < report->n_rows; i++) {
        _cleanup_free_ char *row = format(row_fields, ELEMENTSOF(row_fields), &report->rows[i]);
        size_t n_row = strlen(row);
        if (n + n_row + 1 > room) {
            room = 2 * (n + n_row + 1);
            text = memory_resize(text, room, 1);
        }
        memcpy(text + n, row, n_row + 1);
        n += n_row;
    }
    return text ? text : memory_text("");
}

int part_report_parse_rows(const char *source, const char *text, size_t n_bytes, PartReport *ret,
                           Error *err)
{
    _cleanup_(part_report_clear) PartReport all = {0};
    for (const char *end = text + n_bytes; text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((newline ? newline : end) - text);
        RejectRow row = {0};
        int r = parse(source, text, n, row_fields, ELEMENTSOF(row_fields), &row, err);
        if (r == 0 && all.n_rows > 0 && row.index <= all.rows[all.n_rows - 1].index)
            r = error_set(err, -EINVAL, "%s: its rows are not in order of index", source);
        if (r < 0) {
            free(row.key);
            free(row.text);
            return r;
        }
        all.rows = memory_grow(all.rows, all.n_rows, &all.room, sizeof(RejectRow));
        all.rows[all.n_rows++] = row;
        text += n + 1;
    }
    *ret = all;
    all = (PartReport){0};
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    const RejectRow *x = *(RejectRow *const *)a, *y = *(RejectRow *const *)b;
    int r = strcmp(x->key, y->key);
    return r != 0 ? r : (x->index > y->index) - (x->index < y->index);
}

static bool is_apart(const RejectRow *row)
{
    return strcmp(row->reason, raw_reason_name(RAW_APART)) == 0;
}

static bool lacks_a_member(const RejectRow *row)
{
    return strcmp(row->reason, raw_reason_name(RAW_NO_CAPTION)) == 0 ||
           strcmp(row->reason, raw_reason_name(RAW_NO_IMAGE)) == 0;
}

bool part_report_join_halves(PartReport *all)
{
    size_t n = 0;
    _cleanup_free_ RejectRow **rows = memory_zeroed(all->n_rows + 1, sizeof(RejectRow *));
    for (size_t i = 0; i < all->n_rows; i++)
        if (is_apart(&all->rows[i]) || lacks_a_member(&all->rows[i]))
            rows[n++] = &all->rows[i];
    qsort(rows, n, sizeof(RejectRow *), compare_keys);
    bool any = false;
    for (size_t i = 1; i < n; i++) {
        RejectRow *first = rows[i - 1];
        if (!is_apart(rows[i]) || !lacks_a_member(first) || strcmp(first->key, rows[i]->key) != 0)
            continue;
        memcpy(first->reason, rows[i]->reason, sizeof(first->reason));
        free(first->text);
        first->text = memory_text(rows[i]->text);
        any = true;
    }
    return any;
}

/* ---- units ---- */

void unit_report_clear(UnitReport *report)
{
    for (size_t i = 0; i < report->n_named; i++)
        free(report->named[i].key);
    free(report->named);
    free(report->name);
    free(report->damage);
    for (size_t i = 0; i < report->n_files; i++)
        free(report->files[i].samples);
    free(report->files);
    *report = (UnitReport){0};
}

void unit_report_add(UnitReport *report, const PartReport *part)
{
    report->n_raw += part->n_raw;
    report->n_parts_raw++;
    for (size_t i = 0; i < part->n_rows; i++) {
        reasons_add(&report->reasons, part->rows[i].reason, 1);
        if (strcmp(part->rows[i].reason, "named") != 0)
            continue;
        report->named = memory_grow(report->named, report->n_named, &report->named_room,
                                    sizeof(*report->named));
        report->named[report->n_named++].key = memory_text(part->rows[i].key);
    }
    if (!*part->file.name)
        return;
    report->files =
        memory_grow(report->files, report->n_files, &report->room, sizeof(*report->files));
    PartFile *file = &report->files[report->n_files++];
    *file = part->file;
    file->samples = memory_text(part->file.samples ? part->file.samples : "");
}

void unit_report_count(UnitReport *report, const PartReport *all)
{
    report->reasons = (Reasons){0};
    for (size_t i = 0; i < all->n_rows; i++)
        reasons_add(&report->reasons, all->rows[i].reason, 1);
}

char *unit_report_format(const UnitReport *report)
{
    return format(unit_fields, ELEMENTSOF(unit_fields), report);
}

int unit_report_parse(const char *source, const char *text, size_t n_bytes, UnitReport *ret,
                      Error *err)
{
    UnitReport report = {0};
    int r = parse(source, text, n_bytes, unit_fields, ELEMENTSOF(unit_fields), &report, err);
    for (size_t i = 0; r == 0 && i < report.n_files; i++)
        r = check_file(source, &report.files[i], err);
    if (r < 0) {
        unit_report_clear(&report);
        return r;
    }
    report.room = report.n_files;
    report.named_room = report.n_named;
    *ret = report;
    return 0;
}

/* ---- input ---- */

json_t *input_totals_json(const InputTotals *totals)
{
    json_t *json = json_object();
    field_table_write(json, input_fields, ELEMENTSOF(input_fields), totals);
    return json;
}

void input_totals_add(InputTotals *totals, const InputTotals *more)
{
    totals->n_units += more->n_units;
    totals->n_no_sample += more->n_no_sample;
    totals->n_cut += more->n_cut;
    totals->n_damaged += more->n_damaged;
    totals->n_members += more->n_members;
    totals->n_strays += more->n_strays;
    totals->member_bytes += more->member_bytes;
    totals->stray_bytes += more->stray_bytes;
    totals->frame_bytes += more->frame_bytes;
    totals->lost_bytes += more->lost_bytes;
}

int64_t input_totals_bad(const InputTotals *totals)
{
    return totals->n_no_sample + totals->n_cut + totals->n_damaged;
}

static size_t append_count(char *text, size_t size, size_t used, const char *what, int64_t n)
{
    return n > 0 && used < size
               ? used + (size_t)snprintf(text + used, size - used, "%s %" PRId64, what, n)
               : used;
}

const char *input_totals_format(const InputTotals *totals, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "units: %" PRId64, totals->n_units);
    n = append_count(text, size, n, ", without a sample", totals->n_no_sample);
    n = append_count(text, size, n, ", without an end", totals->n_cut);
    n = append_count(text, size, n, ", damaged", totals->n_damaged);
    n = append_count(text, size, n, "; members:", totals->n_members + totals->n_strays);
    n = append_count(text, size, n, ", of no sample", totals->n_strays);
    n = append_count(text, size, n, "; lost bytes:", totals->lost_bytes);
    return text;
}

/* ---- reasons ---- */

void reasons_add(Reasons *reasons, const char *reason, int64_t n)
{
    size_t at = 0;
    while (at < reasons->n && strcmp(reasons->counts[at].reason, reason) < 0)
        at++;
    if (at == reasons->n || strcmp(reasons->counts[at].reason, reason) != 0) {
        /* The columns of a recipe limit the number of reasons. Further reasons in a foreign report are added to an
         * existing count. */
        if (reasons->n == REPORT_REASONS_MAX) {
            reasons->counts[MIN(at, reasons->n - 1)].n += n;
            return;
        }
        memmove(&reasons->counts[at + 1], &reasons->counts[at],
                (reasons->n - at) * sizeof(reasons->counts[0]));
        reasons->counts[at] = (ReasonCount){0};
        (void)snprintf(reasons->counts[at].reason, sizeof(reasons->counts[at].reason), "%s",
                       reason);
        reasons->n++;
    }
    reasons->counts[at].n += n;
}

const char *reasons_format(const Reasons *reasons, char *text, size_t size)
{
    size_t n = 0;
    (void)snprintf(text, size, "none");
    for (size_t i = 0; i < reasons->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64 " %s", i ? ", " : "",
                              reasons->counts[i].n, reasons->counts[i].reason);
    return text;
}
