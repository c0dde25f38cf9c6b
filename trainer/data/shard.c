/* shard.c - see shard.h. */
#include "trainer/data/shard.h"

#include "base/fault.h"
#include "base/file.h"
#include "trainer/data/cache.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

enum { READ_BYTES = 1 << 20 };

struct Shard {
    char *name;
    int fd;       /* -EBADF: in memory */
    char *memory; /* NULL: a file */
    uint64_t n_bytes, n_samples;
};

Shard *shard_free(Shard *shard)
{
    if (!shard)
        return NULL;
    shard->fd = fd_close(shard->fd);
    free(shard->memory);
    free(shard->name);
    free(shard);
    return NULL;
}

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

/* Both hashes in the text: what the index says and what the bytes are. */
static int compare_hash(const char *name, const char *algorithm, const uint8_t *wanted,
                        const uint8_t *found, Error *err)
{
    size_t n = (size_t)checksum_size(algorithm);
    if (memcmp(wanted, found, n) == 0)
        return 0;
    char a[2 * CHECKSUM_BYTES_MAX + 1], b[2 * CHECKSUM_BYTES_MAX + 1];
    return error_set(err, -EBADMSG, "%s is corrupt: its %s is %.64s, index.json says %.64s", name,
                     algorithm, checksum_format(found, n, b), checksum_format(wanted, n, a));
}

