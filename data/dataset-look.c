/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-look.c - inspects a job's data without building or keeping anything; see dataset-look.h. */
#include "data/dataset-look.h"

#include "data/dataset-terms.h"
#include "data/index-open.h"
#include "data/stream/fetch.h"
#include "protocol/job-terms.h"

#include <limits.h>
#include <string.h>

enum {
    INDEX_WHOLE_MAX = 64 << 20,  /* bytes of the largest remote index.json that is read whole */
    INDEX_HEAD = 1 << 20,        /* bytes read of a larger index.json, for its first shard */
    SHARD_BYTES_MAX = 256 << 20, /* bytes of the largest shard that is unpacked for one sample */
    SAMPLES_TRIED = 64, /* limit of the samples that are read to find a sample with latents */
};

/* The first shard that has samples. Every other shard that is read must have the same columns. */
typedef struct FirstLook {
    const char *source;
    bool only; /* stop at the first shard with samples, since index.json may be cut */
    size_t seen;
    uint64_t n_samples, n_bytes; /* sums over the shards seen; n_bytes: raw and compressed files */
    MdsEntry entry;
} FirstLook;

static int see_entry(void *context, size_t shard, const MdsEntry *entry, Error *err)
{
    FirstLook *first = context;
    int r = first->seen > 0 ? mds_entry_agrees(&first->entry, entry, first->source, shard, err) : 0;
    if (r < 0)
        return r;
    if (first->seen == 0 || first->entry.n_samples == 0)
        first->entry = *entry;
    first->seen++;
    first->n_samples += entry->n_samples;
    first->n_bytes += entry->raw.n_bytes + (*entry->compression ? entry->zip.n_bytes : 0);
    return first->only && first->entry.n_samples > 0 ? -ECANCELED : 0;
}

static int read_index(Store *store, FirstLook *first, Hash *ret_hash, Error *err)
{
    _cleanup_free_ char *text = NULL;
    uint64_t n_bytes;
    size_t n = 0;
    int r = index_head(store, &n_bytes, err);
    if (r < 0)
        return r;
    char path[PATH_MAX];
    bool local = store_local_path(store, "index.json", path, sizeof(path), NULL) == 0;
    if (local || n_bytes <= INDEX_WHOLE_MAX) {
        r = store_get(store, "index.json", SIZE_MAX / 2, &text, &n, err);
        if (r == 0)
            *ret_hash = hash_bytes(text, n);
    } else {
        r = index_find_source(store, ret_hash, err);
        first->only = true;
        n = INDEX_HEAD;
        if (r == 0 && !(text = malloc(n)))
            r = error_set(err, -ENOMEM, "out of memory");
        if (r == 0)
            r = store_get_range(store, "index.json", 0, n, text, err);
    }
    if (r == 0)
        r = mds_index_walk(first->source, text, n, see_entry, first, err);
    if (r == -ECANCELED)
        r = 0;
    if (r == 0 && (first->seen == 0 || first->entry.n_samples == 0))
        r = error_set(err, -EINVAL, "%s: shards: no samples", first->source);
    return r;
}

static void shard_of_entry(const MdsEntry *e, IndexShard *ret)
{
    *ret = (IndexShard){.n_samples = e->n_samples,
                        .raw_bytes = e->raw.n_bytes,
                        .zip_bytes = *e->compression ? e->zip.n_bytes : 0,
                        .raw_name = e->raw.basename,
                        .zip_name = e->zip.basename};
    for (size_t i = 0; i < e->n_hashes; i++) {
        ret->raw_hashes[i] = e->raw.hashes[i];
        ret->zip_hashes[i] = e->zip.hashes[i];
    }
}

