/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c - see shard.h. */
#include "data/stream/shard.h"

#include "base/fault.h"
#include "base/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { READ_BYTES = 1 << 20 };

struct Shard {
    char *name;
    int fd;       /* -EBADF: the shard is in memory */
    char *memory; /* NULL: the shard is a file */
    uint64_t n_bytes, n_samples;
    uint64_t *sample_hashes; /* NULL: the hashes were not computed */
};

Shard *shard_free(Shard *shard)
{
    if (!shard)
        return NULL;
    shard->fd = fd_close(shard->fd);
    free(shard->sample_hashes);
    free(shard->memory);
    free(shard->name);
    free(shard);
    return NULL;
}

uint64_t *shard_take_sample_hashes(Shard *shard) { return TAKE_PTR(shard->sample_hashes); }
const char *shard_name(const Shard *shard) { return shard->name; }
size_t shard_memory_bytes(const Shard *shard) { return shard->memory ? shard->n_bytes : 0; }

static int read_range(const Shard *shard, uint64_t offset, void *ret, size_t n_bytes, Error *err)
{
    int r = fault("data.read");
    if (r == 0 && (offset > shard->n_bytes || n_bytes > shard->n_bytes - offset))
        return error_set(err, -EBADMSG, "%s: an offset leads behind its end", shard->name);
    if (r == 0 && shard->memory)
        memcpy(ret, shard->memory + offset, n_bytes);
    else if (r == 0)
        r = fd_read_all(shard->fd, ret, n_bytes, offset);
    if (r < 0)
        return error_errno(err, r, "%s: cannot read %zu bytes at %" PRIu64, shard->name, n_bytes,
                           offset);
    return 0;
}

/* Compares two hashes. The error text has both: the hash in the index and the hash of the bytes. */
static int compare_hash(const char *name, const char *algorithm, const uint8_t *wanted,
                        const uint8_t *found, Error *err)
{
    size_t n = (size_t)checksum_size(algorithm);
    if (memcmp(wanted, found, n) == 0)
        return 0;
    char a[2 * CHECKSUM_BYTES_MAX + 1], b[2 * CHECKSUM_BYTES_MAX + 1];
    return error_set(err, -EBADMSG, "%s is corrupt: its %s is %.64s, index.json says %.64s", name,
                     algorithm, hash_format_bytes(found, n, b), hash_format_bytes(wanted, n, a));
}

void shard_hashes_clear(ShardHashes *hashes)
{
    for (size_t i = 0; i < hashes->n; i++)
        (void)checksum_free(hashes->checksums[i]);
    (void)sample_hashes_free(hashes->samples);
    *hashes = (ShardHashes){0};
}

int shard_hashes_begin(ShardHashes *hashes, const ShardSource *source, const IndexShard *raw,
                       Error *err)
{
    if (raw && source->sample_hashes &&
        sample_hashes_new(raw->n_samples, raw->raw_bytes, &hashes->samples) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    while (hashes->n < source->n_hashes) {
        int r = checksum_new(source->hashes[hashes->n], &hashes->checksums[hashes->n], err);
        if (r < 0) {
            shard_hashes_clear(hashes);
            return r;
        }
        hashes->n++;
    }
    return 0;
}

int shard_hashes_add(ShardHashes *hashes, const char *name, const void *data, size_t n_bytes,
                     Error *err)
{
    for (size_t i = 0; i < hashes->n; i++) {
        int r = checksum_update(hashes->checksums[i], data, n_bytes);
        if (r < 0)
            return error_errno(err, r, "%s: cannot hash it", name);
    }
    if (hashes->samples)
        sample_hashes_add(hashes->samples, data, n_bytes);
    return 0;
}

int shard_hashes_end(ShardHashes *hashes, const ShardSource *source, const char *name,
                     const uint8_t *const *wanted, Error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < hashes->n; i++) {
        uint8_t found[CHECKSUM_BYTES_MAX];
        r = checksum_finish(hashes->checksums[i], found);
        r = r < 0 ? error_errno(err, r, "%s: cannot hash it", name)
                  : compare_hash(name, source->hashes[i], wanted[i], found, err);
    }
    SampleHashes *samples = r == 0 ? TAKE_PTR(hashes->samples) : NULL;
    shard_hashes_clear(hashes);
    hashes->samples = samples;
    return r;
}