static int verify_memory(const ShardSource *source, const char *name, const char *data, size_t n,
                         const uint8_t *const *hashes, Error *err)
{
    for (size_t i = 0; i < source->n_hashes; i++) {
        uint8_t found[CHECKSUM_BYTES_MAX];
        int r = checksum_bytes(source->hashes[i], data, n, found, err);
        if (r == 0)
            r = compare_hash(name, source->hashes[i], hashes[i], found, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int hash_file(const Shard *shard, Checksum *const *checksums, size_t n, Error *err)
{
    _cleanup_free_ char *buffer = malloc(READ_BYTES);
    if (!buffer)
        return error_set(err, -ENOMEM, "out of memory");
    int r = 0;
    for (uint64_t at = 0; r == 0 && at < shard->n_bytes; at += READ_BYTES) {
        size_t part = (size_t)MIN((uint64_t)READ_BYTES, shard->n_bytes - at);
        r = read_range(shard, at, buffer, part, err);
        for (size_t i = 0; r == 0 && i < n; i++)
            r = checksum_update(checksums[i], buffer, part);
    }
    return r;
}

/* In one pass over the file, by all algorithms. */
static int verify_file(const ShardSource *source, const Shard *shard, const uint8_t *const *hashes,
                       Error *err)
{
    Checksum *checksums[MDS_HASHES_MAX] = {NULL};
    int r = 0;
    for (size_t i = 0; r == 0 && i < source->n_hashes; i++)
        r = checksum_new(source->hashes[i], &checksums[i], err);
    if (r == 0 && source->n_hashes > 0)
        r = hash_file(shard, checksums, source->n_hashes, err);
    for (size_t i = 0; r == 0 && i < source->n_hashes; i++) {
        uint8_t found[CHECKSUM_BYTES_MAX];
        r = checksum_finish(checksums[i], found);
        if (r == 0)
            r = compare_hash(shard->name, source->hashes[i], hashes[i], found, err);
    }
    for (size_t i = 0; i < source->n_hashes; i++)
        checksums[i] = checksum_free(checksums[i]);
    return r;
}

static int open_file(Shard *shard, const char *path, uint64_t n_bytes, Error *err)
{
    shard->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (shard->fd < 0) {
        int r = -errno;
        shard->fd = -EBADF;
        return error_errno(err, r, "cannot open shard %s", shard->name);
    }
    struct stat st;
    if (fstat(shard->fd, &st) < 0)
        return error_errno(err, -errno, "cannot stat %s", shard->name);
    if ((uint64_t)st.st_size != n_bytes)
        return error_set(err, -EBADMSG,
                         "%s is truncated or foreign: %lld bytes, index.json says %" PRIu64,
                         shard->name, (long long)st.st_size, n_bytes);
    shard->n_bytes = n_bytes;
    return 0;
}

static int decompress(const Shard *shard, const char *zip, size_t n_zip, size_t n_raw, char **ret,
                      Error *err)
{
    _cleanup_free_ char *raw = malloc(n_raw + 1);
    if (!raw)
        return error_set(err, -ENOMEM, "%s: out of memory for %zu bytes", shard->name, n_raw);
    size_t n = ZSTD_decompress(raw, n_raw, zip, n_zip);
    if (ZSTD_isError(n))
        return error_set(err, -EBADMSG, "%s: zstd: %s", shard->name, ZSTD_getErrorName(n));
    if (n != n_raw)
        return error_set(err, -EBADMSG, "%s unpacks to %zu bytes, index.json says %zu", shard->name,
                         n, n_raw);
    *ret = TAKE_PTR(raw);
    return 0;
}

/* Whole into memory, verified, unpacked. */
static int fetch(const ShardSource *source, const IndexShard *info, Shard *shard, Error *err)
{
    bool zipped = *source->compression;
    uint64_t n_bytes = zipped ? info->zip_bytes : info->raw_bytes;
    if (n_bytes > MDS_SHARD_BYTES_MAX || info->raw_bytes > MDS_SHARD_BYTES_MAX)
        return error_set(err, -EFBIG, "%s: %" PRIu64 " bytes are too many for memory", shard->name,
                         info->raw_bytes);
    _cleanup_free_ char *data = NULL;
    size_t n;
    int r =
        store_get(source->store, zipped ? info->zip_name : info->raw_name, n_bytes, &data, &n, err);
    if (r == -EFBIG || (r == 0 && n != n_bytes))
        return error_set(err, -EBADMSG,
                         "%s is truncated or foreign: index.json says %" PRIu64 " bytes",
                         shard->name, n_bytes);
    if (r < 0)
        return r;
    r = verify_memory(source, shard->name, data, n, zipped ? info->zip_hashes : info->raw_hashes,
                      err);
    if (r < 0)
        return r;
    if (zipped) {
        char *raw = NULL;
        r = decompress(shard, data, n, info->raw_bytes, &raw, err);
        if (r < 0)
            return r;
        free(data);
        data = raw;
        r = verify_memory(source, info->raw_name, data, info->raw_bytes, info->raw_hashes, err);
        if (r < 0)
            return r;
    }
    shard->memory = TAKE_PTR(data);
    shard->n_bytes = info->raw_bytes;
    return 0;
}

static int cache_path(const ShardSource *source, uint64_t number, char *ret, size_t size)
{
    int n = snprintf(ret, size, "%s/%s-%" PRIu64 ".mds", source->cache_dir, source->cache_prefix,
                     number);
    return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

void shard_forget(const ShardSource *source, uint64_t number)
{
    char path[PATH_MAX];
    if (source->cache_dir && cache_path(source, number, path, sizeof(path)) == 0)
        (void)unlink(path); /* there may be none */
}

/* From the cache, or fetched and put there. A cache that fails is a slower run, not a failed one.
 */
static int open_fetched(const ShardSource *source, uint64_t number, const IndexShard *info,
                        bool verify, Shard *shard, Error *err)
{
    char path[PATH_MAX];
    bool cached = source->cache_dir && cache_path(source, number, path, sizeof(path)) == 0;
    if (cached && open_file(shard, path, info->raw_bytes, NULL) == 0) {
        cache_touch(path);
        return verify ? verify_file(source, shard, info->raw_hashes, err) : 0;
    }
    shard->fd = fd_close(shard->fd);

    int r = fetch(source, info, shard, err);
    if (r < 0 || !cached)
        return r;
    if (cache_make_room(source->cache_dir, source->cache_bytes, info->raw_bytes) < 0 ||
        file_write(path, shard->memory, shard->n_bytes, 0, NULL) < 0 ||
        open_file(shard, path, info->raw_bytes, NULL) < 0) {
        shard->fd = fd_close(shard->fd);
        return 0;
    }
    free(shard->memory);
    shard->memory = NULL;
    return 0;
}

/* The counts at its start and the ends of its table. */
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
    if (first < 8 + 4 * (uint64_t)n || first > last || last != shard->n_bytes)
        return error_set(err, -EBADMSG, "%s: its offsets %u..%u do not fit %" PRIu64 " bytes",
                         shard->name, first, last, shard->n_bytes);
    shard->n_samples = n;
    return 0;
}

int shard_open(const ShardSource *source, uint64_t number, const IndexShard *info, bool verify,
               Shard **ret, Error *err)
{
    _cleanup_(shard_freep) Shard *shard = calloc(1, sizeof(*shard));
    if (!shard)
        return error_set(err, -ENOMEM, "out of memory");
    shard->fd = -EBADF;
    bool zipped = *source->compression;
    if (asprintf(&shard->name, "%s/%s", store_uri(source->store),
                 zipped ? info->zip_name : info->raw_name) < 0) {
        shard->name = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }

    char path[PATH_MAX];
    int r = fault("data.open");
    if (r < 0)
        return error_errno(err, r, "cannot open shard %s", shard->name);
    if (!zipped && store_local_path(source->store, info->raw_name, path, sizeof(path), NULL) == 0) {
        r = open_file(shard, path, info->raw_bytes, err);
        if (r == 0 && verify)
            r = verify_file(source, shard, info->raw_hashes, err);
    } else {
        r = open_fetched(source, number, info, verify, shard, err);
    }
    if (r == 0)
        r = check_table(shard, info, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(shard);
    return 0;
}

static int sample_range(const Shard *shard, uint32_t sample, uint32_t ret[2], Error *err)
{
    assert(sample < shard->n_samples);
    int r = read_range(shard, 4 + 4 * (uint64_t)sample, ret, 8, err);
    if (r < 0)
        return r;
    if (ret[0] < 8 + 4 * shard->n_samples || ret[0] > ret[1] || ret[1] > shard->n_bytes ||
        ret[1] - ret[0] > MDS_SAMPLE_BYTES_MAX)
        return error_set(err, -EBADMSG, "%s[%u]: offsets %u..%u in a file of %" PRIu64 " bytes",
                         shard->name, sample, ret[0], ret[1], shard->n_bytes);
    return 0;
}

int shard_read(const Shard *shard, uint32_t sample, char **buffer, size_t *room, size_t *ret_bytes,
               Error *err)
{
    uint32_t range[2];
    int r = sample_range(shard, sample, range, err);
    if (r < 0)
        return r;
    size_t n = range[1] - range[0];
    if (n > *room) {
        char *grown = realloc(*buffer, n);
        if (!grown)
            return error_set(err, -ENOMEM, "%s[%u]: out of memory for %zu bytes", shard->name,
                             sample, n);
        *buffer = grown;
        *room = n;
    }
    *ret_bytes = n;
    return read_range(shard, range[0], *buffer, n, err);
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
