/* SPDX-License-Identifier: Apache-2.0 */
/* mds-writer.c - see mds-writer.h. JSON is written as Python's json.dumps(sort_keys=True) does. */
#include "trainer/data/mds/mds-writer.h"

#include "base/hash.h"

#include <inttypes.h>
#include <string.h>
#include <zstd.h>

typedef struct JsonText { /* a text that grows */
    char *data;
    size_t n, room;
} JsonText;

enum {
    PENDING_MAX = 64,             /* shards that are being put */
    PENDING_BYTES_MAX = 256 << 20 /* and their bytes, beyond which they are waited for */
};

struct MdsWriter {
    Store *store;
    MdsSchema schema;
    char hashes[MDS_HASHES_MAX][CHECKSUM_NAME_MAX];
    size_t n_hashes;
    char compression[16];
    int level;
    uint64_t size_limit;
    JsonText config, index;
    size_t n_shards;

    char *pending[PENDING_MAX]; /* files that the store has not done with */
    size_t n_pending, pending_bytes;
    JsonText samples; /* of the shard being filled */
    uint32_t *ends;   /* of each sample in it */
    size_t n_samples, ends_room;
    uint64_t n_bytes; /* as the size limit counts them */
};

static int text_add(JsonText *text, const void *data, size_t n)
{
    if (text->n + n > text->room) {
        size_t room = MAX(2 * text->room, text->n + n + 256);
        char *grown = realloc(text->data, room);
        if (!grown)
            return -ENOMEM;
        text->data = grown;
        text->room = room;
    }
    if (n > 0)
        memcpy(text->data + text->n, data, n);
    text->n += n;
    return 0;
}

_printf_(2, 3) static int text_format(JsonText *text, const char *format, ...)
{
    char buffer[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(buffer, sizeof(buffer), format, ap);
    va_end(ap);
    assert(n >= 0 && (size_t)n < sizeof(buffer)); /* callers pass names of bounded length */
    return text_add(text, buffer, (size_t)n);
}

/* The code point at *p, which moves on; broken UTF-8 gives U+FFFD. */
static uint32_t next_code_point(const char **p)
{
    const uint8_t *s = (const uint8_t *)*p;
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    uint32_t code = n == 1 ? s[0] : n > 1 ? s[0] & (0x7fU >> n) : 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            n = 0;
        else
            code = code << 6 | (s[i] & 0x3f);
    }
    *p += MAX(n, 1);
    return n > 0 ? code : 0xfffd;
}

static int text_json_string(JsonText *text, const char *s)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    int r = text_add(text, "\"", 1);
    while (r == 0 && *s) {
        uint32_t code = next_code_point(&s);
        const char *at = code < 0x80 ? strchr(escaped, (int)code) : NULL;
        if (at)
            r = text_format(text, "\\%c", letters[at - escaped]);
        else if (code >= 0x20 && code < 0x7f)
            r = text_format(text, "%c", (int)code);
        else if (code < 0x10000)
            r = text_format(text, "\\u%04x", code);
        else
            r = text_format(text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                            0xdc00 + ((code - 0x10000) & 0x3ff));
    }
    return r < 0 ? r : text_add(text, "\"", 1);
}