void shard_keep_sample_hashes(Shard *shard, ShardHashes *hashes)
{
    free(shard->sample_hashes);
    shard->sample_hashes = hashes->samples ? sample_hashes_take(hashes->samples) : NULL;
}

static int hash_file(const char *name, int fd, uint64_t n_bytes, ShardHashes *hashes, Error *err)
{
    _cleanup_free_ char *buffer = malloc(READ_BYTES);
    if (!buffer)
        return error_set(err, -ENOMEM, "out of memory");
    int r = 0;
    for (uint64_t at = 0; r == 0 && at < n_bytes; at += READ_BYTES) {
        size_t part = (size_t)MIN((uint64_t)READ_BYTES, n_bytes - at);
        r = fault("data.read");
        if (r == 0)
            r = fd_read_all(fd, buffer, part, at);
        if (r < 0)
            return error_errno(err, r, "%s: cannot read %zu bytes at %" PRIu64, name, part, at);
        r = shard_hashes_add(hashes, name, buffer, part, err);
    }
    return r;
}

/* Verifies a file by all hashes of the source in one pass, and hashes its samples. Does nothing if the source has no
 * hashes. */
static int verify_file(const ShardSource *source, const char *name, int fd, const IndexShard *info,
                       ShardHashes *hashes, Error *err)
{
    if (source->n_hashes == 0)
        return 0;
    int r = shard_hashes_begin(hashes, source, info, err);
    if (r == 0)
        r = hash_file(name, fd, info->raw_bytes, hashes, err);
    return r < 0 ? r : shard_hashes_end(hashes, source, name, info->raw_hashes, err);
}

/* ---- opening ---- */

void shard_source_init(ShardSource *source, Store *store, const Index *index)
{
    *source = (ShardSource){.store = store,
                            .compression = index_compression(index),
                            .n_hashes = index_n_hashes(index)};
    for (size_t i = 0; i < source->n_hashes; i++)
        source->hashes[i] = index_hash_name(index, i);
    (void)hash_format(index_digest(index), source->cache_prefix);
}

bool shard_source_local(const ShardSource *source)
{
    char path[PATH_MAX];
    return store_local_path(source->store, "shard", path, sizeof(path), NULL) == 0;
}

const char *shard_cache_name(const ShardSource *source, uint64_t number,
                             char name[CACHE_NAME_MAX + 1])
{
    (void)snprintf(name, CACHE_NAME_MAX + 1, "%s-%" PRIu64 ".mds", source->cache_prefix, number);
    return name;
}

char *shard_uri(const ShardSource *source, const IndexShard *info)
{
    char *uri;
    return asprintf(&uri, "%s/%s", store_uri(source->store),
                    *source->compression ? info->zip_name : info->raw_name) < 0
               ? NULL
               : uri;
}

int shard_explain(const ShardSource *source, const IndexShard *info, int r, Error *err)
{
    uint64_t n_bytes, wanted = *source->compression ? info->zip_bytes : info->raw_bytes;
    const char *key = *source->compression ? info->zip_name : info->raw_name;
    if (r == -EIO && store_head(source->store, key, &n_bytes, NULL) == 0 && n_bytes != wanted)
        return error_set(err, -EBADMSG,
                         "%s/%s is truncated or foreign: %" PRIu64
                         " bytes, index.json says %" PRIu64,
                         store_uri(source->store), key, n_bytes, wanted);
    return r;
}

static int shard_new(const ShardSource *source, const IndexShard *info, Shard **ret, Error *err)
{
    Shard *shard = calloc(1, sizeof(*shard));
    if (!shard || !(shard->name = shard_uri(source, info))) {
        free(shard);
        return error_set(err, -ENOMEM, "out of memory");
    }
    shard->fd = -EBADF;
    shard->n_bytes = info->raw_bytes;
    *ret = shard;
    return 0;
}

