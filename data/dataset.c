/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.c - the facts of a dataset, and reading one sample; see loader.h. dataset-open.c makes the dataset. */
#include "data/dataset-internal.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "data/floats.h"

#include <inttypes.h>
#include <string.h>

const DatasetShape *dataset_shape(const Dataset *d) { return &d->shape; }
const Order *dataset_order(const Dataset *d) { return &d->order; }
Hash dataset_digest(const Dataset *d) { return d->digest; }
const float *dataset_empty_text(const Dataset *d) { return d->empty_text; }

JobNamed dataset_job_named(const Dataset *d, const char *config)
{
    const size_t n = (size_t)d->shape.text_tokens * (size_t)d->shape.text_dim;
    return (JobNamed){.latents = d->terms.latents,
                      .text = d->terms.text,
                      .config = config,
                      .empty = d->empty_text,
                      .empty_bytes = d->empty_text ? n * sizeof(float) : 0};
}

char *dataset_digest_terms(const Dataset *d)
{
    json_t *streams = json_array();
    for (size_t i = 0; i < d->n_streams; i++) {
        const Index *index = d->streams[i].index;
        json_array_append_new(streams, json_pack("{s:o, s:o, s:I, s:I}", "index",
                                                 json_hash(index_digest(index)), "index_json",
                                                 json_hash(index_source(index)), "samples",
                                                 (json_int_t)d->order.streams[i].n_samples,
                                                 "shards", (json_int_t)index_n_shards(index)));
    }
    _cleanup_json_ json_t *json = json_pack("{s:{s:o}}", "data", "streams", streams);
    return memory_given(json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS));
}

Dataset *dataset_free(Dataset *d)
{
    if (!d)
        return NULL;
    for (size_t i = 0; i < d->n_streams; i++) {
        d->streams[i].shards = shards_free(d->streams[i].shards);
        d->streams[i].index = index_free(d->streams[i].index);
        d->streams[i].store = store_free(d->streams[i].store);
    }
    if (d->has_mutex)
        (void)pthread_mutex_destroy(&d->mutex); /* no thread holds the mutex any more */
    (void)cache_free(d->cache);
    (void)event_count_free(d->events);
    dataset_terms_clear(&d->terms);
    free(d->empty_text);
    free(d->planes);
    free(d);
    return NULL;
}

/* ---- payloads to floats ---- */

static const char *dims_text(const uint64_t *dims, int n_dims, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i ? "x" : "", dims[i]);
    return text;
}

/* Decodes a payload that must hold dims[n_dims] floats; n is the product of dims. */
static int decode_floats(const MdsColumn *column, MdsField field, const uint64_t *dims, int n_dims,
                         float *ret, Error *err)
{
    size_t n = 1;
    for (int i = 0; i < n_dims; i++)
        n *= dims[i];

    MdsArray array = {0};
    if (column->kind == MDS_BYTES) { /* raw values, whose length gives their type */
        array.number = field.n_bytes == 2 * n   ? MDS_FLOAT16
                       : field.n_bytes == 4 * n ? MDS_FLOAT32
                                                : MDS_NUMBER_NONE;
        array.values = field.data;
        if (array.number == MDS_NUMBER_NONE)
            return error_set(err, -EBADMSG,
                             "column %s: %zu bytes are neither %zu float16 nor as many float32",
                             column->name, field.n_bytes, n);
    } else {
        int r = mds_array_decode(column, field, &array, err);
        if (r < 0)
            return r;
        char is[128], wanted[128];
        if (array.n_dims != n_dims || memcmp(array.dims, dims, (size_t)n_dims * 8) != 0)
            return error_set(err, -EBADMSG, "column %s: its array is %s, %s is wanted",
                             column->name, dims_text(array.dims, array.n_dims, is, sizeof(is)),
                             dims_text(dims, n_dims, wanted, sizeof(wanted)));
    }
    return dataset_expand("column", column->name, array.number, array.values, n, ret, err);
}

/* ---- one sample ---- */

static void to_nhwc(const Dataset *d, float *ret)
{
    size_t channels = (size_t)d->shape.channels, pixels = d->n_latents / channels;
    for (size_t c = 0; c < channels; c++)
        for (size_t p = 0; p < pixels; p++)
            ret[p * channels + c] = d->planes[c * pixels + p] * d->latent_scale;
}

static int copy_caption(const Stream *stream, const MdsField *fields, char **ret)
{
    size_t n = stream->caption >= 0 ? fields[stream->caption].n_bytes : 0;
    char *text = malloc(n + 1);
    if (!text)
        return -ENOMEM;
    if (n > 0)
        memcpy(text, fields[stream->caption].data, n);
    text[n] = '\0';
    *ret = text;
    return 0;
}

