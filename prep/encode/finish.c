/* SPDX-License-Identifier: Apache-2.0 */
/* finish.c - makes the dataset from the reports of all units: encoder.json, empty.npy, the compact index, and last
 * index.json, which completes it. The bytes of each file depend only on the reports, so any process that finishes puts
 * the same bytes. */
#include "base/fault.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/encoder-facts.h"
#include "data/index-open.h"
#include "data/mds/mds-shard.h"
#include "data/mds/mds-text.h"
#include "data/mds/npy.h"
#include "prep/encode/encoder-json.h"
#include "prep/encode/run-internal.h"

#include <inttypes.h>
#include <string.h>

enum { LEFTOVERS_MAX = 1 << 22 };
static const uint64_t LEFTOVER_USEC = 3600 * USEC_PER_SEC;

typedef struct Finish {
    EncodeRun *run;
    MdsShard *shard; /* makes the shards' entries */
    MdsText index;
    StoreList list; /* the shards in the folder */
    size_t n_shards;
    uint64_t *hashes; /* hashes of all samples */
    size_t n_hashes, hashes_room;
    EncoderTotals totals;
    char *first_bad; /* the damage of the first unit that is not whole */
    char **named;    /* keys that were left out by name, in all units */
    size_t n_named, named_room;
} Finish;

static void finish_clear(Finish *f)
{
    mds_shard_free(f->shard);
    free(f->index.data);
    free(f->hashes);
    store_list_clear(&f->list);
    for (size_t i = 0; i < f->n_named; i++)
        free(f->named[i]);
    free(f->named);
    free(f->first_bad);
}

static int compare_objects(const void *name, const void *object)
{
    return strcmp(name, ((const StoreObject *)object)->key);
}

/* Checks that a shard is in the folder: without it, readers of the dataset would fail. Another process may have removed
 * it after its report was put. */
static int check_file(const Finish *f, int64_t unit, const PartFile *file, Error *err)
{
    const StoreObject *object = NULL;
    uint64_t n_bytes;
    char report[FOLDER_KEY_MAX], how[64] = "is not there any more";
    if (f->list.n_objects > 0)
        object = bsearch(file->name, f->list.objects, f->list.n_objects, sizeof(*object),
                         compare_objects);
    if (object && object->n_bytes == (uint64_t)file->n_bytes)
        return 0;
    /* The list may be older than the report: another process may have put shard and report meanwhile. */
    int r = folder_head(&f->run->folder, file->name, &n_bytes, err);
    if (r == 0 && n_bytes == (uint64_t)file->n_bytes)
        return 0;
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0)
        (void)snprintf(how, sizeof(how), "has %" PRIu64 " bytes, not %" PRId64, n_bytes,
                       file->n_bytes);
    folder_unit_key(unit, report);
    return error_set(err, -EIO, "%s/%s %s: remove what is left of it and %s, and start again",
                     store_uri(f->run->folder.store), file->name, how, report);
}

static int add_file(Finish *f, const PartFile *file, Error *err)
{
    _cleanup_free_ char *entry = NULL;
    size_t n_entry;
    MdsFile raw = {.n_bytes = (uint64_t)file->n_bytes};
    memcpy(raw.basename, file->name, strlen(file->name) + 1);
    int r = checksum_parse(file->xxh3_64, 8, raw.hashes[0]);
    if (r < 0)
        return error_set(err, r, "%s: its report has no hash of it", file->name);
    r = mds_shard_entry(f->shard, &raw, NULL, (uint64_t)file->n_samples, &entry, &n_entry, err);
    if (r == 0 && f->n_shards > 0)
        r = mds_text_add(&f->index, ", ", 2);
    if (r == 0)
        r = mds_text_add(&f->index, entry, n_entry);
    if (r < 0)
        return error_set(err, r, "out of memory");
    for (int64_t i = 0; i < file->n_samples; i++) {
        f->hashes = memory_grow(f->hashes, f->n_hashes, &f->hashes_room, sizeof(*f->hashes));
        f->hashes[f->n_hashes++] = part_file_sample(file, i);
    }
    f->n_shards++;
    f->totals.n_samples += file->n_samples;
    return 0;
}

