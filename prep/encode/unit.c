/* SPDX-License-Identifier: Apache-2.0 */
/* unit.c - encodes a unit, part after part. A part's shard is put first, then its report; so a process that is killed
 * leaves at most one part incomplete. */
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "prep/encode/run-internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct Unit {
    EncodeRun *run;
    size_t number;
    RawUnit *raw;
    UnitReport report;
    char *rows; /* rows of all parts */
    size_t n_rows, room;
    bool open;                       /* a part could not be finished */
    char version[STORE_VERSION_MAX]; /* version of the unit when it was opened */
    bool copied; /* only the inode of the unit's file differs from the noted version */
} Unit;

static int is_ours(const EncodeRun *run, const char *key, Hash identity, Error *err)
{
    char there[HASH_TEXT_BYTES], ours[HASH_TEXT_BYTES];
    if (hash_equal(identity, run->encoding.identity))
        return 0;
    return error_set(err, -EEXIST,
                     "%s/%s is of another encoding: its identity is %s, that of this recipe and "
                     "model is %s",
                     store_uri(run->folder.store), key, hash_format(identity, there),
                     hash_format(run->encoding.identity, ours));
}

/* ---- checking that the unit has not changed ---- */

/* Compares the version of a unit when it is opened with the version in the folder's list. */
static int check_opened(Unit *u, Error *err)
{
    const EncodeRun *run = u->run;
    int r = raw_set_request_version(run->set, u->number, u->version, err);
    if (r < 0 || run->units.n_units == 0)
        return r;
    const InputUnit *noted = &run->units.units[u->number];
    const InputChange change = input_compare_versions(noted->version, u->version);
    u->copied = change == INPUT_COPIED;
    if (change != INPUT_CHANGED)
        return 0;
    return error_set(err, -ENOMEDIUM,
                     "%.200s has changed since %s was begun: its version was %s, and is %s. Put "
                     "the former one back, or begin in an empty folder; if its bytes are the same, "
                     "remove " FOLDER_INPUT_KEY " and start again",
                     noted->name, store_uri(run->folder.store), noted->version, u->version);
}

/* Checks that the unit has not changed while it was read, before anything is put: otherwise its parts would mix two
 * versions. */
static int check_read(const Unit *u, Error *err)
{
    char version[STORE_VERSION_MAX];
    int r = fault("encode.unit.changes");
    if (r == 0)
        r = raw_set_request_version(u->run->set, u->number, version, err);
    if (r < 0 || strcmp(version, u->version) == 0)
        return r;
    return error_set(err, -ENOMEDIUM,
                     "%.200s has changed while it was read: its version was %s, and is %s",
                     raw_set_unit_name(u->run->set, u->number), u->version, version);
}

static void take_proof(Unit *u, PartReport *ret)
{
    const RawProof proof = raw_unit_take_proof(u->raw);
    ret->raw_members = proof.members;
    ret->raw_bytes = proof.bytes;
}

/* Compares the members of a part's samples with the members in its report. bytes: also compares the members' bytes. */
static int check_made_of(const Unit *u, const PartReport *there, const PartReport *now, bool bytes,
                         Error *err)
{
    const bool members = hash_equal(there->raw_members, now->raw_members);
    char key[FOLDER_KEY_MAX];
    if (hash_equal(there->raw_members, (Hash){0}) || /* an older version wrote the report */
        (members && (!bytes || hash_equal(there->raw_bytes, now->raw_bytes))))
        return 0;
    folder_part_key((int64_t)u->number, there->part, key);
    return error_set(
        err, -ENOMEDIUM,
        "%.200s has changed: %s/%s was made of members with other %s. Put the former one back, or "
        "begin in an empty folder",
        raw_set_unit_name(u->run->set, u->number), store_uri(u->run->folder.store), key,
        members ? "bytes" : "names, sizes or places");
}