static int decode_sample(Dataset *d, const Stream *stream, const void *bytes, size_t n_bytes,
                         float *latents, float *text, char **caption, Error *err)
{
    const MdsSchema *schema = index_schema(stream->index);
    MdsField fields[MDS_COLUMNS_MAX];
    int r = mds_sample_split(schema, bytes, n_bytes, fields, err);
    if (r < 0)
        return r;

    const DatasetShape *s = &d->shape;
    if (latents) {
        uint64_t dims[] = {(uint64_t)s->channels, (uint64_t)s->height, (uint64_t)s->width};
        r = decode_floats(&schema->columns[stream->latents], fields[stream->latents], dims, 3,
                          d->planes, err);
        if (r < 0)
            return r;
        to_nhwc(d, latents);
    }
    if (text) {
        uint64_t dims[] = {(uint64_t)s->text_tokens, (uint64_t)s->text_dim};
        r = decode_floats(&schema->columns[stream->text], fields[stream->text], dims, 2, text, err);
        if (r < 0)
            return r;
    }
    return caption ? copy_caption(stream, fields, caption) : 0;
}

const char *dataset_sample_name(const Dataset *d, OrderSample sample, char *text, size_t size)
{
    const Stream *stream = &d->streams[sample.stream];
    IndexPlace place;
    IndexShard shard;
    char number[16] = "";
    if (d->n_streams > 1)
        (void)snprintf(number, sizeof(number), "%d:", sample.stream);
    if (index_locate(stream->index, stream->latents, (uint64_t)sample.sample, &place, NULL) < 0 ||
        index_shard(stream->index, place.shard, &shard, NULL) < 0)
        (void)snprintf(text, size, "%ssample %" PRId64, number, sample.sample);
    else
        (void)snprintf(text, size, "%s%s[%u]", number, shard.raw_name, place.sample);
    return text;
}

int64_t dataset_reads_ahead(const Dataset *d)
{
    for (size_t i = 0; i < d->n_streams; i++)
        if (!shards_are_local(d->streams[i].shards))
            return d->read_ahead;
    return 1;
}

static int locate(const Dataset *d, OrderSample sample, IndexPlace *ret, Error *err)
{
    assert(sample.stream >= 0 && (size_t)sample.stream < d->n_streams);
    assert(sample.sample >= 0 && sample.sample < d->order.streams[sample.stream].n_samples);
    const Stream *stream = &d->streams[sample.stream];
    return index_locate(stream->index, stream->latents, (uint64_t)sample.sample, ret, err);
}

void dataset_begin(Dataset *d, OrderSample sample, SampleRead *ret)
{
    IndexPlace place;
    Error err = ERROR_INIT;
    int r = locate(d, sample, &place, &err);
    if (r < 0)
        sample_read_refuse(ret, r, &err);
    else
        sample_read_begin(ret, d->streams[sample.stream].shards, place);
}

bool dataset_expect(Dataset *d, OrderSample sample, uint64_t round)
{
    IndexPlace place;
    return locate(d, sample, &place, NULL) < 0 || /* the sample's read will report the error */
           shards_expect(d->streams[sample.stream].shards, place.shard, round);
}

int dataset_decode(Dataset *d, OrderSample sample, const void *bytes, size_t n_bytes,
                   float *latents, float *text, char **caption, Error *err)
{
    assert(sample.stream >= 0 && (size_t)sample.stream < d->n_streams);
    Stream *stream = &d->streams[sample.stream];
    int r = decode_sample(d, stream, bytes, n_bytes, latents, text, caption, err);
    if (r < 0) {
        char name[MDS_BASENAME_MAX + 32];
        return error_prefix(err, r, "%s/%s", store_uri(stream->store),
                            dataset_sample_name(d, sample, name, sizeof(name)));
    }
    return 0;
}

int dataset_read(Dataset *d, OrderSample sample, float *latents, float *text, char **caption,
                 Error *err)
{
    SampleRead read = {0};
    const void *bytes;
    size_t n_bytes;
    (void)pthread_mutex_lock(&d->mutex); /* fails only on program bugs */
    int r;
    dataset_begin(d, sample, &read);
    for (;;) {
        uint64_t seen = event_count_read(d->events), wake_usec = UINT64_MAX;
        r = sample_read_poll(&read, true, &wake_usec, &bytes, &n_bytes, err);
        if (r != 0)
            break;
        (void)pthread_mutex_unlock(&d->mutex);
        event_count_wait(d->events, seen, wake_usec);
        (void)pthread_mutex_lock(&d->mutex);
    }
    if (r > 0)
        r = dataset_decode(d, sample, bytes, n_bytes, latents, text, caption, err);
    sample_read_end(&read);
    sample_read_clear(&read);
    (void)pthread_mutex_unlock(&d->mutex);
    return r;
}