/* Reads the offset table and one sample by range requests, whether the store is local or not. */
static int read_range(Store *store, const IndexShard *info, uint32_t i, char **ret, size_t *ret_n,
                      Error *err)
{
    uint32_t range[2], n;
    int r = store_get_range(store, info->raw_name, 0, sizeof(n), &n, err);
    if (r == 0 && n != info->n_samples)
        return error_set(err, -EBADMSG, "%s/%s: %u samples, index.json says %llu", store_uri(store),
                         info->raw_name, n, (unsigned long long)info->n_samples);
    if (r == 0)
        r = store_get_range(store, info->raw_name, 4 + 4 * (uint64_t)i, sizeof(range), range, err);
    if (r < 0)
        return r;
    if (range[0] > range[1] || range[1] > info->raw_bytes ||
        range[1] - range[0] > MDS_SAMPLE_BYTES_MAX)
        return error_set(err, -EBADMSG, "%s/%s[%u]: offsets %u..%u", store_uri(store),
                         info->raw_name, i, range[0], range[1]);
    *ret_n = range[1] - range[0];
    *ret = malloc(*ret_n + 1);
    return *ret ? store_get_range(store, info->raw_name, range[0], *ret_n, *ret, err)
                : error_set(err, -ENOMEM, "out of memory");
}

typedef struct Looking {
    Store *store;
    const MdsEntry *entry;
    IndexShard info;
    Shard *shard; /* the shard, unpacked in memory; NULL: the shard is not compressed */
} Looking;

static int read_sample(const Looking *l, uint32_t i, char **ret, size_t *ret_n, Error *err)
{
    uint32_t range[2];
    size_t room = 0;
    if (!l->shard)
        return read_range(l->store, &l->info, i, ret, ret_n, err);
    int r = shard_read(l->shard, i, range, ret, &room, err);
    *ret_n = range[1] - range[0];
    return r;
}

static int observe_sample(const Looking *l, size_t latents, size_t text, DatasetShape *shape,
                          Error *err)
{
    const MdsSchema *schema = &l->entry->schema;
    for (uint32_t i = 0; i < MIN(l->info.n_samples, (uint64_t)SAMPLES_TRIED); i++) {
        _cleanup_free_ char *bytes = NULL;
        size_t n = 0;
        MdsField fields[MDS_COLUMNS_MAX];
        int r = read_sample(l, i, &bytes, &n, err);
        if (r == 0)
            r = mds_sample_split(schema, bytes, n, fields, err);
        if (r < 0)
            return r;
        if (fields[latents].n_bytes == 0)
            continue; /* training skips this sample, too */
        r = dataset_observe_latents(&schema->columns[latents], &fields[latents], shape, err);
        if (r >= 0)
            r = dataset_observe_text(&schema->columns[text], &fields[text], shape, err);
        return r < 0 ? error_prefix(err, r, "%s[%u]", l->info.raw_name, i) : 1;
    }
    return 0;
}

/* Returns 1 if the shapes are known, 0 if a large shard would have to be unpacked to find them. */
static int observe_shard(Store *store, const MdsEntry *entry, size_t latents, size_t text,
                         DatasetShape *shape, Error *err)
{
    _cleanup_(event_count_freep) EventCount *events = NULL;
    Looking l = {.store = store, .entry = entry};
    shard_of_entry(entry, &l.info);
    if (!*entry->compression)
        return observe_sample(&l, latents, text, shape, err);
    if (l.info.raw_bytes > SHARD_BYTES_MAX || l.info.zip_bytes > SHARD_BYTES_MAX)
        return 0;
    int r = event_count_new(&events);
    if (r < 0)
        return error_errno(err, r, "cannot read a shard");
    ShardSource source = {.store = store,
                          .compression = entry->compression,
                          .n_hashes = entry->n_hashes,
                          .events = events,
                          .piece_bytes = 8 << 20};
    for (size_t i = 0; i < entry->n_hashes; i++)
        source.hashes[i] = entry->hashes[i];
    r = shard_fetch(&source, 0, &l.info, &l.shard, err);
    if (r == 0)
        r = observe_sample(&l, latents, text, shape, err);
    (void)shard_free(l.shard);
    return r;
}

