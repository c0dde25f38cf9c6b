/* SPDX-License-Identifier: Apache-2.0 */
/* index-build.c - see index-build.h and index/index-format.h.
 *
 * The index is built in three steps. The entries of index.json are collected; then the shards are read, if a column of
 * bytes may be empty or hashes of samples are wanted; then the sections are laid out and hashed. */
#include "data/index-build.h"

#include "base/json/json.h"
#include "data/index/index-format.h"
#include "data/stream/fetch.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE_BYTES = 8 << 20 }; /* bytes of one request, if a whole shard is fetched */

typedef struct Bytes { /* a buffer that grows */
    uint8_t *data;
    size_t n, room;
} Bytes;

typedef struct Build {
    Store *store;
    const char *source; /* URI of index.json, for error texts */
    MdsEntry common;    /* the first entry; all entries have its columns, hashes, compression */
    size_t hash_bytes;  /* bytes of all digests of one file */
    uint64_t n_shards, n_samples;
    Bytes first, records, names;
    Bytes bits[MDS_COLUMNS_MAX]; /* one bit per sample: set if the sample's payload is not empty */
    Bytes hashes;
    /* scan: a column may have empty payloads. sample_hashes: the shards' samples are to be hashed. */
    bool scan, sample_hashes;
} Build;

static uint8_t *bytes_grow(Bytes *b, size_t n)
{
    if (!b->data || b->n + n > b->room) {
        size_t room = MAX(2 * b->room, b->n + n + 4096);
        uint8_t *grown = realloc(b->data, room);
        if (!grown)
            return NULL;
        b->data = grown;
        b->room = room;
    }
    uint8_t *p = b->data + b->n;
    memset(p, 0, n);
    b->n += n;
    return p;
}

static int bytes_add(Bytes *b, const void *data, size_t n)
{
    uint8_t *p = bytes_grow(b, n);
    if (!p)
        return -ENOMEM;
    memcpy(p, data, n);
    return 0;
}

static void bytes_clear(Bytes *b) { free(b->data); }

static void build_clear(Build *b)
{
    bytes_clear(&b->first);
    bytes_clear(&b->records);
    bytes_clear(&b->names);
    bytes_clear(&b->hashes);
    for (size_t i = 0; i < MDS_COLUMNS_MAX; i++)
        bytes_clear(&b->bits[i]);
}

/* Reports whether an empty payload in this column means that the sample lacks the value: a sample has no latents if its
 * picture was too small. An empty text is a value: a caption may be empty. */
static bool may_be_missing(const MdsColumn *column)
{
    return column->size == 0 && (column->kind == MDS_BYTES || column->kind == MDS_NDARRAY);
}

static int add_entry(void *context, size_t shard, const MdsEntry *entry, Error *err)
{
    Build *b = context;
    if (shard == 0) {
        b->common = *entry;
        for (size_t i = 0; i < entry->n_hashes; i++)
            b->hash_bytes += (size_t)checksum_size(entry->hashes[i]);
        for (size_t i = 0; i < entry->schema.n_columns; i++)
            b->scan |= may_be_missing(&entry->schema.columns[i]);
    } else {
        int r = mds_entry_agrees(&b->common, entry, b->source, shard, err);
        if (r < 0)
            return r;
    }

    IndexRecord record = {.raw_bytes = entry->raw.n_bytes,
                          .zip_bytes = *entry->compression ? entry->zip.n_bytes : 0,
                          .name = b->names.n};
    int r = bytes_add(&b->first, &b->n_samples, 8);
    if (r == 0)
        r = bytes_add(&b->records, &record, sizeof(record));
    for (int zip = 0; zip < 2; zip++)
        for (size_t i = 0; r == 0 && i < entry->n_hashes; i++)
            r = bytes_add(&b->records, zip ? entry->zip.hashes[i] : entry->raw.hashes[i],
                          (size_t)checksum_size(entry->hashes[i]));
    if (r == 0 && !bytes_grow(&b->records, ROUND_UP(b->records.n, (size_t)8) - b->records.n))
        r = -ENOMEM;
    if (r == 0)
        r = bytes_add(&b->names, entry->raw.basename, strlen(entry->raw.basename) + 1);
    if (r == 0)
        r = bytes_add(&b->names, entry->zip.basename, strlen(entry->zip.basename) + 1);
    if (r < 0)
        return error_set(err, r, "out of memory indexing %s", store_uri(b->store));
    b->n_samples += entry->n_samples;
    b->n_shards++;
    return 0;
}

