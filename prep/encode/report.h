/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - what became of a part and of a unit, as it lies in the output folder.
 *
 * A report is a function of what was encoded, as shards are: nothing of when, by whom or how fast.
 *
 * Ownership: *_clear() frees what a report points to and leaves zeros. Texts are the caller's.
 * Units:     samples, bytes.
 * Errors:    -EINVAL a text that is not a report, with its source and key; -ENOMEM.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

#include <jansson.h>

enum {
    REPORT_REASON_MAX = 127,
    REPORT_REASONS_MAX = 128, /* kinds of reasons of a unit */
    REPORT_PARTS_MAX = 1 << 24,
    REPORT_KEY_MAX = 1000, /* bytes of a key in a row; the rest is cut off */
};

typedef struct RejectRow {
    int64_t index; /* in the unit */
    char *key, *text;
    char reason[REPORT_REASON_MAX + 1];
} RejectRow;

typedef struct PartFile { /* a shard */
    char name[64];        /* "": no sample of the part was left */
    int64_t n_samples, n_bytes;
    char xxh3_64[17];
    char *samples; /* xxh3_64 of each sample, one after another; NULL: as "" */
} PartFile;

typedef struct PartReport {
    Hash identity;
    int64_t unit, part;
    int64_t n_raw; /* samples that were looked at */
    /* Hashes of what they are made of (RawProof); zeros: nobody has said it. */
    Hash raw_members, raw_bytes;
    PartFile file;
    RejectRow *rows; /* in order of index */
    size_t n_rows, room;
} PartReport;

typedef struct ReasonCount {
    char reason[REPORT_REASON_MAX + 1];
    int64_t n;
} ReasonCount;

typedef struct Reasons {
    ReasonCount counts[REPORT_REASONS_MAX]; /* sorted by reason */
    size_t n;
} Reasons;

/* How many units were read, and their members and bytes, which together are the input's. */
typedef struct InputTotals {
    int64_t n_units, n_no_sample, n_cut, n_damaged; /* the first has all of them */
    int64_t n_members, n_strays;                    /* members of samples, and of none */
    int64_t member_bytes, stray_bytes, frame_bytes, lost_bytes;
} InputTotals;

typedef struct UnitReport {
    Hash identity;
    int64_t unit, n_bytes; /* of the raw unit */
    char *name, *damage;   /* "": it is whole, and has a sample */
    InputTotals input;     /* of one unit */
    int64_t n_raw, n_parts_raw;
    PartFile *files; /* of the parts that have one */
    size_t n_files, room;
    Reasons reasons;
    struct NamedKey {
        char *key;
    } * named; /* keys that were left out since somebody said so */
    size_t n_named, named_room;
} UnitReport;

/* A name as reports have it, which are UTF-8. The caller's. */
char *report_name(const char *name);
/* Makes the text of n hashes, one after another. The caller's. */
char *part_file_hashes(const uint64_t *hashes, size_t n);
/* Reads the hash of a sample of a file that was checked. */
uint64_t part_file_sample(const PartFile *file, int64_t sample);
/* A key as rows have it: its first REPORT_KEY_MAX bytes. The caller's. */
char *report_key(const char *key);
void part_report_clear(PartReport *report);
void part_report_add(PartReport *report, int64_t index, const char *key, const char *reason,
                     const char *text);
/* Moves the rows of a later part behind those of earlier ones. */
void part_report_take_rows(PartReport *all, PartReport *part);
/* Orders the rows, which come as pictures are decoded. */
void part_report_sort(PartReport *report);
char *part_report_format(const PartReport *report);
int part_report_parse(const char *source, const char *text, size_t n_bytes, PartReport *ret,
                      Error *err);
/* Rows as lines of JSON. */
char *part_report_rows(const PartReport *report);
/* Reads such lines, of any number of parts, as rows of one. */
int part_report_parse_rows(const char *source, const char *text, size_t n_bytes, PartReport *ret,
                           Error *err);

/* Members of a key that do not lie together give two rows of a unit, and the first was written before that was known:
 * gives it the second one's reason and text. True: there were such. */
bool part_report_join_halves(PartReport *all);

void unit_report_clear(UnitReport *report);
void unit_report_add(UnitReport *report, const PartReport *part);
/* Counts the reasons anew, by all rows of the unit. */
void unit_report_count(UnitReport *report, const PartReport *all);
char *unit_report_format(const UnitReport *report);
int unit_report_parse(const char *source, const char *text, size_t n_bytes, UnitReport *ret,
                      Error *err);

/* As in a unit's report. */
json_t *input_totals_json(const InputTotals *totals);
void input_totals_add(InputTotals *totals, const InputTotals *more);
/* Units that are not whole or hold no sample. */
int64_t input_totals_bad(const InputTotals *totals);
/* "units: 5, without a sample 1, without an end 1, damaged 1; members: 20, of no sample 2; lost bytes: 512". */
const char *input_totals_format(const InputTotals *totals, char *text, size_t size);

void reasons_add(Reasons *reasons, const char *reason, int64_t n);
/* "12 decode, 3 no-caption", or "none". */
const char *reasons_format(const Reasons *reasons, char *text, size_t size);
