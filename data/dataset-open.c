/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-open.c - makes a dataset: opens its streams, finds the shapes in the first sample, and refuses data that
 * cannot be right. See loader.h. */
#include "base/log.h"
#include "data/dataset-internal.h"
#include "data/dataset-terms.h"
#include "data/index-open.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Bounds of the latents' standard deviation. It is near 1 for latents multiplied by the scale of their VAE; Stable
 * Diffusion's raw latents have about 5.5. */
static const double STD_MIN = 0.3, STD_MAX = 3.0;

enum {
    STD_SAMPLES = 32,
};

/* The least number of times, on average, that this rank must use each sample of a shard so that whole shards are
 * fetched. Below 0.5, whole shards are more than twice the bytes that range requests would fetch. */
static const double USES_THAT_PAY = 0.5;

/* ---- what the cache can hold ---- */

/* Returns how many bytes of unpacked shards a shuffle window spans: the number of its shards times the size of the
 * first shard. */
static double window_bytes(const Job *job, const Stream *stream)
{
    IndexShard shard;
    if (index_shard(stream->index, 0, &shard, NULL) < 0)
        return 0; /* the function that reads the shard will report the error */
    double n_shards = (double)index_n_shards(stream->index);
    double n = (double)index_n_samples(stream->index);
    return fmin(n_shards, (double)job->data.shuffle_window * n_shards / n + 1) *
           (double)shard.raw_bytes;
}

/* Returns how many bytes of shards the cache has room for, beside the copies of indices that it also keeps. */
static double cache_bound(const Dataset *d, const Job *job)
{
    if (!job->data.cache_dir || !job->data.cache_bytes)
        return job->data.cache_dir ? HUGE_VAL : (double)SHARDS_MEMORY_MAX;
    double bound = (double)job->data.cache_bytes;
    for (size_t i = 0; i < d->n_streams; i++)
        if (d->streams[i].shards && !shards_are_local(d->streams[i].shards))
            bound -= (double)index_bytes(d->streams[i].index);
    return fmax(bound, 0);
}

/* Warns if the unpacked shards of a shuffle window do not fit the cache: then a shard is fetched and unpacked for
 * nearly every sample. */
static void warn_of_thrashing(const Dataset *d, const Job *job, const Stream *stream)
{
    double bytes = window_bytes(job, stream), bound = cache_bound(d, job);
    if (shards_by_range(stream->shards) || shards_in_place(stream->shards) || bytes <= bound)
        return;
    log_warning("%s: a shuffle window of %" PRId64
                " samples spans %.1f GB of unpacked shards, more "
                "than the cache holds (%.1f GB): set data.cache_dir and data.cache_bytes, %sor a "
                "smaller data.shuffle_window",
                store_uri(stream->store), job->data.shuffle_window, bytes / 1e9, bound / 1e9,
                *index_compression(stream->index) ? "" : "make the index with --sample-hashes, ");
}

/* Returns how far ahead shards may be fetched, as a fraction of a window's samples, so that these shards find room
 * beside the shards of the window that is being read. Negative: fetching whole shards ahead does not pay. */
static double plan_stream(const Dataset *d, const Job *job, const Stream *stream, double part,
                          double left, double share)
{
    double n = (double)index_n_samples(stream->index), window = window_bytes(job, stream);
    double bound = cache_bound(d, job) * part, uses = left * part / n;
    /* If not all shards stay in the cache, they are fetched again in each pass. */
    bool all_stay = window * fmax(1, n / (double)job->data.shuffle_window) <= bound;
    if (!all_stay)
        uses = fmin(uses, share);
    if (!job->data.cache_dir || shards_are_local(stream->shards) ||
        (shards_by_range(stream->shards) && uses < USES_THAT_PAY))
        return -1;
    return all_stay ? 1 : fmin(bound / window - 1, 1);
}

