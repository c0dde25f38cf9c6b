/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-shape.c - see dataset-shape.h. dataset-look.c inspects whole datasets. */
#include "data/dataset-shape.h"

#include "data/floats.h"
#include "data/index-open.h"
#include "data/mds/npy.h"
#include "protocol/exit-code.h"

#include <string.h>

enum {
    CLIP_TOKENS = 77,
    EMPTY_TEXT_BYTES_MAX = 64 << 20,
    DIM_MAX = 1 << 16,
    RAW_SIDE_MAX = 1024,
};

int dataset_find_column(const MdsSchema *schema, const char *where, const char *key,
                        const char *name, size_t *ret, Error *err)
{
    int i = mds_schema_find(schema, name, err);
    if (i < 0)
        return error_prefix(err, -EINVAL, "data.%s: %s", key, where);
    const MdsColumn *column = &schema->columns[i];
    bool floats = column->kind == MDS_BYTES ||
                  (column->kind == MDS_NDARRAY &&
                   (column->number == MDS_NUMBER_NONE || mds_is_float(column->number)));
    if (!floats)
        return error_set(err, -EINVAL,
                         "data.%s: %s: column %s is %s; ndarray of floats or bytes is needed", key,
                         where, name, column->encoding);
    *ret = (size_t)i;
    return 0;
}

/* ---- shapes from one column ---- */

/* Returns 1 with dims[n_dims], or 0 if only a sample can give the dimensions. */
static int dims_of(const MdsColumn *column, const MdsField *sample, int n_dims, const char *what,
                   uint64_t *dims, Error *err)
{
    MdsArray array = {.number = column->number, .n_dims = column->n_dims};
    memcpy(array.dims, column->dims, sizeof(array.dims));
    if (sample) {
        int r = mds_array_decode(column, *sample, &array, err);
        if (r < 0)
            return r;
        if (!mds_is_float(array.number))
            return error_set(err, -EINVAL, "column %s: values of type %s are not supported",
                             column->name, mds_number_name(array.number));
    }
    if (array.n_dims == 0)
        return 0;
    bool good = array.n_dims == n_dims;
    for (int i = 0; good && i < n_dims; i++)
        good = array.dims[i] >= 1 && array.dims[i] <= DIM_MAX;
    if (!good)
        return error_set(err, -EINVAL, "column %s (%s): %s, each at most %d", column->name,
                         column->encoding, what, DIM_MAX);
    memcpy(dims, array.dims, (size_t)n_dims * sizeof(dims[0]));
    return 1;
}

static bool holds(size_t n_bytes, size_t n_elements)
{
    return n_bytes == 2 * n_elements || n_bytes == 4 * n_elements;
}

/* Guesses the side of raw latents, 4 x side x side: a length in bytes fits either float16 or float32, never both
 * types. */
static int guess_latents(const MdsColumn *column, size_t n_bytes, uint64_t dims[3], Error *err)
{
    for (size_t side = 1; side <= RAW_SIDE_MAX; side++)
        if (holds(n_bytes, 4 * side * side)) {
            dims[0] = 4;
            dims[1] = dims[2] = side;
            return 1;
        }
    return error_set(err, -EINVAL,
                     "column %s: %zu bytes are no 4 x N x N latents of float16 or float32",
                     column->name, n_bytes);
}

static int guess_text(const MdsColumn *column, size_t n_bytes, uint64_t dims[2], Error *err)
{
    static const size_t widths[] = {1024, 768}; /* widths of SD2's and SD1's text encoders */
    for (size_t i = 0; i < ELEMENTSOF(widths); i++)
        if (holds(n_bytes, CLIP_TOKENS * widths[i])) {
            dims[0] = CLIP_TOKENS;
            dims[1] = widths[i];
            return 1;
        }
    return error_set(err, -EINVAL,
                     "column %s: %zu bytes do not tell tokens x dim; data.empty_text would",
                     column->name, n_bytes);
}

int dataset_observe_latents(const MdsColumn *column, const MdsField *sample, DatasetShape *s,
                            Error *err)
{
    uint64_t dims[3] = {(uint64_t)s->channels, (uint64_t)s->height, (uint64_t)s->width};
    int r = 1;
    if (column->kind == MDS_NDARRAY)
        r = dims_of(column, sample, 3, "latents need three dimensions, C x H x W", dims, err);
    else if (!sample)
        r = 0;
    else if (s->channels == 0 || !holds(sample->n_bytes, dims[0] * dims[1] * dims[2]))
        r = guess_latents(column, sample->n_bytes, dims, err);
    if (r <= 0)
        return r;
    const DatasetShape found = {.channels = (int)dims[0],
                                .height = (int)dims[1],
                                .width = (int)dims[2]};
    if (s->channels != 0 &&
        (found.channels != s->channels || found.height != s->height || found.width != s->width))
        return error_set(err, -EINVAL,
                         "column %s: latents of %dx%dx%d, but those of data.streams[0] are "
                         "%dx%dx%d",
                         column->name, found.channels, found.height, found.width, s->channels,
                         s->height, s->width);
    s->channels = found.channels;
    s->height = found.height;
    s->width = found.width;
    return 1;
}