static int add_unit(Finish *f, size_t number, const UnitReport *report, Error *err)
{
    const EncodeRun *run = f->run;
    _cleanup_free_ char *name = report_name(raw_set_unit_name(run->set, number));
    if (!hash_equal(report->identity, run->encoding.identity) || report->unit != (int64_t)number ||
        strcmp(report->name, name) != 0 ||
        report->n_bytes != (int64_t)raw_set_unit_bytes(run->set, number))
        return error_set(err, -EEXIST, "%s: the report of unit %zu is of %s, and not of this run",
                         store_uri(run->folder.store), number, report->name);
    if (!f->first_bad && input_totals_bad(&report->input) > 0)
        f->first_bad = memory_text(report->damage);
    input_totals_add(&f->totals.input, &report->input);
    f->totals.n_raw += report->n_raw;
    for (size_t i = 0; i < report->reasons.n; i++)
        reasons_add(&f->totals.reasons, report->reasons.counts[i].reason,
                    report->reasons.counts[i].n);
    for (size_t i = 0; i < report->n_named; i++) {
        f->named = memory_grow(f->named, f->n_named, &f->named_room, sizeof(*f->named));
        f->named[f->n_named++] = memory_text(report->named[i].key);
    }
    int r = 0;
    for (size_t i = 0; r == 0 && i < report->n_files; i++) {
        r = check_file(f, report->unit, &report->files[i], err);
        if (r == 0)
            r = add_file(f, &report->files[i], err);
    }
    return r;
}