/* "column_encodings" .. "hashes": what config and entries begin with. */
static int format_columns(const MdsWriter *w, JsonText *text)
{
    int r = text_format(text, "{\"column_encodings\": [");
    for (size_t i = 0; r == 0 && i < w->schema.n_columns; i++) {
        r = i ? text_add(text, ", ", 2) : 0;
        if (r == 0)
            r = text_json_string(text, w->schema.columns[i].encoding);
    }
    if (r == 0)
        r = text_format(text, "], \"column_names\": [");
    for (size_t i = 0; r == 0 && i < w->schema.n_columns; i++) {
        r = i ? text_add(text, ", ", 2) : 0;
        if (r == 0)
            r = text_json_string(text, w->schema.columns[i].name);
    }
    if (r == 0)
        r = text_format(text, "], \"column_sizes\": [");
    for (size_t i = 0; r == 0 && i < w->schema.n_columns; i++)
        r = w->schema.columns[i].size
                ? text_format(text, "%s%u", i ? ", " : "", w->schema.columns[i].size)
                : text_format(text, "%snull", i ? ", " : "");
    if (r == 0)
        r = *w->compression ? text_format(text, "], \"compression\": \"%s\"", w->compression)
                            : text_format(text, "], \"compression\": null");
    if (r == 0)
        r = text_format(text, ", \"format\": \"mds\", \"hashes\": [");
    for (size_t i = 0; r == 0 && i < w->n_hashes; i++)
        r = text_format(text, "%s\"%s\"", i ? ", " : "", w->hashes[i]);
    return r < 0 ? r : text_add(text, "]", 1);
}

/* "size_limit" and "version", which end the config and stand late in entries. */
static int format_limit(const MdsWriter *w, JsonText *text)
{
    return w->size_limit
               ? text_format(text, ", \"size_limit\": %" PRIu64 ", \"version\": 2", w->size_limit)
               : text_format(text, ", \"size_limit\": null, \"version\": 2");
}

static int take_options(MdsWriter *w, const MdsWriterOptions *options, Error *err)
{
    if (options->size_limit > UINT32_MAX)
        return error_set(err, -EINVAL, "shard size limit %" PRIu64 ": offsets have 32 bits",
                         options->size_limit);
    w->size_limit = options->size_limit;

    const char *zip = options->compression;
    if (zip) {
        w->level = 3;
        char *end = NULL;
        if (strncmp(zip, "zstd:", 5) == 0)
            w->level = (int)strtol(zip + 5, &end, 10);
        else if (strcmp(zip, "zstd") != 0)
            w->level = 0;
        if (w->level < 1 || w->level > 22 || (end && *end) || strlen(zip) >= sizeof(w->compression))
            return error_set(err, -EINVAL,
                             "compression \"%.40s\": zstd or zstd:<1..22> is possible", zip);
        memcpy(w->compression, zip, strlen(zip) + 1);
    }

    if (options->n_hashes > MDS_HASHES_MAX)
        return error_set(err, -EINVAL, "%zu hash algorithms, at most %d are possible",
                         options->n_hashes, MDS_HASHES_MAX);
    for (size_t i = 0; i < options->n_hashes; i++) {
        if (checksum_size(options->hashes[i]) < 0)
            return error_set(err, -EINVAL, "hash algorithm \"%.40s\" is not known",
                             options->hashes[i]);
        if (i > 0 && strcmp(options->hashes[i - 1], options->hashes[i]) >= 0)
            return error_set(err, -EINVAL, "hash algorithms must be in sorted order");
        memcpy(w->hashes[i], options->hashes[i], strlen(options->hashes[i]) + 1);
    }
    w->n_hashes = options->n_hashes;
    return 0;
}

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
    w->schema = *schema;
    r = take_options(w, options, err);
    if (r < 0)
        return r;
    r = format_columns(w, &w->config);
    if (r == 0)
        r = format_limit(w, &w->config);
    if (r == 0)
        r = text_add(&w->config, "}", 1);
    if (r == 0)
        r = text_format(&w->index, "{\"shards\": [");
    if (r < 0)
        return error_set(err, r, "out of memory");
    w->n_bytes = 8 + w->config.n;
    *ret = TAKE_PTR(w);
    return 0;
}

/* Nothing that was put is under way any more. */
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
        (void)settle(w, NULL); /* the dataset was given up */
    free(w->config.data);
    free(w->index.data);
    free(w->samples.data);
    free(w->ends);
    free(w);
    return NULL;
}