static int look_at_stream(const Job *job, const DatasetTerms *terms, size_t stream,
                          FirstLook *first, DatasetLook *look, Error *err)
{
    const char *uri = job->data.streams[stream].uri;
    Hash *hash = &look->sources.index[stream];
    char source[512];
    size_t latents, text;
    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(uri, &store, err);
    if (r < 0)
        return r;
    (void)snprintf(source, sizeof(source), "%.480s/index.json", store_uri(store));
    *first = (FirstLook){.source = source};
    r = read_index(store, first, hash, err);
    if (r == 0)
        r = index_check_source(source, *hash, &terms->index[stream], err);
    const MdsSchema *schema = &first->entry.schema;
    look->compressed = look->compressed || *first->entry.compression;
    look->n_samples += first->n_samples;
    if (!first->only)
        look->sizes[stream] = (StreamSize){first->n_samples, first->n_bytes};
    if (r == 0)
        r = dataset_terms_find(terms, job, schema, store_uri(store), &latents, &text, err);
    if (r < 0)
        return r;
    r = dataset_observe_latents(&schema->columns[latents], NULL, &look->shape, err);
    int known = r;
    if (r >= 0)
        r = dataset_observe_text(&schema->columns[text], NULL, &look->shape, err);
    if (r >= 0 && (r == 0 || known == 0))
        r = observe_shard(store, &first->entry, latents, text, &look->shape, err);
    return r < 0 ? error_prefix(err, r, "%s", store_uri(store)) : 0;
}

int dataset_look(const Job *job, DatasetLook *ret, Error *err)
{
    DatasetLook look = {.sources.n_streams = job->data.n_streams};
    _cleanup_(dataset_terms_clear) DatasetTerms terms = {0};
    _cleanup_free_ FirstLook *first = malloc(sizeof(*first));
    if (!first)
        return error_set(err, -ENOMEM, "out of memory");
    int r = dataset_terms_read(job, NULL, &terms, &look.sources, err);
    if (r == 0 && terms.empty_text_uri) {
        _cleanup_free_ float *values = NULL;
        r = dataset_terms_read_empty(&terms, job, NULL, &look.shape, &values,
                                     &look.sources.empty_text, err);
        look.sources.has_empty_text = true;
    }
    for (size_t i = 0; r == 0 && i < job->data.n_streams; i++) {
        r = look_at_stream(job, &terms, i, first, &look, err);
        if (r < 0)
            r = error_prefix(err, r, "data.streams[%zu].uri", i);
    }
    look.sides_known = look.shape.channels > 0 && look.shape.text_dim > 0;
    if (r == 0 && look.sides_known)
        r = dataset_terms_check(&terms, &look.shape, err);
    if (r == 0)
        *ret = look;
    return r;
}

int dataset_look_identity(const Job *job, const char *config, Hash *ret, char **ret_terms,
                          Error *err)
{
    _cleanup_(dataset_terms_clear) DatasetTerms terms = {0};
    _cleanup_free_ float *empty = NULL;
    DatasetShape shape = {0};
    Hash ignored; /* the hash is in the job's sources already */
    int r = dataset_terms_read(job, NULL, &terms, NULL, err);
    if (r == 0 && terms.empty_text_uri)
        r = dataset_terms_read_empty(&terms, job, NULL, &shape, &empty, &ignored, err);
    if (r < 0)
        return r;
    const size_t n = (size_t)shape.text_tokens * (size_t)shape.text_dim;
    const JobNamed named = {.latents = terms.latents,
                            .text = terms.text,
                            .config = config,
                            .empty = empty,
                            .empty_bytes = empty ? n * sizeof(float) : 0};
    r = job_terms_identity(job, &named, ret);
    if (r < 0)
        return error_errno(err, r, "the job's identity");
    *ret_terms = job_terms_format(job, &named);
    return 0;
}