static int read_units(Finish *f, Error *err)
{
    size_t n = raw_set_n_units(f->run->set), n_missing = 0, first_missing = 0;
    for (size_t i = 0; i < n; i++) {
        _cleanup_free_ char *text = NULL;
        _cleanup_(unit_report_clear) UnitReport report = {0};
        char key[FOLDER_KEY_MAX];
        size_t n_bytes;
        folder_unit_key((int64_t)i, key);
        int r = folder_get(&f->run->folder, key, &text, &n_bytes, err);
        if (r == -ENOENT) {
            first_missing = n_missing++ ? first_missing : i;
            continue;
        }
        if (r == 0)
            r = folder_reads(&f->run->folder, key,
                             unit_report_parse(key, text, n_bytes, &report, err), err);
        if (r == 0 && n_missing == 0)
            r = add_unit(f, i, &report, err);
        if (r < 0)
            return r;
    }
    if (n_missing > 0)
        return error_set(err, -EAGAIN, "%zu of %zu units are not done, %s first: run sdprep encode",
                         n_missing, n, raw_set_unit_name(f->run->set, first_missing));
    return 0;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the keys and removes repeated ones: two units may hold the same key. */
static void sort_named(Finish *f)
{
    size_t n = 0;
    if (f->n_named > 0)
        qsort(f->named, f->n_named, sizeof(*f->named), compare_texts);
    for (size_t i = 0; i < f->n_named; i++)
        if (n > 0 && strcmp(f->named[n - 1], f->named[i]) == 0)
            free(f->named[i]);
        else
            f->named[n++] = f->named[i];
    f->n_named = n;
}

/* Checks that each sample whose key a user named was left out. A sample is in the dataset if its part was made before
 * the user named the key. */
static int check_named(const Finish *f, Error *err)
{
    char name[FOLDER_KEY_MAX];
    for (size_t i = 0; i < f->run->n_named; i++) {
        const char *key = f->run->named[i];
        _cleanup_free_ char *row_key = report_key(key);
        if (f->n_named > 0 &&
            bsearch(&row_key, f->named, f->n_named, sizeof(*f->named), compare_texts))
            continue;
        folder_name_key(key, name);
        return error_set(err, -EEXIST,
                         "the sample %.200s was to be left out, but its part was encoded before, "
                         "or there is none: remove %s if it may stay, or begin in an empty folder",
                         key, name);
    }
    return 0;
}

int dataset_check_named(EncodeRun *run, Error *err)
{
    Folder *folder = &run->folder;
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *json = NULL;
    size_t n_bytes;
    if (run->options->n_named == 0)
        return 0;
    int r = store_wait_get(&folder->wait, folder->store, ENCODER_FACTS_NAME, ENCODER_FACTS_MAX,
                           &text, &n_bytes, err);
    if (r == 0)
        r = json_parse_bounded(ENCODER_FACTS_NAME, text, n_bytes, ENCODER_FACTS_VALUES_MAX, &json,
                               err);
    for (size_t i = 0; r == 0 && i < run->options->n_named; i++) {
        _cleanup_free_ char *whole = report_name(run->options->named[i]);
        _cleanup_free_ char *key = report_key(whole);
        json_t *named = json_object_get(json, "named"), *one;
        size_t at;
        bool found = false;
        json_array_foreach (named, at, one)
            found |= json_is_string(one) && strcmp(json_string_value(one), key) == 0;
        if (!found)
            r = error_set(err, -EEXIST,
                          "%s is finished, and the sample %.200s was not left out of it: begin in "
                          "an empty folder",
                          store_uri(folder->store), key);
    }
    return r;
}

static int put_empty_text(Finish *f, Error *err)
{
    Encoding *e = &f->run->encoding;
    size_t n = f->run->columns.n_text, n_file;
    _cleanup_free_ uint16_t *text = malloc(2 * n);
    _cleanup_free_ char *file = NULL;
    int r = text ? encoding_empty_text(e, text, err) : error_set(err, -ENOMEM, "out of memory");
    if (r < 0)
        return r;
    MdsArray array = {.number = MDS_FLOAT16,
                      .n_dims = 2,
                      .dims = {(uint64_t)e->shape.n_tokens, (uint64_t)e->shape.text_dim},
                      .values = text,
                      .n_bytes = 2 * n};
    r = npy_format(&array, &file, &n_file);
    if (r < 0)
        return error_set(err, r, "out of memory");
    f->totals.empty_text = hash_bytes(file, n_file);
    return folder_put(&f->run->folder, "empty.npy", file, n_file, err);
}

/* Puts encoder.json with the hashes of the files beside it, so that readers can check that the files belong
 * together. */
static int put_encoder_json(Finish *f, Error *err)
{
    f->totals.input_json = f->run->units.file;
    f->totals.index = hash_bytes(f->index.data, f->index.n);
    _cleanup_free_ char *text =
        encoder_json_format(&f->run->encoding, &f->totals, f->named, f->n_named);
    return folder_put(&f->run->folder, ENCODER_FACTS_NAME, text, strlen(text), err);
}

/* Puts the compact index before index.json, so that no dataset is ever without it. */
static int put_index(Finish *f, Error *err)
{
    Folder *folder = &f->run->folder;
    _cleanup_free_ char *bytes = NULL;
    size_t n_bytes;
    int r = index_build_text(folder->store, f->index.data, f->index.n, f->hashes, f->n_hashes,
                             &bytes, &n_bytes, err);
    if (r == 0)
        r = folder_put(folder, INDEX_NAME, bytes, n_bytes, err);
    if (r == 0)
        r = fault("encode.finish.compact");
    if (r == 0)
        r = folder_put(folder, "index.json", f->index.data, f->index.n, err);
    return r < 0 ? r : fault("encode.finish.index");
}

/* Puts INDEX_ORIGIN, by which readers on S3 know the index.json of the compact index. Without INDEX_ORIGIN, readers
 * fetch index.json once. */
static void put_origin(Store *store, const char *index, size_t n_index)
{
    IndexOrigin origin = {.source = hash_bytes(index, n_index)};
    _cleanup_free_ char *text = NULL;
    char path[4096];
    Error err = ERROR_INIT;
    if (store_local_path(store, INDEX_NAME, path, sizeof(path), NULL) == 0)
        return;
    int r = store_version(store, "index.json", origin.version, &err);
    if (r == 0)
        r = index_origin_format(&origin, &text, &err);
    struct iovec part = {text, text ? strlen(text) : 0};
    if (r == 0)
        r = store_put(store, INDEX_ORIGIN, &part, 1, 0, &err);
    if (r < 0)
        log_warning("without " INDEX_ORIGIN ": %s", err.text);
}

/* Removes reports of parts whose unit is done, and temporary files of interrupted puts. Recent temporary files may
 * belong to another process and are kept. */
static void remove_leftovers(Store *store)
{
    StoreList list = {0};
    (void)store_sweep(store, LEFTOVER_USEC, NULL, NULL, NULL, NULL); /* a failure is harmless */
    if (store_list(store, "encoding/u", LEFTOVERS_MAX, &list, NULL) < 0)
        return; /* leftovers are harmless */
    for (size_t i = 0; i < list.n_objects; i++)
        if (strstr(list.objects[i].key, "-p"))
            (void)store_delete(store, list.objects[i].key, NULL);
    store_list_clear(&list);
}

void dataset_tidy(EncodeRun *run)
{
    Store *store = run->folder.store;
    _cleanup_free_ char *index = NULL;
    size_t n_index;
    uint64_t n_bytes;
    remove_leftovers(store);
    if (store_head(store, INDEX_ORIGIN, &n_bytes, NULL) == -ENOENT &&
        store_get(store, "index.json", INT32_MAX, &index, &n_index, NULL) == 0)
        put_origin(store, index, n_index);
}

/* Checks the input's damage against the recipe's limit. If a user raises the limit, nothing is encoded again, as with
 * max_rejected. */
static int check_units(const Finish *f, Error *err)
{
    const InputTotals *input = &f->totals.input;
    const double most = f->run->recipe->max_damaged_units;
    char text[300];
    if ((double)input_totals_bad(input) <= most * (double)input->n_units)
        return 0;
    return error_set(err, -EDOM,
                     "more than max_damaged_units, %.4g of all: %s; the first: %.200s. Raise it "
                     "and run again, and nothing is made twice",
                     most, input_totals_format(input, text, sizeof(text)), f->first_bad);
}

int dataset_finish(EncodeRun *run, Error *err)
{
    static const char *const hashes[] = {"xxh3_64"};
    _cleanup_(finish_clear) Finish f = {.run = run};
    MdsShardOptions how = {.hashes = hashes, .n_hashes = ELEMENTSOF(hashes)};
    char reasons[400], input[300];
    int r = mds_shard_new(&run->columns.schema, &how, &f.shard, err);
    if (r == 0 && mds_text_format(&f.index, "{\"shards\": [") < 0)
        r = error_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = store_wait_list(&run->folder.wait, run->folder.store, "u", LEFTOVERS_MAX, false,
                            &f.list, err);
    if (r == 0)
        r = fault("encode.finish.listed");
    if (r == 0)
        r = read_units(&f, err);
    if (r == 0 && mds_text_format(&f.index, "], \"version\": 2}") < 0)
        r = error_set(err, -ENOMEM, "out of memory");
    sort_named(&f);
    if (r == 0)
        r = check_named(&f, err);
    if (r == 0)
        r = check_units(&f, err);
    if (r < 0)
        return r;
    reasons_format(&f.totals.reasons, reasons, sizeof(reasons));
    if (f.totals.n_samples == 0)
        return error_set(err, -ENODATA, "of %" PRId64 " samples none is left; rejected: %s",
                         f.totals.n_raw, reasons);
    r = put_empty_text(&f, err);
    if (r == 0)
        r = put_encoder_json(&f, err);
    if (r == 0)
        r = fault("encode.finish.encoder");
    if (r == 0)
        r = put_index(&f, err);
    if (r < 0)
        return r;
    put_origin(run->folder.store, f.index.data, f.index.n);
    remove_leftovers(run->folder.store);
    char identity[HASH_TEXT_BYTES];
    log_info("%s: %" PRId64 " samples in %zu shards; %s; rejected: %s; identity %s",
             store_uri(run->folder.store), f.totals.n_samples, f.n_shards,
             input_totals_format(&f.totals.input, input, sizeof(input)), reasons,
             hash_format(encoder_json_identity(&run->encoding, f.named, f.n_named), identity));
    return 0;
}
