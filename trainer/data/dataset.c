/* dataset.c - all streams of a job: their indices, the order over them, one sample decoded. See
 * loader.h. */
#include "trainer/data/loader.h"

#include "base/log.h"
#include "store/store.h"
#include "trainer/data/half.h"
#include "trainer/data/npy.h"
#include "trainer/data/shards.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* Latents multiplied by the scale of their VAE have a standard deviation near 1; Stable Diffusion's
 * raw ones have about 5.5. */
static const double STD_MIN = 0.3, STD_MAX = 3.0;

enum {
    STD_SAMPLES = 32,
    CLIP_TOKENS = 77,
    EMPTY_TEXT_BYTES_MAX = 64 << 20,
    DIM_MAX = 1 << 16,
};

typedef struct Stream {
    Store *store;
    Index *index;
    Shards *shards;
    size_t latents, text; /* columns */
    int caption;          /* column, or negative */
} Stream;

struct Dataset {
    DatasetShape shape;
    size_t n_latents, n_text; /* elements of a sample */
    Order order;
    Hash digest;
    float latent_scale;
    float *empty_text;
    size_t n_streams;
    Stream streams[JOB_STREAMS_MAX];
    bool has_mutex;
    pthread_mutex_t mutex; /* protects the streams' shards and planes */
    float *planes;         /* [n_latents]: latents as stored, CHW */
};

const DatasetShape *dataset_shape(const Dataset *d) { return &d->shape; }
const Order *dataset_order(const Dataset *d) { return &d->order; }
Hash dataset_digest(const Dataset *d) { return d->digest; }
const float *dataset_empty_text(const Dataset *d) { return d->empty_text; }

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
        (void)pthread_mutex_destroy(&d->mutex); /* nobody holds it any more */
    free(d->empty_text);
    free(d->planes);
    free(d);
    return NULL;
}

/* ---- payloads to floats ---- */

static int expand(MdsNumber number, const void *values, size_t n, float *ret)
{
    if (number == MDS_FLOAT16) {
        half_expand(values, n, ret);
    } else if (number == MDS_FLOAT32) {
        memcpy(ret, values, n * sizeof(*ret));
    } else if (number == MDS_FLOAT64) {
        for (size_t i = 0; i < n; i++) {
            double value;
            memcpy(&value, (const uint8_t *)values + i * sizeof(value), sizeof(value));
            ret[i] = (float)value;
        }
    } else {
        return -ENOTSUP;
    }
    return 0;
}

static const char *dims_text(const uint64_t *dims, int n_dims, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i ? "x" : "", dims[i]);
    return text;
}