/* "raw_data" or "zip_data": basename, bytes and hashes of one file. */
static int format_file(const MdsWriter *w, const char *key, const char *basename, const char *bytes,
                       size_t n_bytes, JsonText *text, Error *err)
{
    int r = text_format(text, ", \"%s\": {\"basename\": \"%s\", \"bytes\": %zu, \"hashes\": {", key,
                        basename, n_bytes);
    for (size_t i = 0; r == 0 && i < w->n_hashes; i++) {
        uint8_t digest[CHECKSUM_BYTES_MAX];
        char hex[2 * CHECKSUM_BYTES_MAX + 1];
        r = checksum_bytes(w->hashes[i], bytes, n_bytes, digest, err);
        if (r == 0)
            r = text_format(text, "%s\"%s\": \"%s\"", i ? ", " : "", w->hashes[i],
                            hash_format_bytes(digest, (size_t)checksum_size(w->hashes[i]), hex));
    }
    if (r == 0)
        r = text_format(text, "}}");
    return r < 0 ? error_errno(err, r, "cannot describe %s", basename) : 0;
}

/* One frame that carries its content's size. */
static int compress(const MdsWriter *w, const char *raw, size_t n_raw, char **ret,
                    size_t *ret_bytes, Error *err)
{
    size_t room = ZSTD_compressBound(n_raw);
    _cleanup_free_ char *zip = malloc(room);
    if (!zip)
        return error_set(err, -ENOMEM, "out of memory compressing a shard of %zu bytes", n_raw);
    size_t n = ZSTD_compress(zip, room, raw, n_raw, w->level);
    if (ZSTD_isError(n))
        return error_set(err, -EINVAL, "zstd: %s", ZSTD_getErrorName(n));
    *ret = TAKE_PTR(zip);
    *ret_bytes = n;
    return 0;
}

/* Takes the bytes, which must stay until the store has them. */
static int put_file(MdsWriter *w, const char *name, char *bytes, size_t n_bytes, Error *err)
{
    struct iovec part = {bytes, n_bytes};
    w->pending[w->n_pending++] = bytes;
    w->pending_bytes += n_bytes;
    int r = store_put(w->store, name, &part, 1, STORE_DEFER, err);
    if (r == 0 && (w->n_pending == PENDING_MAX || w->pending_bytes > PENDING_BYTES_MAX))
        r = settle(w, err);
    return r;
}

/* The entry in index.json and the file itself. Takes raw. */
static int put_shard(MdsWriter *w, char *raw, size_t n_raw, Error *err)
{
    _cleanup_free_ char *owned = raw;
    char raw_name[48], zip_name[64] = "";
    (void)snprintf(raw_name, sizeof(raw_name), "shard.%05zu.mds", w->n_shards);

    JsonText *text = &w->index;
    int r = w->n_shards ? text_add(text, ", ", 2) : 0;
    if (r == 0)
        r = format_columns(w, text);
    if (r == 0)
        r = format_file(w, "raw_data", raw_name, raw, n_raw, text, err);
    if (r == 0)
        r = text_format(text, ", \"samples\": %zu", w->n_samples);
    if (r == 0)
        r = format_limit(w, text);
    if (r < 0)
        return error_errno(err, r, "cannot describe %s", raw_name);

    if (!*w->compression) {
        r = text_format(text, ", \"zip_data\": null}");
        return r < 0 ? error_set(err, r, "out of memory")
                     : put_file(w, raw_name, TAKE_PTR(owned), n_raw, err);
    }
    (void)snprintf(zip_name, sizeof(zip_name), "%s.zstd", raw_name);
    _cleanup_free_ char *zip = NULL;
    size_t n_zip = 0;
    r = compress(w, raw, n_raw, &zip, &n_zip, err);
    if (r < 0)
        return r;
    r = format_file(w, "zip_data", zip_name, zip, n_zip, text, err);
    if (r == 0)
        r = text_add(text, "}", 1);
    return r < 0 ? r : put_file(w, zip_name, TAKE_PTR(zip), n_zip, err);
}