/* Appends a section at the next multiple of 64 bytes. */
static int add_section(Bytes *body, const void *data, size_t n, uint64_t *ret_offset)
{
    if (!bytes_grow(body, ROUND_UP(body->n, (size_t)64) - body->n))
        return -ENOMEM;
    *ret_offset = body->n;
    return bytes_add(body, data, n);
}

static int add_bitmap(const Build *b, const Bytes *bits, Bytes *body, IndexColumn *column)
{
    uint64_t n_ranks = DIV_ROUND_UP(b->n_samples, INDEX_RANK_BITS);
    uint64_t n_words = n_ranks * (INDEX_RANK_BITS / 64), total = 0;
    _cleanup_free_ uint64_t *words = calloc(n_words + 1, 8), *ranks = calloc(n_ranks + 1, 8);
    if (!words || !ranks)
        return -ENOMEM;
    memcpy(words, bits->data, bits->n);
    for (uint64_t w = 0; w < n_words; w++) {
        if (w % (INDEX_RANK_BITS / 64) == 0)
            ranks[w / (INDEX_RANK_BITS / 64)] = total;
        total += (unsigned)__builtin_popcountll(words[w]);
    }
    column->n_valid = total;
    if (total == b->n_samples)
        return 0; /* no payload is empty: no bitmap is needed */
    int r = add_section(body, ranks, 8 * n_ranks, &column->ranks);
    return r < 0 ? r : add_section(body, words, 8 * n_words, &column->bits);
}

