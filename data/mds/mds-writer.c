/* SPDX-License-Identifier: Apache-2.0 */
/* mds-writer.c - see mds-writer.h. */
#include "data/mds/mds-writer.h"

#include "data/mds/mds-text.h"

#include <string.h>
#include <zstd.h>

enum {
    PENDING_MAX = 64, /* files that are being put at the same time */
    /* If the files that are being put have more bytes, the writer waits for all puts. */
    PENDING_BYTES_MAX = 256 << 20
};

struct MdsWriter {
    Store *store;
    MdsShard *shard; /* the shard that is being filled */
    MdsText index;
    size_t n_shards;

    char *pending[PENDING_MAX]; /* files that the store may still be reading */
    size_t n_pending, pending_bytes;
};

int mds_writer_new(Store *store, const MdsSchema *schema, const MdsWriterOptions *options,
                   MdsWriter **ret, Error *err)
{
    uint64_t n_bytes;
    int r = store_head(store, "index.json", &n_bytes, err);
    if (r >= 0)
        return error_set(err, -EEXIST, "%s already holds a dataset (index.json)", store_uri(store));
    if (r != -ENOENT)
        return r;

    _cleanup_(mds_writer_freep) MdsWriter *w = calloc(1, sizeof(*w));
    if (!w)
        return error_set(err, -ENOMEM, "out of memory");
    w->store = store;
    r = mds_shard_new(schema, options, &w->shard, err);
    if (r < 0)
        return r;
    r = mds_text_format(&w->index, "{\"shards\": [");
    if (r < 0)
        return error_set(err, r, "out of memory");
    *ret = TAKE_PTR(w);
    return 0;
}

/* Waits until the store has finished all puts, and frees the bytes of the files. */
static int settle(MdsWriter *w, Error *err)
{
    int r = store_flush(w->store, err);
    while (w->n_pending > 0)
        free(w->pending[--w->n_pending]);
    w->pending_bytes = 0;
    return r;
}

MdsWriter *mds_writer_free(MdsWriter *w)
{
    if (!w)
        return NULL;
    if (w->n_pending > 0)
        (void)settle(w, NULL); /* an error has no effect: the dataset is abandoned */
    mds_shard_free(w->shard);
    free(w->index.data);
    free(w);
    return NULL;
}

/* Compresses a shard into one zstd frame, whose header states the size of the content. */
static int compress(const MdsWriter *w, const char *raw, size_t n_raw, char **ret,
                    size_t *ret_bytes, Error *err)
{
    size_t room = ZSTD_compressBound(n_raw);
    _cleanup_free_ char *zip = malloc(room);
    if (!zip)
        return error_set(err, -ENOMEM, "out of memory compressing a shard of %zu bytes", n_raw);
    size_t n = ZSTD_compress(zip, room, raw, n_raw, mds_shard_level(w->shard));
    if (ZSTD_isError(n))
        return error_set(err, -EINVAL, "zstd: %s", ZSTD_getErrorName(n));
    *ret = TAKE_PTR(zip);
    *ret_bytes = n;
    return 0;
}

/* Puts a file. Takes over the bytes, which must stay until the put has finished. */
static int put_file(MdsWriter *w, const char *name, char *bytes, size_t n_bytes, Error *err)
{
    struct iovec part = {bytes, n_bytes};
    w->pending[w->n_pending++] = bytes;
    w->pending_bytes += n_bytes;
    int r = store_put(w->store, name, &part, 1, STORE_DEFER | STORE_IF_ABSENT, err);
    if (r == 0 && (w->n_pending == PENDING_MAX || w->pending_bytes > PENDING_BYTES_MAX))
        r = settle(w, err);
    return r;
}

static int add_entry(MdsWriter *w, const MdsFile *raw, const MdsFile *zip, uint64_t n_samples,
                     Error *err)
{
    _cleanup_free_ char *entry = NULL;
    size_t n_entry;
    int r = mds_shard_entry(w->shard, raw, zip, n_samples, &entry, &n_entry, err);
    if (r < 0)
        return r;
    r = w->n_shards ? mds_text_add(&w->index, ", ", 2) : 0;
    if (r == 0)
        r = mds_text_add(&w->index, entry, n_entry);
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

/* Puts the shard's file, and adds its entry to the text of index.json. */
static int flush_shard(MdsWriter *w, Error *err)
{
    _cleanup_free_ char *raw = NULL, *zip = NULL;
    size_t n_samples = mds_shard_n_samples(w->shard), n_raw, n_zip = 0;
    char raw_name[48], zip_name[64];
    MdsFile raw_file, zip_file;
    bool zipped = mds_shard_level(w->shard) > 0;
    (void)snprintf(raw_name, sizeof(raw_name), "shard.%05zu.mds", w->n_shards);
    (void)snprintf(zip_name, sizeof(zip_name), "%s.zstd", raw_name);
    int r = mds_shard_take(w->shard, &raw, &n_raw, err);
    if (r == 0)
        r = mds_shard_describe(w->shard, raw_name, raw, n_raw, &raw_file, err);
    if (r == 0 && zipped)
        r = compress(w, raw, n_raw, &zip, &n_zip, err);
    if (r == 0 && zipped)
        r = mds_shard_describe(w->shard, zip_name, zip, n_zip, &zip_file, err);
    if (r == 0)
        r = add_entry(w, &raw_file, zipped ? &zip_file : NULL, n_samples, err);
    if (r == 0)
        r = zipped ? put_file(w, zip_name, TAKE_PTR(zip), n_zip, err)
                   : put_file(w, raw_name, TAKE_PTR(raw), n_raw, err);
    w->n_shards++;
    return r;
}

int mds_writer_add(MdsWriter *w, const MdsField *fields, Error *err)
{
    int r = mds_shard_is_full(w->shard, fields, err);
    /* If the first sample alone exceeds the size limit, an empty shard is put in front of it, as the writer that
     * defined the format does. */
    if (r > 0)
        r = flush_shard(w, err);
    return r < 0 ? r : mds_shard_add(w->shard, fields, err);
}

int mds_writer_finish(MdsWriter *w, Error *err)
{
    int r = mds_shard_n_samples(w->shard) ? flush_shard(w, err) : 0;
    if (r == 0)
        r = settle(w, err);
    if (r == 0)
        r = mds_text_format(&w->index, "], \"version\": 2}");
    if (r < 0)
        return r;
    struct iovec part = {w->index.data, w->index.n};
    return store_put(w->store, "index.json", &part, 1, STORE_IF_ABSENT, err);
}