static int flush_shard(MdsWriter *w, Error *err)
{
    uint32_t n = (uint32_t)w->n_samples;
    uint32_t head = (uint32_t)(4 + 4 * (w->n_samples + 1) + w->config.n);
    size_t n_raw = head + w->samples.n;
    char *raw = malloc(n_raw);
    if (!raw)
        return error_set(err, -ENOMEM, "out of memory for a shard of %zu bytes", n_raw);
    memcpy(raw, &n, 4);
    memcpy(raw + 4, &head, 4);
    for (size_t i = 0; i < w->n_samples; i++) {
        uint32_t end = head + w->ends[i];
        memcpy(raw + 8 + 4 * i, &end, 4);
    }
    memcpy(raw + 8 + 4 * w->n_samples, w->config.data, w->config.n);
    if (w->samples.n > 0)
        memcpy(raw + head, w->samples.data, w->samples.n);
    int r = put_shard(w, raw, n_raw, err);
    if (r < 0)
        return r;
    w->n_shards++;
    w->n_samples = 0;
    w->samples.n = 0;
    w->n_bytes = 8 + w->config.n;
    return 0;
}

static int check_fields(const MdsWriter *w, const MdsField *fields, uint64_t *ret_bytes, Error *err)
{
    uint64_t n_bytes = 4 * w->schema.n_variable;
    for (size_t i = 0; i < w->schema.n_columns; i++) {
        const MdsColumn *column = &w->schema.columns[i];
        if (column->size && fields[i].n_bytes != column->size)
            return error_set(err, -EINVAL, "column %s (%s): %zu bytes, %u are needed", column->name,
                             column->encoding, fields[i].n_bytes, column->size);
        n_bytes += fields[i].n_bytes;
    }
    if (n_bytes == 0 || n_bytes > MDS_SAMPLE_BYTES_MAX)
        return error_set(err, -EFBIG, "a sample of %" PRIu64 " bytes; 1 to %d are possible",
                         n_bytes, MDS_SAMPLE_BYTES_MAX);
    *ret_bytes = n_bytes;
    return 0;
}

int mds_writer_add(MdsWriter *w, const MdsField *fields, Error *err)
{
    uint64_t n_bytes = 0;
    int r = check_fields(w, fields, &n_bytes, err);
    if (r < 0)
        return r;

    /* Like the writer that defined the format: a first sample beyond the limit leaves an empty
     * shard in front. */
    if (w->size_limit && w->size_limit < w->n_bytes + n_bytes + 4) {
        r = flush_shard(w, err);
        if (r < 0)
            return r;
    }
    if (w->n_bytes + n_bytes + 4 > UINT32_MAX)
        return error_set(err, -EFBIG, "a shard of more than 4 GiB: its offsets have 32 bits");

    if (w->n_samples == w->ends_room) {
        size_t room = MAX(2 * w->ends_room, (size_t)64);
        uint32_t *grown = realloc(w->ends, room * sizeof(*grown));
        if (!grown)
            return error_set(err, -ENOMEM, "out of memory");
        w->ends = grown;
        w->ends_room = room;
    }
    for (size_t i = 0; r == 0 && i < w->schema.n_columns; i++) {
        uint32_t size = (uint32_t)fields[i].n_bytes;
        if (w->schema.columns[i].size == 0)
            r = text_add(&w->samples, &size, sizeof(size));
    }
    for (size_t i = 0; r == 0 && i < w->schema.n_columns; i++)
        r = text_add(&w->samples, fields[i].data, fields[i].n_bytes);
    if (r < 0)
        return error_set(err, r, "out of memory");
    w->ends[w->n_samples++] = (uint32_t)w->samples.n;
    w->n_bytes += n_bytes + 4;
    return 0;
}

int mds_writer_finish(MdsWriter *w, Error *err)
{
    int r = w->n_samples ? flush_shard(w, err) : 0;
    if (r == 0)
        r = settle(w, err);
    if (r == 0)
        r = text_format(&w->index, "], \"version\": 2}");
    if (r < 0)
        return r;
    struct iovec part = {w->index.data, w->index.n};
    return store_put(w->store, "index.json", &part, 1, STORE_IF_ABSENT, err);
}