static int format_config(const Build *b, char **ret, Error *err)
{
    const MdsEntry *e = &b->common;
    _cleanup_json_ json_t *root = json_object();
    json_t *names = json_array(), *encodings = json_array(), *sizes = json_array(),
           *hashes = json_array();
    int bad = 0;
    for (size_t i = 0; i < e->schema.n_columns; i++) {
        const MdsColumn *c = &e->schema.columns[i];
        bad |= json_array_append_new(names, json_string(c->name));
        bad |= json_array_append_new(encodings, json_string(c->encoding));
        bad |= json_array_append_new(sizes, c->size ? json_integer(c->size) : json_null());
    }
    for (size_t i = 0; i < e->n_hashes; i++)
        bad |= json_array_append_new(hashes, json_string(e->hashes[i]));
    bad |= json_object_set_new(root, "column_names", names);
    bad |= json_object_set_new(root, "column_encodings", encodings);
    bad |= json_object_set_new(root, "column_sizes", sizes);
    bad |= json_object_set_new(root, "hashes", hashes);
    bad |= json_object_set_new(root, "compression", json_string(e->compression));
    char *text = bad ? NULL : json_dumps(root, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    *ret = text;
    return 0;
}

static int lay_out(Build *b, const char *config, Bytes *body, IndexHeader *h)
{
    IndexColumn columns[MDS_COLUMNS_MAX] = {0};
    h->config_bytes = strlen(config);
    h->n_columns = (uint32_t)b->common.schema.n_columns;
    h->record_bytes = b->records.n / b->n_shards;
    h->names_bytes = b->names.n;

    int r = bytes_add(&b->first, &b->n_samples, 8);
    if (r == 0)
        r = add_section(body, config, h->config_bytes, &h->config);
    if (r == 0)
        r = add_section(body, b->first.data, b->first.n, &h->first);
    if (r == 0)
        r = add_section(body, b->records.data, b->records.n, &h->records);
    if (r == 0)
        r = add_section(body, b->names.data, b->names.n, &h->names);
    for (uint32_t i = 0; r == 0 && i < h->n_columns; i++) {
        columns[i].n_valid = b->n_samples;
        if (b->bits[i].n > 0)
            r = add_bitmap(b, &b->bits[i], body, &columns[i]);
    }
    if (r == 0)
        r = add_section(body, columns, h->n_columns * sizeof(columns[0]), &h->columns);
    if (r < 0)
        return r;
    /* Pad the core to whole blocks, so that its hash does not depend on the sections behind it. */
    h->core_bytes = ROUND_UP(body->n, (size_t)INDEX_BLOCK_BYTES);
    if (!bytes_grow(body, h->core_bytes - body->n))
        return -ENOMEM;
    if (b->hashes.n > 0)
        r = add_section(body, b->hashes.data, b->hashes.n, &h->hashes);
    h->body_bytes = body->n;
    return r;
}

static int assemble(Build *b, IndexHeader *h, char **ret, size_t *ret_bytes, Error *err)
{
    _cleanup_free_ char *config = NULL;
    int r = format_config(b, &config, err);
    if (r < 0)
        return r;
    _cleanup_(bytes_clear) Bytes body = {0};
    r = lay_out(b, config, &body, h);
    if (r < 0)
        return error_set(err, r, "out of memory indexing %s", store_uri(b->store));

    size_t n_blocks = DIV_ROUND_UP(body.n, INDEX_BLOCK_BYTES);
    size_t start = ROUND_UP(sizeof(*h) + 8 * n_blocks, (size_t)INDEX_BLOCK_BYTES);
    char *file = calloc(1, start + body.n);
    if (!file)
        return error_set(err, -ENOMEM, "out of memory indexing %s", store_uri(b->store));
    uint64_t *blocks = (uint64_t *)(void *)(file + sizeof(*h));
    for (size_t i = 0; i < n_blocks; i++)
        blocks[i] = hash64_bytes(body.data + i * INDEX_BLOCK_BYTES,
                                 MIN((size_t)INDEX_BLOCK_BYTES, body.n - i * INDEX_BLOCK_BYTES), 0);
    h->core = index_core_hash(h, blocks);
    h->header = index_header_hash(h, blocks, n_blocks);
    memcpy(file, h, sizeof(*h));
    memcpy(file + start, body.data, body.n);
    *ret = file;
    *ret_bytes = start + body.n;
    return 0;
}

/* ---- reading the shards ---- */

typedef struct Scan {
    char *sample;
    size_t room;
} Scan;

static int scan_sample(Build *b, Shard *shard, uint32_t i, uint64_t number, Scan *scan, Error *err)
{
    const MdsSchema *schema = &b->common.schema;
    size_t n_bytes;
    uint32_t sizes[MDS_COLUMNS_MAX];
    int r;
    if (b->sample_hashes) {
        uint32_t range[2];
        r = shard_read(shard, i, range, &scan->sample, &scan->room, err);
        if (r < 0)
            return r;
        n_bytes = range[1] - range[0];
        MdsField fields[MDS_COLUMNS_MAX];
        r = mds_sample_split(schema, scan->sample, n_bytes, fields, err);
        if (r < 0)
            return error_prefix(err, r, "%s[%u]", shard_name(shard), i);
        memcpy(sizes, scan->sample, 4 * schema->n_variable);
        uint64_t hash = hash64_bytes(scan->sample, n_bytes, 0);
        if (bytes_add(&b->hashes, &hash, sizeof(hash)) < 0)
            return error_set(err, -ENOMEM, "out of memory");
    } else {
        r = shard_read_head(shard, i, sizes, 4 * schema->n_variable, err);
        if (r < 0)
            return r;
    }

    for (size_t k = 0, variable = 0; k < schema->n_columns; k++) {
        if (schema->columns[k].size != 0)
            continue;
        if (sizes[variable++] > 0 && b->bits[k].n > 0)
            b->bits[k].data[number / 8] |= (uint8_t)(1 << number % 8);
    }
    return 0;
}

static void shard_of_record(const Build *b, uint64_t i, IndexShard *ret)
{
    IndexRecord record;
    uint64_t first, next = b->n_samples;
    size_t record_bytes = b->records.n / b->n_shards;
    const uint8_t *p = b->records.data + i * record_bytes;
    memcpy(&record, p, sizeof(record));
    memcpy(&first, b->first.data + 8 * i, 8);
    if (i + 1 < b->n_shards)
        memcpy(&next, b->first.data + 8 * (i + 1), 8);
    const char *name = (const char *)b->names.data + record.name;
    *ret = (IndexShard){.n_samples = next - first,
                        .raw_bytes = record.raw_bytes,
                        .zip_bytes = record.zip_bytes,
                        .raw_name = name,
                        .zip_name = name + strlen(name) + 1};
    p += sizeof(record);
    for (size_t k = 0; k < b->common.n_hashes; k++) {
        ret->raw_hashes[k] = p;
        ret->zip_hashes[k] = p + b->hash_bytes;
        p += checksum_size(b->common.hashes[k]);
    }
}

static int scan_shards(Build *b, IndexProgress progress, void *context, Error *err)
{
    for (size_t k = 0; k < b->common.schema.n_columns; k++)
        if (may_be_missing(&b->common.schema.columns[k]) &&
            !bytes_grow(&b->bits[k], DIV_ROUND_UP(b->n_samples, 8) + 1))
            return error_set(err, -ENOMEM, "out of memory");

    _cleanup_(event_count_freep) EventCount *events = NULL;
    int r = event_count_new(&events);
    if (r < 0)
        return error_errno(err, r, "cannot read the shards");
    ShardSource source = {.store = b->store,
                          .compression = b->common.compression,
                          .n_hashes = b->common.n_hashes,
                          .events = events,
                          .piece_bytes = PIECE_BYTES};
    for (size_t k = 0; k < b->common.n_hashes; k++)
        source.hashes[k] = b->common.hashes[k];

    Scan scan = {0};
    uint64_t number = 0;
    bool in_place = shard_source_local(&source) && !*source.compression;
    for (uint64_t i = 0; r == 0 && i < b->n_shards; i++) {
        IndexShard info;
        shard_of_record(b, i, &info);
        _cleanup_(shard_freep) Shard *shard = NULL;
        /* A shard that is fetched whole is always verified. A shard that is read in place is verified only if its
         * samples' hashes are made: readers will trust those hashes later. */
        r = in_place ? shard_open_in_place(&source, &info, b->sample_hashes, &shard, err)
                     : shard_fetch(&source, i, &info, &shard, err);
        for (uint32_t k = 0; r == 0 && k < info.n_samples; k++)
            r = scan_sample(b, shard, k, number++, &scan, err);
        if (progress)
            progress(context, i);
    }
    free(scan.sample);
    return r;
}

static int build(Build *b, const char *text, size_t n_bytes, IndexProgress progress, void *context,
                 char **ret, size_t *ret_bytes, Error *err)
{
    char name[512];
    (void)snprintf(name, sizeof(name), "%.480s/index.json", store_uri(b->store));
    b->source = name;
    int r = mds_index_walk(name, text, n_bytes, add_entry, b, err);
    if (r < 0)
        return r;
    if (b->n_samples == 0)
        return error_set(err, -EINVAL, "%s: shards: no samples", name);
    if (b->scan || b->sample_hashes) {
        r = scan_shards(b, progress, context, err);
        if (r < 0)
            return error_prefix(err, r, "cannot index %s", store_uri(b->store));
    }

    IndexHeader header = {.version = INDEX_VERSION,
                          .source = hash_bytes(text, n_bytes),
                          .n_shards = b->n_shards,
                          .n_samples = b->n_samples};
    memcpy(header.magic, INDEX_MAGIC, sizeof(header.magic));
    return assemble(b, &header, ret, ret_bytes, err);
}

int index_build_text(Store *store, const char *text, size_t n_text, const uint64_t *sample_hashes,
                     size_t n_hashes, char **ret, size_t *ret_bytes, Error *err)
{
    _cleanup_free_ Build *b = calloc(1, sizeof(*b));
    if (!b || bytes_add(&b->hashes, sample_hashes, n_hashes * sizeof(*sample_hashes)) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    b->store = store;
    int r = build(b, text, n_text, NULL, NULL, ret, ret_bytes, err);
    if (r == 0)
        assert(n_hashes == b->n_samples);
    build_clear(b);
    return r;
}

int index_build(Store *store, bool sample_hashes, IndexProgress progress, void *context, char **ret,
                size_t *ret_bytes, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = store_get(store, "index.json", SIZE_MAX / 2, &text, &n_bytes, err);
    if (r == -ENOENT)
        return error_set(err, -EINVAL, "%s holds no MDS dataset: it has no index.json",
                         store_uri(store));
    if (r < 0)
        return r;
    _cleanup_free_ Build *b = calloc(1, sizeof(*b));
    if (!b)
        return error_set(err, -ENOMEM, "out of memory");
    b->store = store;
    b->sample_hashes = sample_hashes;
    r = build(b, text, n_bytes, progress, context, ret, ret_bytes, err);
    build_clear(b);
    return r;
}