/* A part whose shard is missing is made again. Checks that the new shard is the one in the part's report. */
static int check_again(const Unit *u, const PartReport *there, const PartReport *part, Error *err)
{
    int r = check_made_of(u, there, part, true, err);
    if (r < 0 || !*there->file.name || strcmp(there->file.xxh3_64, part->file.xxh3_64) == 0)
        return r;
    return error_set(err, -EEXIST,
                     "%s/%s is not there any more, and made again it is another one: its xxh3_64 "
                     "is %s, was %s",
                     store_uri(u->run->folder.store), there->file.name, part->file.xxh3_64,
                     there->file.xxh3_64);
}

/* ---- parts ---- */

/* Returns 1 if the shard of a part's report is in the folder, 0 if it was removed. */
static int has_shard(EncodeRun *run, const PartReport *part, Error *err)
{
    uint64_t n_bytes;
    if (!*part->file.name)
        return 1;
    int r = folder_head(&run->folder, part->file.name, &n_bytes, err);
    if (r == -ENOENT)
        log_warning("%s/%s is not there any more: it is made again", store_uri(run->folder.store),
                    part->file.name);
    if (r == -ENOENT)
        return 0;
    if (r == 0 && n_bytes != (uint64_t)part->file.n_bytes)
        return error_set(err, -EIO,
                         "%s/%s has %" PRIu64 " bytes, not %" PRId64 ": remove it, and start again",
                         store_uri(run->folder.store), part->file.name, n_bytes,
                         part->file.n_bytes);
    return r < 0 ? r : 1;
}

/* Returns 1 if the part was made before, by any process; its shard was put before its report. Returns 0 if the part
 * must be made; if *ret is not empty then, the shard of *ret is missing, and the new shard must match *ret. */
static int find_part(Unit *u, int64_t part, PartReport *ret, Error *err)
{
    EncodeRun *run = u->run;
    _cleanup_free_ char *text = NULL;
    char key[FOLDER_KEY_MAX];
    size_t n_bytes;
    folder_part_key((int64_t)u->number, part, key);
    int r = folder_get(&run->folder, key, &text, &n_bytes, err);
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = folder_reads(&run->folder, key, part_report_parse(key, text, n_bytes, ret, err), err);
    if (r == 0)
        r = is_ours(run, key, ret->identity, err);
    return r < 0 ? r : has_shard(run, ret, err);
}

/* Reports progress while parts that were made before are skipped: they do not count as work of this run, but in a large
 * tar skipping takes time. */
static void report_skipped(Unit *u, double from, uint64_t before)
{
    Progress *p = &u->run->progress;
    double done = raw_unit_done(u->raw), n_bytes = (double)u->run->unit_bytes;
    p->bytes_before = before + (uint64_t)ceil((done - from) * n_bytes);
    progress_report(p, &(ProgressPart){NULL, done, u->run->unit_bytes}, false);
}

static int skip(Unit *u, const PartReport *part, Error *err)
{
    double from = raw_unit_done(u->raw);
    uint64_t before = u->run->progress.bytes_before;
    for (int64_t i = 0; i < part->n_raw; i++) {
        RawSample *sample;
        int r = raw_unit_next(u->raw, u->copied, &sample, err);
        if (r < 0)
            return r;
        if (r == 0)
            return error_set(err, -ENOMEDIUM,
                             "%s has fewer samples than when a part of it was encoded",
                             raw_set_unit_name(u->run->set, u->number));
        report_skipped(u, from, before);
    }
    PartReport now = {0};
    take_proof(u, &now);
    return check_made_of(u, part, &now, u->copied, err);
}

/* Explains why put_part() failed: another process may have put the part from a unit that has changed since. */
static int explain_other(const Unit *u, const PartReport *part, int r, Error *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_(part_report_clear) PartReport there = {0};
    char key[FOLDER_KEY_MAX];
    size_t n_bytes;
    folder_part_key((int64_t)u->number, part->part, key);
    if (r != -EEXIST || folder_get(&u->run->folder, key, &text, &n_bytes, NULL) < 0 ||
        part_report_parse(key, text, n_bytes, &there, NULL) < 0)
        return r;
    const int why = check_made_of(u, &there, part, true, err);
    return why < 0 ? why : r;
}

