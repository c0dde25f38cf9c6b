/* SPDX-License-Identifier: Apache-2.0 */
/* mds-shard.c - see mds-shard.h. JSON is written as Python's json.dumps(sort_keys=True) does. */
#include "data/mds/mds-shard.h"

#include "base/number/hash.h"
#include "data/mds/mds-text.h"

#include <inttypes.h>
#include <string.h>

struct MdsShard {
    MdsSchema schema;
    char hashes[MDS_HASHES_MAX][CHECKSUM_NAME_MAX];
    size_t n_hashes;
    char compression[16];
    int level;
    uint64_t size_limit;
    MdsText config;

    MdsText samples;
    uint32_t *ends; /* [n_samples]: end offset of each sample in the text `samples` */
    size_t n_samples, ends_room;
    uint64_t n_bytes; /* size of the shard's file, as the size limit counts it */
};

/* Writes the beginning that the config and an entry share: the keys from "column_encodings" to "hashes". */
static int format_columns(const MdsShard *shard, MdsText *text)
{
    int r = mds_text_format(text, "{\"column_encodings\": [");
    for (size_t i = 0; r == 0 && i < shard->schema.n_columns; i++) {
        r = i ? mds_text_add(text, ", ", 2) : 0;
        if (r == 0)
            r = mds_text_string(text, shard->schema.columns[i].encoding);
    }
    if (r == 0)
        r = mds_text_format(text, "], \"column_names\": [");
    for (size_t i = 0; r == 0 && i < shard->schema.n_columns; i++) {
        r = i ? mds_text_add(text, ", ", 2) : 0;
        if (r == 0)
            r = mds_text_string(text, shard->schema.columns[i].name);
    }
    if (r == 0)
        r = mds_text_format(text, "], \"column_sizes\": [");
    for (size_t i = 0; r == 0 && i < shard->schema.n_columns; i++)
        r = shard->schema.columns[i].size
                ? mds_text_format(text, "%s%u", i ? ", " : "", shard->schema.columns[i].size)
                : mds_text_format(text, "%snull", i ? ", " : "");
    if (r == 0)
        r = *shard->compression
                ? mds_text_format(text, "], \"compression\": \"%s\"", shard->compression)
                : mds_text_format(text, "], \"compression\": null");
    if (r == 0)
        r = mds_text_format(text, ", \"format\": \"mds\", \"hashes\": [");
    for (size_t i = 0; r == 0 && i < shard->n_hashes; i++)
        r = mds_text_format(text, "%s\"%s\"", i ? ", " : "", shard->hashes[i]);
    return r < 0 ? r : mds_text_add(text, "]", 1);
}

/* Writes "size_limit" and "version", which end the config and come late in an entry. */
static int format_limit(const MdsShard *shard, MdsText *text)
{
    return shard->size_limit
               ? mds_text_format(text, ", \"size_limit\": %" PRIu64 ", \"version\": 2",
                                 shard->size_limit)
               : mds_text_format(text, ", \"size_limit\": null, \"version\": 2");
}

static int take_options(MdsShard *shard, const MdsShardOptions *options, Error *err)
{
    if (options->size_limit > UINT32_MAX)
        return error_set(err, -EINVAL, "shard size limit %" PRIu64 ": offsets have 32 bits",
                         options->size_limit);
    shard->size_limit = options->size_limit;

    const char *zip = options->compression;
    if (zip) {
        shard->level = 3;
        char *end = NULL;
        if (strncmp(zip, "zstd:", 5) == 0)
            shard->level = (int)strtol(zip + 5, &end, 10);
        else if (strcmp(zip, "zstd") != 0)
            shard->level = 0;
        if (shard->level < 1 || shard->level > 22 || (end && *end) ||
            strlen(zip) >= sizeof(shard->compression))
            return error_set(err, -EINVAL,
                             "compression \"%.40s\": zstd or zstd:<1..22> is possible", zip);
        memcpy(shard->compression, zip, strlen(zip) + 1);
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
        memcpy(shard->hashes[i], options->hashes[i], strlen(options->hashes[i]) + 1);
    }
    shard->n_hashes = options->n_hashes;
    return 0;
}

