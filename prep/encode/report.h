/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the reports on a part and on a unit, as they are stored in the output folder.
 *
 * Like a shard, a report depends only on what was encoded: it has no times, no hosts and no rates.
 *
 * Ownership: *_clear() frees everything in a report and leaves zeros. Texts are the caller's.
 * Units:     samples, bytes.
 * Errors:    -EINVAL a text that is not a report, with its source and key; -ENOMEM.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

#include <jansson.h>

enum {
    REPORT_REASON_MAX = 127,
    REPORT_REASONS_MAX = 128, /* different reasons in a unit */
    REPORT_PARTS_MAX = 1 << 24,
    REPORT_KEY_MAX = 1000, /* bytes of a key in a row; the rest is cut off */
};

typedef struct RejectRow {
    int64_t index; /* index in the unit */
    char *key, *text;
    char reason[REPORT_REASON_MAX + 1];
} RejectRow;

typedef struct PartFile { /* a shard */
    char name[64];        /* "": all samples of the part were left out */
    int64_t n_samples, n_bytes;
    char xxh3_64[17];
    char *samples; /* xxh3_64 of each sample in hexadecimal, one after another; NULL: no shard */
} PartFile;

typedef struct PartReport {
    Hash identity;
    int64_t unit, part;
    int64_t n_raw; /* number of samples that were read */
    /* Hashes of the raw members of the samples (RawProof); zeros: not known, in a report of an older version. */
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

/* Totals of the units that were read, and of their members and bytes, which add up to the whole input. */
typedef struct InputTotals {
    int64_t n_units, n_no_sample, n_cut, n_damaged; /* n_units counts all units */
    int64_t n_members, n_strays;                    /* members of samples; other members */
    int64_t member_bytes, stray_bytes, frame_bytes, lost_bytes;
} InputTotals;

typedef struct UnitReport {
    Hash identity;
    int64_t unit, n_bytes; /* n_bytes: size of the raw unit */
    char *name, *damage;   /* damage "": the unit is whole and has a sample */
    InputTotals input;     /* totals of this unit */
    int64_t n_raw, n_parts_raw;
    PartFile *files; /* the shards of the unit's parts */
    size_t n_files, room;
    Reasons reasons;
    struct NamedKey {
        char *key;
    } * named; /* keys that were left out because a user named them */
    size_t n_named, named_room;
} UnitReport;

/* Converts a name to UTF-8, as reports need it; the caller frees it. */
char *report_name(const char *name);
/* Makes the text of n hashes, one after another; the caller frees it. */
char *part_file_hashes(const uint64_t *hashes, size_t n);
/* Reads the hash of a sample from a PartFile that was checked. */
uint64_t part_file_sample(const PartFile *file, int64_t sample);
/* Returns a key in the form that rows have: its first REPORT_KEY_MAX bytes. The caller frees it. */
char *report_key(const char *key);
void part_report_clear(PartReport *report);
void part_report_add(PartReport *report, int64_t index, const char *key, const char *reason,
                     const char *text);
/* Moves the rows of a later part behind the rows of earlier parts. */
void part_report_take_rows(PartReport *all, PartReport *part);
/* Sorts the rows by index; they are added in another order when pictures are decoded. */
void part_report_sort(PartReport *report);
char *part_report_format(const PartReport *report);
int part_report_parse(const char *source, const char *text, size_t n_bytes, PartReport *ret,
                      Error *err);
/* Returns the rows as lines of JSON. */
char *part_report_rows(const PartReport *report);
/* Parses lines of JSON, of any number of parts, as the rows of one report. */
int part_report_parse_rows(const char *source, const char *text, size_t n_bytes, PartReport *ret,
                           Error *err);

/* A key whose members are not adjacent has two rows in a unit, and the first row was written before the second was
 * known. Gives the first row of each such key the reason and text of the second row. Returns whether there was such a
 * key. */
bool part_report_join_halves(PartReport *all);

void unit_report_clear(UnitReport *report);
void unit_report_add(UnitReport *report, const PartReport *part);
/* Counts the reasons again, from all rows of the unit. */
void unit_report_count(UnitReport *report, const PartReport *all);
char *unit_report_format(const UnitReport *report);
int unit_report_parse(const char *source, const char *text, size_t n_bytes, UnitReport *ret,
                      Error *err);

/* Returns the totals in the form that a unit's report has. */
json_t *input_totals_json(const InputTotals *totals);
void input_totals_add(InputTotals *totals, const InputTotals *more);
/* Returns the number of units that are damaged or cut, or hold no sample. */
int64_t input_totals_bad(const InputTotals *totals);
/* Formats as "units: 5, without a sample 1, without an end 1, damaged 1; members: 20, of no sample 2; lost bytes:
 * 512". */
const char *input_totals_format(const InputTotals *totals, char *text, size_t size);

void reasons_add(Reasons *reasons, const char *reason, int64_t n);
/* Formats as "12 decode, 3 no-caption", or "none". */
const char *reasons_format(const Reasons *reasons, char *text, size_t size);