static int put_part(Unit *u, PartReport *part, const char *shard, size_t n_shard, Error *err)
{
    Folder *folder = &u->run->folder;
    char key[FOLDER_KEY_MAX];
    int r = fault("encode.part.made");
    if (r == 0 && shard) {
        folder_shard_key((int64_t)u->number, part->part, key);
        memcpy(part->file.name, key, strlen(key) + 1);
        r = folder_put(folder, key, shard, n_shard, err);
    }
    if (r == 0)
        r = fault("encode.part.shard");
    if (r == 0) {
        _cleanup_free_ char *text = part_report_format(part);
        folder_part_key((int64_t)u->number, part->part, key);
        r = folder_put(folder, key, text, strlen(text), err);
    }
    if (r == 0)
        r = fault("encode.part.report");
    return explain_other(u, part, r, err);
}

static void add_part(Unit *u, const PartReport *part)
{
    _cleanup_free_ char *rows = part_report_rows(part);
    size_t n = strlen(rows);
    if (u->n_rows + n + 1 > u->room) {
        u->room = 2 * (u->n_rows + n + 1);
        u->rows = memory_resize(u->rows, u->room, 1);
    }
    memcpy(u->rows + u->n_rows, rows, n + 1);
    u->n_rows += n;
    unit_report_add(&u->report, part);
}

/* Encodes a part, or skips it if it was made before. Returns 1, or 0 at the end of the unit. */
static int encode_part(Unit *u, int64_t number, Error *err)
{
    EncodeRun *run = u->run;
    _cleanup_(part_report_clear) PartReport part = {0}, there = {0};
    _cleanup_free_ char *shard = NULL;
    size_t n_shard = 0;
    int r = find_part(u, number, &there, err);
    if (r != 0) {
        if (r > 0)
            r = skip(u, &there, err);
        if (r < 0)
            return r;
        add_part(u, &there);
        r = run_count(run, there.n_raw, there.rows, there.n_rows, err);
        return r < 0 ? r : 1;
    }
    part = (PartReport){.identity = run->encoding.identity,
                        .unit = (int64_t)u->number,
                        .part = number};
    r = part_make(run->maker, u->raw, &part, &shard, &n_shard, err);
    if (r < 0 && r != -ENOTRECOVERABLE)
        return r;
    if (part.n_raw == 0)
        return check_read(u, err);
    u->open |= r == -ENOTRECOVERABLE;
    take_proof(u, &part);
    if (r == 0)
        r = check_read(u, err);
    if (r == 0)
        r = check_again(u, &there, &part, err);
    if (r == 0)
        r = put_part(u, &part, shard, n_shard, err);
    if (r < 0 && r != -ENOTRECOVERABLE)
        return r;
    add_part(u, &part);
    progress_add(&run->progress, &part);
    r = run_count(run, part.n_raw, part.rows, part.n_rows, err);
    return r < 0 ? r : 1;
}

/* Gives both rows of a key whose members are not adjacent the same reason and text. */
static int join_halves(Unit *u, Error *err)
{
    _cleanup_(part_report_clear) PartReport all = {0};
    int r = u->n_rows > 0 ? part_report_parse_rows("rows", u->rows, u->n_rows, &all, err) : 0;
    if (r < 0 || !part_report_join_halves(&all))
        return r;
    free(u->rows);
    u->rows = part_report_rows(&all);
    u->n_rows = strlen(u->rows);
    unit_report_count(&u->report, &all);
    return 0;
}