int dataset_observe_text(const MdsColumn *column, const MdsField *sample, DatasetShape *s,
                         Error *err)
{
    uint64_t dims[2] = {(uint64_t)s->text_tokens, (uint64_t)s->text_dim};
    int r = 1;
    if (column->kind == MDS_NDARRAY)
        r = dims_of(column, sample, 2, "text needs two dimensions, tokens x dim", dims, err);
    else if (!sample)
        r = 0;
    else if (s->text_dim == 0 || !holds(sample->n_bytes, dims[0] * dims[1]))
        r = guess_text(column, sample->n_bytes, dims, err);
    if (r <= 0)
        return r;
    if (s->text_dim != 0 &&
        (dims[0] != (uint64_t)s->text_tokens || dims[1] != (uint64_t)s->text_dim))
        return error_set(err, -EINVAL,
                         "column %s: text of %dx%d, but that of data.empty_text or data.streams[0] "
                         "is %dx%d",
                         column->name, (int)dims[0], (int)dims[1], s->text_tokens, s->text_dim);
    s->text_tokens = (int)dims[0];
    s->text_dim = (int)dims[1];
    return 1;
}

/* ---- the empty caption's embedding ---- */

static int parse_empty_text(const char *uri, const char *file, size_t n_bytes, DatasetShape *shape,
                            float **ret, Error *err)
{
    MdsArray array;
    int r = npy_parse(uri, file, n_bytes, &array, err);
    if (r < 0)
        return error_prefix(err, r, "data.empty_text");
    /* A text encoder writes a batch of one: [1][tokens][dim]. */
    int skip = array.n_dims == 3 && array.dims[0] == 1;
    if (array.n_dims - skip != 2 || array.dims[skip] > DIM_MAX || array.dims[skip + 1] > DIM_MAX)
        return error_set(err, -EINVAL, "data.empty_text: %s is not an array of tokens x dim", uri);
    size_t n = (size_t)array.dims[skip] * (size_t)array.dims[skip + 1];
    _cleanup_free_ float *values = malloc(n * sizeof(float));
    if (!values)
        return error_set(err, -ENOMEM, "out of memory");
    r = dataset_expand("data.empty_text:", uri, array.number, array.values, n, values, err);
    if (r < 0)
        return r;
    shape->text_tokens = (int)array.dims[skip];
    shape->text_dim = (int)array.dims[skip + 1];
    *ret = TAKE_PTR(values);
    return 0;
}

int dataset_read_empty_text(const char *uri, const NotedHash *noted, DatasetShape *shape,
                            float **ret, Hash *ret_hash, Error *err)
{
    _cleanup_free_ char *file = NULL;
    size_t n_bytes;
    int r = store_get_uri(uri, EMPTY_TEXT_BYTES_MAX, &file, &n_bytes, err);
    if (r < 0)
        return error_prefix(err, exit_errno_of_named(r), "data.empty_text");
    const Hash hash = hash_bytes(file, n_bytes);
    r = index_check_source(uri, hash, noted, err);
    if (r < 0)
        return error_prefix(err, r, "data.empty_text");
    if (ret_hash)
        *ret_hash = hash;
    return parse_empty_text(uri, file, n_bytes, shape, ret, err);
}

/* ---- the data's hashes at submission ---- */

const char *dataset_sources_format(const DatasetSources *sources, char text[JOB_SOURCES_MAX])
{
    char hash[HASH_TEXT_BYTES], encoder[HASH_TEXT_BYTES];
    int n = snprintf(text, JOB_SOURCES_MAX, "%s",
                     sources->has_empty_text ? hash_format(sources->empty_text, hash) : "-");
    for (size_t i = 0; i < sources->n_streams; i++)
        n += snprintf(text + n, (size_t)(JOB_SOURCES_MAX - n), " %s%s%s",
                      hash_format(sources->index[i], hash), sources->has_encoder[i] ? "+" : "",
                      sources->has_encoder[i] ? hash_format(sources->encoder[i], encoder) : "");
    assert(n < JOB_SOURCES_MAX);
    return text;
}

static int take_hash(const char *p, size_t n, Hash *ret)
{
    char word[HASH_TEXT_BYTES];
    if (n >= sizeof(word))
        return -EINVAL;
    memcpy(word, p, n);
    word[n] = '\0';
    return hash_parse(word, ret);
}

static int take_stream(const char *p, size_t n, DatasetSources *sources)
{
    const char *plus = memchr(p, '+', n);
    const size_t i = sources->n_streams, n_index = plus ? (size_t)(plus - p) : n;
    if (i == JOB_STREAMS_MAX || take_hash(p, n_index, &sources->index[i]) < 0)
        return -EINVAL;
    sources->has_encoder[i] = plus != NULL;
    sources->n_streams++;
    return plus ? take_hash(plus + 1, n - n_index - 1, &sources->encoder[i]) : 0;
}

int dataset_sources_parse(const char *text, DatasetSources *ret, Error *err)
{
    DatasetSources sources = {0};
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, " ");
        int r = 0;
        if (p != text) {
            r = take_stream(p, n, &sources);
        } else if (n != 1 || *p != '-') {
            sources.has_empty_text = true;
            r = take_hash(p, n, &sources.empty_text);
        }
        if (r < 0)
            return error_set(err, -EINVAL, "the job's record: sources: \"%.40s\" is not a hash", p);
        p += n;
        if (*p == '\0')
            break;
    }
    *ret = sources;
    return 0;
}