int64_t dataset_plan_cache(Dataset *d, const Job *job, int64_t first_step, double share)
{
    double sum = 0, horizon = 0,
           left = (double)(job->train.steps - first_step) * (double)job->train.global_batch * share;
    for (size_t i = 0; i < d->n_streams; i++)
        sum += job->data.streams[i].proportion;
    for (size_t i = 0; i < d->n_streams; i++) {
        double part = job->data.streams[i].proportion / sum;
        double ahead = plan_stream(d, job, &d->streams[i], part, left, share);
        shards_keep_whole(d->streams[i].shards, ahead >= 0);
        horizon = fmax(horizon, ahead);
    }
    return (int64_t)(horizon * share * (double)job->data.shuffle_window);
}

/* noted: the earlier hash of the stream's index.json. */
static int open_stream(Dataset *d, const Job *job, const JobStream *from, const NotedHash *noted,
                       Stream *stream, Error *err)
{
    int r = store_open(from->uri, &stream->store, err);
    if (r == 0)
        r = index_open_noted(stream->store, d->cache, noted, &stream->index, err);
    if (r == 0)
        r = dataset_terms_find(&d->terms, job, index_schema(stream->index),
                               store_uri(stream->store), &stream->latents, &stream->text, err);
    if (r == 0)
        r = shards_new(stream->store, stream->index,
                       &(ShardsOptions){.cache = d->cache,
                                        .events = d->events,
                                        .budget = &d->budget},
                       &stream->shards, err);
    if (r < 0)
        return r;
    const MdsSchema *schema = index_schema(stream->index);
    stream->caption = mds_schema_find(schema, "caption", NULL);
    if (stream->caption >= 0 && schema->columns[stream->caption].kind != MDS_TEXT)
        stream->caption = -1;
    warn_of_thrashing(d, job, stream);
    if (index_n_hashes(stream->index) == 0 && !index_has_sample_hashes(stream->index))
        log_warning("%s: its index.json has no hashes: nothing tells that a shard is damaged; "
                    "sdprep index --sample-hashes would",
                    store_uri(stream->store));
    return 0;
}

/* Finds the shapes of the stream in its columns' encodings, else in its first sample. */
static int observe_stream(Dataset *d, Stream *stream, Error *err)
{
    const MdsSchema *schema = index_schema(stream->index);
    const MdsColumn *latents = &schema->columns[stream->latents],
                    *text = &schema->columns[stream->text];
    IndexPlace place;
    const void *bytes;
    size_t n_bytes;
    MdsField fields[MDS_COLUMNS_MAX];
    int r = dataset_observe_latents(latents, NULL, &d->shape, err), known = r;
    if (r >= 0)
        r = dataset_observe_text(text, NULL, &d->shape, err);
    if (r < 0 || (known && r))
        return MIN(r, 0);
    r = index_locate(stream->index, stream->latents, 0, &place, err);
    if (r == 0)
        r = shards_read(stream->shards, place, &bytes, &n_bytes, err);
    if (r == 0)
        r = mds_sample_split(schema, bytes, n_bytes, fields, err);
    if (r == 0)
        r = dataset_observe_latents(latents, &fields[stream->latents], &d->shape, err);
    if (r >= 0)
        r = dataset_observe_text(text, &fields[stream->text], &d->shape, err);
    return r < 0 ? error_prefix(err, r, "first sample") : 0;
}