/* ---- the table of offsets ---- */

static int check_ends(const char *name, uint64_t n, uint32_t first, uint32_t last,
                      const IndexShard *info, Error *err)
{
    if (first < 8 + 4 * n || first > last || last != info->raw_bytes)
        return error_set(err, -EBADMSG, "%s: its offsets %u..%u do not fit %" PRIu64 " bytes", name,
                         first, last, info->raw_bytes);
    return 0;
}

static int check_range(const char *name, uint32_t sample, const uint32_t range[2],
                       uint64_t n_samples, uint64_t n_bytes, Error *err)
{
    if (range[0] < 8 + 4 * n_samples || range[0] > range[1] || range[1] > n_bytes ||
        range[1] - range[0] > MDS_SAMPLE_BYTES_MAX)
        return error_set(err, -EBADMSG, "%s[%u]: offsets %u..%u in a file of %" PRIu64 " bytes",
                         name, sample, range[0], range[1], n_bytes);
    return 0;
}

/* Checks the number of samples at the shard's start, and the first and last offset of its table. */
static int check_table(Shard *shard, const IndexShard *info, Error *err)
{
    uint32_t n, first, last;
    int r = read_range(shard, 0, &n, 4, err);
    if (r < 0)
        return r;
    if (n != info->n_samples)
        return error_set(err, -EBADMSG, "%s: %u samples, index.json says %" PRIu64, shard->name, n,
                         info->n_samples);
    r = read_range(shard, 4, &first, 4, err);
    if (r == 0)
        r = read_range(shard, 4 + 4 * (uint64_t)n, &last, 4, err);
    if (r < 0)
        return r;
    r = check_ends(shard->name, n, first, last, info, err);
    shard->n_samples = n;
    return r;
}

int shard_of_memory(const ShardSource *source, const IndexShard *info, char *memory, Shard **ret,
                    Error *err)
{
    _cleanup_(shard_freep) Shard *shard = NULL;
    int r = shard_new(source, info, &shard, err);
    if (r < 0)
        return r;
    shard->memory = memory;
    r = check_table(shard, info, err);
    if (r < 0) {
        shard->memory = NULL;
        return r;
    }
    *ret = TAKE_PTR(shard);
    return 0;
}

static int check_size(Shard *shard, uint64_t n_bytes, Error *err)
{
    struct stat st;
    if (fstat(shard->fd, &st) < 0)
        return error_errno(err, -errno, "cannot stat %s", shard->name);
    if ((uint64_t)st.st_size != n_bytes)
        return error_set(err, -EBADMSG,
                         "%s is truncated or foreign: %lld bytes, index.json says %" PRIu64,
                         shard->name, (long long)st.st_size, n_bytes);
    return 0;
}

int shard_of_file(const ShardSource *source, const IndexShard *info, int fd, Shard **ret,
                  Error *err)
{
    _cleanup_(shard_freep) Shard *shard = NULL;
    int r = shard_new(source, info, &shard, err);
    if (r < 0)
        return r;
    shard->fd = fd;
    r = check_size(shard, info->raw_bytes, err);
    if (r == 0)
        r = check_table(shard, info, err);
    if (r < 0) {
        shard->fd = -EBADF;
        return r;
    }
    *ret = TAKE_PTR(shard);
    return 0;
}