static int check_fields(const MdsShard *shard, const MdsField *fields, uint64_t *ret_bytes,
                        Error *err)
{
    uint64_t n_bytes = 4 * shard->schema.n_variable;
    for (size_t i = 0; i < shard->schema.n_columns; i++) {
        const MdsColumn *column = &shard->schema.columns[i];
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

int mds_shard_new(const MdsSchema *schema, const MdsShardOptions *options, MdsShard **ret,
                  Error *err)
{
    _cleanup_(mds_shard_freep) MdsShard *shard = calloc(1, sizeof(*shard));
    if (!shard)
        return error_set(err, -ENOMEM, "out of memory");
    shard->schema = *schema;
    int r = take_options(shard, options, err);
    if (r < 0)
        return r;
    r = format_columns(shard, &shard->config);
    if (r == 0)
        r = format_limit(shard, &shard->config);
    if (r == 0)
        r = mds_text_add(&shard->config, "}", 1);
    if (r < 0)
        return error_set(err, r, "out of memory");
    shard->n_bytes = 8 + shard->config.n;
    *ret = TAKE_PTR(shard);
    return 0;
}

MdsShard *mds_shard_free(MdsShard *shard)
{
    if (!shard)
        return NULL;
    free(shard->config.data);
    free(shard->samples.data);
    free(shard->ends);
    free(shard);
    return NULL;
}

size_t mds_shard_n_samples(const MdsShard *shard) { return shard->n_samples; }
int mds_shard_level(const MdsShard *shard) { return shard->level; }

int mds_shard_is_full(const MdsShard *shard, const MdsField *fields, Error *err)
{
    uint64_t n_bytes = 0;
    int r = check_fields(shard, fields, &n_bytes, err);
    return r < 0 ? r : shard->size_limit && shard->size_limit < shard->n_bytes + n_bytes + 4;
}

int mds_shard_add(MdsShard *shard, const MdsField *fields, Error *err)
{
    uint64_t n_bytes = 0;
    int r = check_fields(shard, fields, &n_bytes, err);
    if (r < 0)
        return r;
    if (shard->n_bytes + n_bytes + 4 > UINT32_MAX)
        return error_set(err, -EFBIG, "a shard of more than 4 GiB: its offsets have 32 bits");

    if (shard->n_samples == shard->ends_room) {
        size_t room = MAX(2 * shard->ends_room, (size_t)64);
        uint32_t *grown = realloc(shard->ends, room * sizeof(*grown));
        if (!grown)
            return error_set(err, -ENOMEM, "out of memory");
        shard->ends = grown;
        shard->ends_room = room;
    }
    for (size_t i = 0; r == 0 && i < shard->schema.n_columns; i++) {
        uint32_t size = (uint32_t)fields[i].n_bytes;
        if (shard->schema.columns[i].size == 0)
            r = mds_text_add(&shard->samples, &size, sizeof(size));
    }
    for (size_t i = 0; r == 0 && i < shard->schema.n_columns; i++)
        r = mds_text_add(&shard->samples, fields[i].data, fields[i].n_bytes);
    if (r < 0)
        return error_set(err, r, "out of memory");
    shard->ends[shard->n_samples++] = (uint32_t)shard->samples.n;
    shard->n_bytes += n_bytes + 4;
    return 0;
}

int mds_shard_take(MdsShard *shard, char **ret, size_t *ret_bytes, Error *err)
{
    uint32_t n = (uint32_t)shard->n_samples;
    uint32_t head = (uint32_t)(4 + 4 * (shard->n_samples + 1) + shard->config.n);
    size_t n_raw = head + shard->samples.n;
    char *raw = malloc(n_raw);
    if (!raw)
        return error_set(err, -ENOMEM, "out of memory for a shard of %zu bytes", n_raw);
    memcpy(raw, &n, 4);
    memcpy(raw + 4, &head, 4);
    for (size_t i = 0; i < shard->n_samples; i++) {
        uint32_t end = head + shard->ends[i];
        memcpy(raw + 8 + 4 * i, &end, 4);
    }
    memcpy(raw + 8 + 4 * shard->n_samples, shard->config.data, shard->config.n);
    if (shard->samples.n > 0)
        memcpy(raw + head, shard->samples.data, shard->samples.n);
    shard->n_samples = 0;
    shard->samples.n = 0;
    shard->n_bytes = 8 + shard->config.n;
    *ret = raw;
    *ret_bytes = n_raw;
    return 0;
}

int mds_shard_describe(const MdsShard *shard, const char *basename, const void *bytes,
                       size_t n_bytes, MdsFile *ret, Error *err)
{
    assert(strlen(basename) <= MDS_BASENAME_MAX);
    *ret = (MdsFile){.n_bytes = n_bytes};
    memcpy(ret->basename, basename, strlen(basename) + 1);
    for (size_t i = 0; i < shard->n_hashes; i++) {
        int r = checksum_bytes(shard->hashes[i], bytes, n_bytes, ret->hashes[i], err);
        if (r < 0)
            return error_prefix(err, r, "cannot describe %s", basename);
    }
    return 0;
}

/* Writes "raw_data" or "zip_data": basename, bytes and hashes of one file. */
static int format_file(const MdsShard *shard, const char *key, const MdsFile *file, MdsText *text)
{
    int r =
        mds_text_format(text,
                        ", \"%s\": {\"basename\": \"%s\", \"bytes\": %" PRIu64 ", \"hashes\": {",
                        key, file->basename, file->n_bytes);
    for (size_t i = 0; r == 0 && i < shard->n_hashes; i++) {
        char hex[2 * CHECKSUM_BYTES_MAX + 1];
        size_t n = (size_t)checksum_size(shard->hashes[i]);
        r = mds_text_format(text, "%s\"%s\": \"%s\"", i ? ", " : "", shard->hashes[i],
                            hash_format_bytes(file->hashes[i], n, hex));
    }
    return r < 0 ? r : mds_text_format(text, "}}");
}

int mds_shard_entry(const MdsShard *shard, const MdsFile *raw, const MdsFile *zip,
                    uint64_t n_samples, char **ret, size_t *ret_bytes, Error *err)
{
    MdsText text = {0};
    int r = format_columns(shard, &text);
    if (r == 0)
        r = format_file(shard, "raw_data", raw, &text);
    if (r == 0)
        r = mds_text_format(&text, ", \"samples\": %" PRIu64, n_samples);
    if (r == 0)
        r = format_limit(shard, &text);
    if (r == 0)
        r = zip ? format_file(shard, "zip_data", zip, &text)
                : mds_text_format(&text, ", \"zip_data\": null");
    if (r == 0)
        r = mds_text_add(&text, "}", 1);
    if (r < 0) {
        free(text.data);
        return error_errno(err, r, "cannot describe %s", raw->basename);
    }
    *ret = text.data;
    *ret_bytes = text.n;
    return 0;
}