static int observe_shape(Dataset *d, Error *err)
{
    for (size_t i = 0; i < d->n_streams; i++) {
        int r = observe_stream(d, &d->streams[i], err);
        if (r < 0)
            return error_prefix(err, r, "data.streams[%zu]: %s", i, store_uri(d->streams[i].store));
    }
    int r = dataset_terms_check(&d->terms, &d->shape, err);
    if (r < 0)
        return r;
    d->n_latents = (size_t)d->shape.channels * (size_t)d->shape.height * (size_t)d->shape.width;
    d->n_text = (size_t)d->shape.text_tokens * (size_t)d->shape.text_dim;
    d->planes = malloc(d->n_latents * sizeof(float));
    return d->planes ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* Waits for the bytes of reads[i], while reads[i + 1] to reads[n - 1], which were begun, too, continue. No other thread
 * uses the dataset yet. */
static int wait_for(Dataset *d, SampleRead *reads, int64_t i, int64_t n, const void **ret,
                    size_t *ret_bytes, Error *err)
{
    for (;;) {
        uint64_t seen = event_count_read(d->events), wake_usec = UINT64_MAX;
        int r = sample_read_poll(&reads[i], true, &wake_usec, ret, ret_bytes, err);
        if (r != 0)
            return MIN(r, 0);
        const void *bytes;
        size_t n_bytes;
        /* A failure of reads[k] is returned by the call that waits for reads[k]. */
        for (int64_t k = i + 1; k < n; k++)
            (void)sample_read_poll(&reads[k], false, &wake_usec, &bytes, &n_bytes, NULL);
        event_count_wait(d->events, seen, wake_usec);
    }
}

typedef struct Spread {
    double sum, squares, count;
} Spread;

static void spread_add(Spread *s, const float *values, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        s->sum += (double)values[k];
        s->squares += (double)values[k] * (double)values[k];
    }
    s->count += (double)n;
}

static double spread_std(const Spread *s)
{
    double mean = s->sum / s->count;
    return sqrt(MAX(s->squares / s->count - mean * mean, 0.0));
}

/* Decodes a stream's first n samples, which must have the dataset's shapes. */
static int read_first(Dataset *d, size_t stream, int64_t n, SampleRead *reads, Spread *spread,
                      Error *err)
{
    _cleanup_free_ float *latents = malloc(d->n_latents * sizeof(float));
    _cleanup_free_ float *text = malloc(d->n_text * sizeof(float));
    if (!latents || !text)
        return error_set(err, -ENOMEM, "out of memory");
    const int64_t ahead = dataset_reads_ahead(d);
    int r = 0;
    for (int64_t i = 0, n_begun = 0; r == 0 && i < n; i++) {
        for (; n_begun < MIN(n, i + ahead); n_begun++)
            dataset_begin(d, (OrderSample){.stream = (int)stream, .sample = n_begun},
                          &reads[n_begun]);
        const void *bytes;
        size_t n_bytes;
        r = wait_for(d, reads, i, n_begun, &bytes, &n_bytes, err);
        if (r == 0)
            r = dataset_decode(d, (OrderSample){.stream = (int)stream, .sample = i}, bytes, n_bytes,
                               latents, text, NULL, err);
        if (r == 0)
            spread_add(spread, latents, d->n_latents);
        sample_read_end(&reads[i]);
        sample_read_clear(&reads[i]);
    }
    return r;
}

/* Checks that the first samples of a stream have the dataset's shapes, and latents with a standard deviation near 1. */
static int check_first_samples(Dataset *d, size_t stream, Error *err)
{
    SampleRead reads[STD_SAMPLES] = {0};
    Spread spread = {0};
    int64_t n = MIN(d->order.streams[stream].n_samples, (int64_t)STD_SAMPLES);
    int r = read_first(d, stream, n, reads, &spread, err);
    for (int64_t i = 0; i < n; i++) { /* ends the reads that were begun behind a failed read */
        sample_read_end(&reads[i]);
        sample_read_clear(&reads[i]);
    }
    if (r < 0)
        return error_prefix(err, r, "data.streams[%zu]", stream);
    double std = spread_std(&spread);
    if (std >= STD_MIN && std <= STD_MAX)
        return 0;
    return error_set(err, -EINVAL,
                     "data.streams[%zu]: %s: the latents of its first %" PRId64 " samples have a "
                     "standard deviation of %.4g with data.latent_scale %g, and should have about "
                     "1 (raw latents of Stable Diffusion's VAE need latent_scale 0.18215)",
                     stream, store_uri(d->streams[stream].store), n, std, (double)d->latent_scale);
}