int shard_open_in_place(const ShardSource *source, const IndexShard *info, bool verify, Shard **ret,
                        Error *err)
{
    char path[PATH_MAX];
    _cleanup_free_ char *name = shard_uri(source, info);
    if (!name)
        return error_set(err, -ENOMEM, "out of memory");
    int r = fault("data.open");
    if (r < 0)
        return error_errno(err, r, "cannot open shard %s", name);
    r = store_local_path(source->store, info->raw_name, path, sizeof(path), err);
    if (r < 0)
        return r;
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, -errno, "cannot open shard %s", name);
    _cleanup_(shard_freep) Shard *shard = NULL;
    r = shard_of_file(source, info, fd, &shard, err);
    if (r < 0)
        return r;
    (void)TAKE_FD(fd); /* the shard owns the descriptor now */
    ShardHashes hashes = {0};
    if (verify)
        r = verify_file(source, name, shard->fd, info, &hashes, err);
    if (r == 0) {
        shard_keep_sample_hashes(shard, &hashes);
        *ret = TAKE_PTR(shard);
    }
    shard_hashes_clear(&hashes);
    return r;
}

int shard_open_cached(const ShardSource *source, uint64_t number, const IndexShard *info,
                      bool verify, Shard **ret, Error *err)
{
    char name[CACHE_NAME_MAX + 1];
    if (!source->cache)
        return -ENOENT;
    _cleanup_fd_ int fd =
        cache_open(source->cache, shard_cache_name(source, number, name), info->raw_bytes);
    if (fd < 0)
        return -ENOENT; /* the fetch will report any other error */
    ShardHashes hashes = {0};
    int r = verify ? verify_file(source, name, fd, info, &hashes, err) : 0;
    if (r == 0)
        r = shard_of_file(source, info, fd, ret, err);
    if (r == 0) {
        (void)TAKE_FD(fd); /* the shard owns the descriptor now */
        shard_keep_sample_hashes(*ret, &hashes);
    } else {
        cache_forget(source->cache, name);
    }
    shard_hashes_clear(&hashes);
    return r;
}

/* ---- samples ---- */

int shard_table_range(const char *name, const uint32_t *table, uint32_t sample,
                      const IndexShard *info, uint32_t ret[2], Error *err)
{
    assert(sample < info->n_samples);
    memcpy(ret, table + 1 + sample, 8);
    return check_range(name, sample, ret, info->n_samples, info->raw_bytes, err);
}

int shard_table_check(const char *name, const uint32_t *table, const IndexShard *info, Error *err)
{
    if (table[0] != info->n_samples)
        return error_set(err, -EBADMSG, "%s: %u samples, index.json says %" PRIu64, name, table[0],
                         info->n_samples);
    return check_ends(name, table[0], table[1], table[1 + info->n_samples], info, err);
}

int shard_grow(char **buffer, size_t *room, size_t n_bytes, Error *err)
{
    if (n_bytes <= *room)
        return 0;
    char *grown = malloc(n_bytes);
    if (!grown)
        return error_set(err, -ENOMEM, "out of memory for a sample of %zu bytes", n_bytes);
    free(*buffer);
    *buffer = grown;
    *room = n_bytes;
    return 0;
}

static int sample_range(const Shard *shard, uint32_t sample, uint32_t ret[2], Error *err)
{
    assert(sample < shard->n_samples);
    int r = read_range(shard, 4 + 4 * (uint64_t)sample, ret, 8, err);
    return r < 0 ? r : check_range(shard->name, sample, ret, shard->n_samples, shard->n_bytes, err);
}

int shard_read(const Shard *shard, uint32_t sample, uint32_t ret_range[2], char **buffer,
               size_t *room, Error *err)
{
    int r = sample_range(shard, sample, ret_range, err);
    if (r == 0)
        r = shard_grow(buffer, room, ret_range[1] - ret_range[0], err);
    return r < 0 ? r : read_range(shard, ret_range[0], *buffer, ret_range[1] - ret_range[0], err);
}

int shard_read_head(const Shard *shard, uint32_t sample, void *ret, size_t n_bytes, Error *err)
{
    uint32_t range[2];
    int r = sample_range(shard, sample, range, err);
    if (r < 0)
        return r;
    if (range[1] - range[0] < n_bytes)
        return error_set(err, -EBADMSG, "%s[%u]: %u bytes do not hold its columns' sizes",
                         shard->name, sample, range[1] - range[0]);
    return read_range(shard, range[0], ret, n_bytes, err);
}