static int put_unit(Unit *u, Error *err)
{
    Folder *folder = &u->run->folder;
    char key[FOLDER_KEY_MAX];
    u->report.input = run_input(u->raw, &u->report.damage);
    input_totals_add(&u->run->progress.input, &u->report.input);
    int r = join_halves(u, err);
    if (r == 0 && u->n_rows > 0) {
        folder_rejects_key((int64_t)u->number, key);
        r = folder_put(folder, key, u->rows, u->n_rows, err);
    }
    if (r == 0)
        r = fault("encode.unit.rejects");
    if (r < 0)
        return r;
    _cleanup_free_ char *text = unit_report_format(&u->report);
    folder_unit_key((int64_t)u->number, key);
    r = folder_put(folder, key, text, strlen(text), err);
    if (r == 0)
        r = fault("encode.unit.report");
    /* Everything in the parts' reports is in the unit's report now. Reports that cannot be deleted here are deleted
     * when the dataset is finished. */
    for (int64_t part = 0; r == 0 && part < u->report.n_parts_raw; part++) {
        folder_part_key((int64_t)u->number, part, key);
        (void)store_delete(folder->store, key, NULL);
    }
    return r;
}

/* Counts the rejected samples of a unit that is done. Whether too many were rejected then depends only on the input: a
 * run that ended for this reason ends in the same way when it is started again. */
static int count_unit(EncodeRun *run, size_t unit, const UnitReport *report, Error *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_(part_report_clear) PartReport all = {0};
    char key[FOLDER_KEY_MAX], unit_key[FOLDER_KEY_MAX];
    size_t n_bytes;
    int r = 0;
    folder_unit_key((int64_t)unit, unit_key);
    folder_rejects_key((int64_t)unit, key);
    if (report->reasons.n > 0)
        r = folder_get(&run->folder, key, &text, &n_bytes, err);
    if (r == -ENOENT)
        return error_set(err, r, "%s/%s is not there any more: remove %s, and start again",
                         store_uri(run->folder.store), key, unit_key);
    if (r == 0 && text && (r = part_report_parse_rows(key, text, n_bytes, &all, err)) < 0)
        return error_prefix(err, r, "%s: remove %s and %s, and start again",
                            store_uri(run->folder.store), key, unit_key);
    return r < 0 ? r : run_count(run, report->n_raw, all.rows, all.n_rows, err);
}

/* Returns 1 if the unit is done. */
static int is_done(EncodeRun *run, size_t unit, Error *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_(unit_report_clear) UnitReport report = {0};
    char key[FOLDER_KEY_MAX];
    size_t n_bytes;
    folder_unit_key((int64_t)unit, key);
    int r = folder_get(&run->folder, key, &text, &n_bytes, err);
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = folder_reads(&run->folder, key, unit_report_parse(key, text, n_bytes, &report, err),
                         err);
    if (r == 0)
        r = is_ours(run, key, report.identity, err);
    if (r == 0)
        r = count_unit(run, unit, &report, err);
    if (r == 0)
        input_totals_add(&run->progress.input, &report.input);
    return r < 0 ? r : 1;
}

static void unit_clear(Unit *u)
{
    raw_unit_free(u->raw);
    unit_report_clear(&u->report);
    free(u->rows);
}

int unit_encode(EncodeRun *run, size_t number, Error *err)
{
    uint64_t n_bytes = raw_set_unit_bytes(run->set, number);
    run->unit_bytes = n_bytes;
    run->unit_index = 0;
    int r = is_done(run, number, err);
    if (r > 0)
        run->progress.bytes_before += n_bytes;
    if (r != 0) {
        run->progress.bytes += n_bytes;
        return MIN(r, 0);
    }
    _cleanup_(unit_clear)
        Unit u = {.run = run,
                  .number = number,
                  .report = {.identity = run->encoding.identity,
                             .unit = (int64_t)number,
                             .n_bytes = (int64_t)n_bytes,
                             .name = report_name(raw_set_unit_name(run->set, number))}};
    r = check_opened(&u, err);
    if (r == 0)
        r = raw_unit_open(run->set, number, &u.raw, err);
    for (int64_t part = 0; r >= 0; part++) {
        r = encode_part(&u, part, err);
        if (r == 0)
            break;
    }
    if (r == 0 || r == -ENOMEDIUM)
        run->progress.bytes += n_bytes;
    if (r < 0)
        return r;
    return u.open ? -ENOTRECOVERABLE : put_unit(&u, err);
}