static int init_order(Dataset *d, const Job *job, Error *err)
{
    OrderStream streams[JOB_STREAMS_MAX];
    Hash digests[JOB_STREAMS_MAX];
    for (size_t i = 0; i < d->n_streams; i++) {
        const Stream *s = &d->streams[i];
        uint64_t n = index_n_valid(s->index, s->latents);
        if (n == 0)
            return error_set(err, -EINVAL, "data.streams[%zu]: %s: no sample has %s", i,
                             store_uri(s->store), d->terms.latents);
        streams[i] = (OrderStream){.n_samples = (int64_t)n,
                                   .unit = (int64_t)DIV_ROUND_UP(n, index_n_shards(s->index)),
                                   .proportion = job->data.streams[i].proportion};
        digests[i] = index_digest(s->index);
    }
    d->digest = hash_bytes(digests, d->n_streams * sizeof(digests[0]));
    int r = order_init(streams, d->n_streams, job->train.seed, job->data.shuffle_window, &d->order);
    return r < 0 ? error_set(err, r,
                             "data.streams: their proportions or data.shuffle_window %" PRId64
                             " cannot be used",
                             job->data.shuffle_window)
                 : 0;
}

/* Finds the columns' names and reads the empty text. */
static int open_terms(Dataset *d, const Job *job, const DatasetSources *submitted, Error *err)
{
    int r = dataset_terms_read(job, submitted, &d->terms, NULL, err);
    if (r < 0)
        return r;
    if (submitted && submitted->has_empty_text != (d->terms.empty_text_uri != NULL))
        return error_set(err, -EINVAL, "the job's record: sources: they are not those of its spec");
    if (!d->terms.empty_text_uri)
        return 0;
    const NotedHash noted = {submitted ? submitted->empty_text : (Hash){0}, DATASET_SUBMITTED};
    return dataset_terms_read_empty(&d->terms, job, submitted ? &noted : NULL, &d->shape,
                                    &d->empty_text, NULL, err);
}

static int open_as(const Job *job, const DatasetSources *submitted, Dataset **ret, Error *err)
{
    assert(job->data.n_streams <= JOB_STREAMS_MAX);
    _cleanup_(dataset_freep) Dataset *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->latent_scale = (float)job->data.latent_scale;
    if (pthread_mutex_init(&d->mutex, NULL) != 0)
        return error_set(err, -ENOMEM, "out of memory");
    d->has_mutex = true;
    /* A Job that was not parsed from a file has zeros in these fields. */
    d->read_ahead = job->data.read_ahead ? job->data.read_ahead : JOB_READ_AHEAD;
    d->budget.most = job->data.read_ahead_bytes ? (size_t)job->data.read_ahead_bytes
                                                : (size_t)JOB_READ_AHEAD_BYTES;

    int r = event_count_new(&d->events);
    if (r < 0)
        return error_errno(err, r, "cannot read data");
    if (job->data.cache_dir)
        r = cache_new(job->data.cache_dir, (uint64_t)MAX(job->data.cache_bytes, 0), &d->cache, err);
    if (r == 0)
        r = open_terms(d, job, submitted, err);
    for (size_t i = 0; r == 0 && i < job->data.n_streams; i++) {
        d->n_streams++;
        const NotedHash noted =
            submitted ? (NotedHash){submitted->index[i], DATASET_SUBMITTED} : d->terms.index[i];
        r = open_stream(d, job, &job->data.streams[i], &noted, &d->streams[i], err);
        if (r < 0)
            r = error_prefix(err, r, "data.streams[%zu]", i);
    }
    if (r == 0)
        r = init_order(d, job, err);
    if (r == 0)
        r = observe_shape(d, err);
    for (size_t i = 0; r == 0 && i < d->n_streams; i++)
        r = check_first_samples(d, i, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(d);
    return 0;
}

int dataset_open(const Job *job, Dataset **ret, Error *err) { return open_as(job, NULL, ret, err); }

int dataset_open_submitted(const Job *job, const char *text, Dataset **ret, Error *err)
{
    DatasetSources sources;
    if (*text == '\0')
        return open_as(job, NULL, ret, err);
    int r = dataset_sources_parse(text, &sources, err);
    if (r < 0)
        return r;
    if (sources.n_streams != job->data.n_streams)
        return error_set(err, -EINVAL, "the job's record: sources: they are not those of its spec");
    return open_as(job, &sources, ret, err);
}