/* A payload that must hold dims[n_dims] floats; n is their product. */
static int decode_floats(const MdsColumn *column, MdsField field, const uint64_t *dims, int n_dims,
                         float *ret, Error *err)
{
    size_t n = 1;
    for (int i = 0; i < n_dims; i++)
        n *= dims[i];

    MdsArray array = {0};
    if (column->kind == MDS_BYTES) { /* raw values, their type told by their length */
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
    if (expand(array.number, array.values, n, ret) < 0)
        return error_set(err, -EINVAL, "column %s: values of type %s are not supported",
                         column->name, mds_number_name(array.number));
    return 0;
}

/* ---- one sample ---- */

/* Infinities and NaNs are the floats whose exponent is all ones; four are looked at together. */
static int check_finite(const float *values, size_t n, const char *column, Error *err)
{
    typedef uint32_t Lanes __attribute__((vector_size(16)));
    const uint32_t exponent = 0x7f800000;
    Lanes bad = {0};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        Lanes bits;
        memcpy(&bits, values + i, sizeof(bits));
        bad |= (Lanes)((bits & exponent) == exponent);
    }
    uint32_t any = 0;
    for (int k = 0; k < 4; k++)
        any |= bad[k];
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof(bits));
        any |= (bits & exponent) == exponent;
    }
    return any ? error_set(err, -EBADMSG, "column %s holds a value that is not finite", column) : 0;
}

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
        if (r == 0)
            r = check_finite(d->planes, d->n_latents, schema->columns[stream->latents].name, err);
        if (r < 0)
            return r;
        to_nhwc(d, latents);
    }
    if (text) {
        uint64_t dims[] = {(uint64_t)s->text_tokens, (uint64_t)s->text_dim};
        r = decode_floats(&schema->columns[stream->text], fields[stream->text], dims, 2, text, err);
        if (r == 0)
            r = check_finite(text, d->n_text, schema->columns[stream->text].name, err);
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

/* The caller holds the mutex. */
static int read_locked(Dataset *d, OrderSample sample, float *latents, float *text, char **caption,
                       Error *err)
{
    Stream *stream = &d->streams[sample.stream];
    IndexPlace place;
    const void *bytes;
    size_t n_bytes;
    int r = index_locate(stream->index, stream->latents, (uint64_t)sample.sample, &place, err);
    if (r == 0)
        r = shards_read(stream->shards, place, &bytes, &n_bytes, err);
    if (r < 0)
        return r;
    r = decode_sample(d, stream, bytes, n_bytes, latents, text, caption, err);
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
    assert(sample.stream >= 0 && (size_t)sample.stream < d->n_streams);
    assert(sample.sample >= 0 && sample.sample < d->order.streams[sample.stream].n_samples);
    (void)pthread_mutex_lock(&d->mutex); /* fails only on our bugs */
    int r = read_locked(d, sample, latents, text, caption, err);
    (void)pthread_mutex_unlock(&d->mutex);
    return r;
}

/* ---- opening ---- */

static int read_empty_text(Dataset *d, const char *uri, Error *err)
{
    const char *slash = strrchr(uri, '/');
    _cleanup_free_ char *folder =
        slash ? strndup(uri, (size_t)(slash - uri) + (slash == uri)) : strdup(".");
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_free_ char *file = NULL;
    size_t n_bytes;
    if (!folder)
        return error_set(err, -ENOMEM, "out of memory");
    int r = store_open(folder, &store, err);
    if (r == 0)
        r = store_get(store, slash ? slash + 1 : uri, EMPTY_TEXT_BYTES_MAX, &file, &n_bytes, err);
    if (r < 0)
        return error_prefix(err, r, "data.empty_text");

    MdsArray array;
    r = npy_parse(uri, file, n_bytes, &array, err);
    if (r < 0)
        return error_prefix(err, r, "data.empty_text");
    /* A batch of one is what a text encoder gives. */
    int skip = array.n_dims == 3 && array.dims[0] == 1;
    if (array.n_dims - skip != 2 || array.dims[skip] > DIM_MAX || array.dims[skip + 1] > DIM_MAX)
        return error_set(err, -EINVAL, "data.empty_text: %s is not an array of tokens x dim", uri);
    d->shape.text_tokens = (int)array.dims[skip];
    d->shape.text_dim = (int)array.dims[skip + 1];
    size_t n = (size_t)d->shape.text_tokens * (size_t)d->shape.text_dim;
    d->empty_text = malloc(n * sizeof(float));
    if (!d->empty_text)
        return error_set(err, -ENOMEM, "out of memory");
    if (expand(array.number, array.values, n, d->empty_text) < 0)
        return error_set(err, -EINVAL, "data.empty_text: %s: type %s is not supported", uri,
                         mds_number_name(array.number));
    return check_finite(d->empty_text, n, uri, err);
}

static int find_column(const Stream *stream, const char *key, const char *name, size_t *ret,
                       Error *err)
{
    const MdsSchema *schema = index_schema(stream->index);
    int column = mds_schema_find(schema, name, err);
    if (column < 0)
        return error_prefix(err, -EINVAL, "data.%s: %s", key, store_uri(stream->store));
    if (schema->columns[column].kind != MDS_BYTES && schema->columns[column].kind != MDS_NDARRAY)
        return error_set(err, -EINVAL, "data.%s: %s: column %s is %s; ndarray or bytes is needed",
                         key, store_uri(stream->store), name, schema->columns[column].encoding);
    *ret = (size_t)column;
    return 0;
}

/* A window whose unpacked shards do not fit the cache unpacks one for nearly every sample. */
static void warn_of_thrashing(const Job *job, const Stream *stream)
{
    IndexShard shard;
    if (!*index_compression(stream->index) || index_shard(stream->index, 0, &shard, NULL) < 0)
        return;
    uint64_t n_shards = index_n_shards(stream->index), n = index_n_samples(stream->index);
    double in_window =
        MIN((double)n_shards, (double)job->data.shuffle_window * (double)n_shards / (double)n + 1);
    double bound = job->data.cache_dir
                       ? (job->data.cache_bytes ? (double)job->data.cache_bytes : HUGE_VAL)
                       : (double)SHARDS_MEMORY_MAX;
    if (in_window * (double)shard.raw_bytes > bound)
        log_warning("%s: a shuffle window of %" PRId64
                    " samples spans %.0f compressed shards, %.1f "
                    "GB unpacked, more than the cache holds (%.1f GB): set data.cache_dir and "
                    "data.cache_bytes, or a smaller data.shuffle_window",
                    store_uri(stream->store), job->data.shuffle_window, in_window,
                    in_window * (double)shard.raw_bytes / 1e9, bound / 1e9);
}

static int open_stream(const Job *job, const JobStream *from, Stream *stream, Error *err)
{
    int r = store_open(from->uri, &stream->store, err);
    if (r == 0)
        r = index_open(stream->store, job->data.cache_dir, &stream->index, err);
    if (r == 0)
        r = find_column(stream, "latents", job->data.latents, &stream->latents, err);
    if (r == 0)
        r = find_column(stream, "text", job->data.text, &stream->text, err);
    if (r == 0)
        r = shards_new(stream->store, stream->index, job->data.cache_dir,
                       (uint64_t)MAX(job->data.cache_bytes, 0), &stream->shards, err);
    if (r < 0)
        return r;
    const MdsSchema *schema = index_schema(stream->index);
    stream->caption = mds_schema_find(schema, "caption", NULL);
    if (stream->caption >= 0 && schema->columns[stream->caption].kind != MDS_TEXT)
        stream->caption = -1;
    warn_of_thrashing(job, stream);
    return 0;
}

static int learn_latents(Dataset *d, const MdsColumn *column, MdsField field, Error *err)
{
    if (column->kind == MDS_NDARRAY) {
        MdsArray array;
        int r = mds_array_decode(column, field, &array, err);
        if (r < 0)
            return r;
        if (array.n_dims != 3 || array.dims[0] > DIM_MAX || array.dims[1] > DIM_MAX ||
            array.dims[2] > DIM_MAX)
            return error_set(err, -EINVAL, "column %s: latents need three dimensions, C x H x W",
                             column->name);
        d->shape.channels = (int)array.dims[0];
        d->shape.height = (int)array.dims[1];
        d->shape.width = (int)array.dims[2];
        return 0;
    }
    /* Raw bytes of 4 x side x side: a length fits either float16 or float32, never both. */
    for (int side = 1; side <= 1024; side++)
        if (field.n_bytes == (size_t)(4 * side * side) * 2 ||
            field.n_bytes == (size_t)(4 * side * side) * 4) {
            d->shape.channels = 4;
            d->shape.height = d->shape.width = side;
            return 0;
        }
    return error_set(err, -EINVAL,
                     "column %s: %zu bytes are no 4 x N x N latents of float16 or "
                     "float32",
                     column->name, field.n_bytes);
}

static int learn_text(Dataset *d, const MdsColumn *column, MdsField field, Error *err)
{
    if (d->shape.text_dim > 0)
        return 0; /* empty_text has told */
    if (column->kind == MDS_NDARRAY) {
        MdsArray array;
        int r = mds_array_decode(column, field, &array, err);
        if (r < 0)
            return r;
        if (array.n_dims != 2 || array.dims[0] > DIM_MAX || array.dims[1] > DIM_MAX)
            return error_set(err, -EINVAL, "column %s: text needs two dimensions, tokens x dim",
                             column->name);
        d->shape.text_tokens = (int)array.dims[0];
        d->shape.text_dim = (int)array.dims[1];
        return 0;
    }
    static const int dims[] = {1024, 768}; /* of SD2's and SD1's text encoders */
    for (size_t i = 0; i < ELEMENTSOF(dims); i++)
        if (field.n_bytes == (size_t)(CLIP_TOKENS * dims[i]) * 2 ||
            field.n_bytes == (size_t)(CLIP_TOKENS * dims[i]) * 4) {
            d->shape.text_tokens = CLIP_TOKENS;
            d->shape.text_dim = dims[i];
            return 0;
        }
    return error_set(err, -EINVAL,
                     "column %s: %zu bytes do not tell tokens x dim; data.empty_text "
                     "would",
                     column->name, field.n_bytes);
}

static int learn_shape(Dataset *d, Error *err)
{
    Stream *stream = &d->streams[0];
    const MdsSchema *schema = index_schema(stream->index);
    IndexPlace place;
    const void *bytes;
    size_t n_bytes;
    MdsField fields[MDS_COLUMNS_MAX];
    int r = index_locate(stream->index, stream->latents, 0, &place, err);
    if (r == 0)
        r = shards_read(stream->shards, place, &bytes, &n_bytes, err);
    if (r == 0)
        r = mds_sample_split(schema, bytes, n_bytes, fields, err);
    if (r == 0)
        r = learn_latents(d, &schema->columns[stream->latents], fields[stream->latents], err);
    if (r == 0)
        r = learn_text(d, &schema->columns[stream->text], fields[stream->text], err);
    if (r < 0)
        return error_prefix(err, r, "%s, first sample", store_uri(stream->store));

    d->n_latents = (size_t)d->shape.channels * (size_t)d->shape.height * (size_t)d->shape.width;
    d->n_text = (size_t)d->shape.text_tokens * (size_t)d->shape.text_dim;
    d->planes = malloc(d->n_latents * sizeof(float));
    return d->planes ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* Decodes the first samples of a stream: their shapes must be the dataset's, their spread near 1.
 */
static int check_first_samples(Dataset *d, size_t stream, Error *err)
{
    _cleanup_free_ float *latents = malloc(d->n_latents * sizeof(float));
    _cleanup_free_ float *text = malloc(d->n_text * sizeof(float));
    if (!latents || !text)
        return error_set(err, -ENOMEM, "out of memory");

    int64_t n = MIN(d->order.streams[stream].n_samples, (int64_t)STD_SAMPLES);
    double sum = 0, squares = 0, count = (double)n * (double)d->n_latents;
    for (int64_t i = 0; i < n; i++) {
        int r = dataset_read(d, (OrderSample){.stream = (int)stream, .sample = i}, latents, text,
                             NULL, err);
        if (r < 0)
            return error_prefix(err, r, "data.streams[%zu]", stream);
        for (size_t k = 0; k < d->n_latents; k++) {
            sum += (double)latents[k];
            squares += (double)latents[k] * (double)latents[k];
        }
    }
    double std = sqrt(MAX(squares / count - sum / count * (sum / count), 0.0));
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
                             store_uri(s->store), job->data.latents);
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

int dataset_open(const Job *job, Dataset **ret, Error *err)
{
    assert(job->data.n_streams <= JOB_STREAMS_MAX);
    _cleanup_(dataset_freep) Dataset *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->latent_scale = (float)job->data.latent_scale;
    if (pthread_mutex_init(&d->mutex, NULL) != 0)
        return error_set(err, -ENOMEM, "out of memory");
    d->has_mutex = true;

    int r = 0;
    if (job->data.empty_text_uri)
        r = read_empty_text(d, job->data.empty_text_uri, err);
    else if (job->train.caption_drop > 0)
        r = error_set(err, -EINVAL, "data.empty_text: missing, train.caption_drop is %g",
                      job->train.caption_drop);
    for (size_t i = 0; r == 0 && i < job->data.n_streams; i++) {
        d->n_streams++;
        r = open_stream(job, &job->data.streams[i], &d->streams[i], err);
        if (r < 0)
            r = error_prefix(err, r, "data.streams[%zu]", i);
    }
    if (r == 0)
        r = init_order(d, job, err);
    if (r == 0)
        r = learn_shape(d, err);
    for (size_t i = 0; r == 0 && i < d->n_streams; i++)
        r = check_first_samples(d, i, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(d);
    return 0;
}
