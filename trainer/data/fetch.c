/* fetch.c - see fetch.h.
 *
 * Fault points: cache.write; cache.patience ends the patience with another process. */
#include "trainer/data/fetch.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>
#include <zstd.h>

enum {
    PIECES = 4, /* under way together */
    LOOK_MSEC = 20,
    PATIENCE_SEC = 60, /* with another process that has it */
    UNPACK_BYTES = 1 << 20,
};

typedef struct Piece {
    Arrival arrival;
    char *buffer; /* NULL: the pieces of a fetch into memory lie where they belong */
    uint64_t at;
    size_t n_bytes;
} Piece;

struct ShardFetch {
    const ShardSource *source;
    uint64_t number;
    IndexShard info;
    bool background, zipped;
    bool to_memory, begun, met_corrupt;
    uint64_t patient_until_usec; /* 0: nobody else has it */
    char name[CACHE_NAME_MAX + 1], zip_name[CACHE_NAME_MAX + 1];
    char *uri;
    const char *key;
    int raw_fd, zip_fd; /* in the cache, being filled */
    char *memory;       /* n_bytes */
    uint64_t n_bytes, asked, came;
    Piece pieces[PIECES];
};

int shard_fetch_new(const ShardSource *source, uint64_t number, const IndexShard *info,
                    bool background, ShardFetch **ret, Error *err)
{
    _cleanup_(shard_fetch_freep) ShardFetch *f = calloc(1, sizeof(*f));
    if (!f)
        return error_set(err, -ENOMEM, "out of memory");
    f->source = source;
    f->number = number;
    f->info = *info;
    f->background = background;
    f->zipped = *source->compression;
    f->to_memory = !source->cache;
    f->raw_fd = f->zip_fd = -EBADF;
    f->n_bytes = f->zipped ? info->zip_bytes : info->raw_bytes;
    f->key = f->zipped ? info->zip_name : info->raw_name;
    f->uri = shard_uri(source, info);
    if (!f->uri)
        return error_set(err, -ENOMEM, "out of memory");
    (void)shard_cache_name(source, number, f->name);
    (void)snprintf(f->zip_name, sizeof(f->zip_name), "%.100s.zip", f->name);
    *ret = TAKE_PTR(f);
    return 0;
}

/* Back to where nothing has been asked for. */
static void reset(ShardFetch *f)
{
    for (size_t i = 0; i < PIECES; i++) {
        arrival_cancel(&f->pieces[i].arrival, f->source->store);
        free(f->pieces[i].buffer);
        f->pieces[i].buffer = NULL;
    }
    f->raw_fd = f->source->cache ? cache_abandon(f->source->cache, f->name, f->raw_fd) : -EBADF;
    f->zip_fd = f->source->cache ? cache_abandon(f->source->cache, f->zip_name, f->zip_fd) : -EBADF;
    free(f->memory);
    f->memory = NULL;
    f->begun = false;
    f->asked = f->came = 0;
}

ShardFetch *shard_fetch_free(ShardFetch *f)
{
    if (!f)
        return NULL;
    reset(f);
    free(f->uri);
    free(f);
    return NULL;
}

/* ---- a place for it ---- */

static int begin_in_memory(ShardFetch *f, Error *err)
{
    if (f->background)
        return error_set(err, -ENOBUFS, "%s: the cache has no room for it", f->uri);
    if (f->n_bytes > MDS_SHARD_BYTES_MAX || f->info.raw_bytes > MDS_SHARD_BYTES_MAX)
        return error_set(err, -EFBIG, "%s: %" PRIu64 " bytes are too many for memory", f->uri,
                         f->info.raw_bytes);
    f->memory = malloc(f->n_bytes + 1);
    if (!f->memory)
        return error_set(err, -ENOMEM, "%s: out of memory for %" PRIu64 " bytes", f->uri,
                         f->n_bytes);
    f->begun = true;
    return 0;
}

/* The cache failed: what came is given up, and all of it goes to memory. */
static int leave_cache(ShardFetch *f, Error *err)
{
    reset(f);
    f->to_memory = true;
    return begin_in_memory(f, err);
}

/* 1: another process has fetched it; 0: begun, or somebody else is at it. */
static int begin(ShardFetch *f, uint64_t *wake_usec, Shard **ret, Error *err)
{
    if (f->to_memory)
        return begin_in_memory(f, err);
    int fd = cache_reserve(f->source->cache, f->name, f->info.raw_bytes);
    if (fd == -EEXIST) {
        int r = shard_open_cached(f->source, f->number, &f->info, true, ret, err);
        if (r == 0)
            return 1;
        if (f->met_corrupt)
            return leave_cache(f, err); /* it does not go away */
        log_warning("%s: what the cache holds of it, %s, is corrupt; fetching it again", f->uri,
                    f->name);
        f->met_corrupt = true;
        *wake_usec = 0;
        return 0;
    }
    if (fd == -EAGAIN) {
        uint64_t now = clock_monotonic_usec();
        if (f->background)
            return error_set(err, -EAGAIN, "%s: another process is fetching it", f->uri);
        if (!f->patient_until_usec)
            f->patient_until_usec = now + PATIENCE_SEC * USEC_PER_SEC;
        if (now >= f->patient_until_usec || fault("cache.patience") < 0)
            return leave_cache(f, err);
        *wake_usec = MIN(*wake_usec, now + LOOK_MSEC * USEC_PER_MSEC);
        return 0;
    }
    if (fd < 0)
        return leave_cache(f, err);
    f->raw_fd = fd;
    if (f->zipped) {
        f->zip_fd = cache_reserve(f->source->cache, f->zip_name, f->n_bytes);
        if (f->zip_fd < 0)
            return leave_cache(f, err);
    }
    f->begun = true;
    return 0;
}

/* ---- bringing ---- */

static int begin_piece(ShardFetch *f, Piece *p, Error *err)
{
    p->at = f->asked;
    p->n_bytes = (size_t)MIN((uint64_t)f->source->piece_bytes, f->n_bytes - f->asked);
    if (!f->memory && !p->buffer && !(p->buffer = malloc(f->source->piece_bytes)))
        return error_set(err, -ENOMEM, "%s: out of memory for %zu bytes", f->uri,
                         f->source->piece_bytes);
    int r = arrival_begin(&p->arrival, f->source->store, f->key, p->at, p->n_bytes,
                          f->memory ? f->memory + p->at : p->buffer, f->source->bell, err);
    if (r == 0)
        f->asked += p->n_bytes;
    return r;
}

static int write_at(int fd, const char *data, size_t n_bytes, uint64_t at)
{
    int r = fault("cache.write");
    return r < 0 ? r : fd_write_at(fd, data, n_bytes, at);
}

/* 1: everything has come. */
static int bring(ShardFetch *f, Error *err)
{
    for (size_t i = 0; i < PIECES; i++) {
        Piece *p = &f->pieces[i];
        int r = p->arrival.begun ? arrival_poll(&p->arrival, f->source->store, err) : 0;
        if (r < 0)
            return shard_explain(f->source, &f->info, r, err);
        if (r > 0) {
            r = f->memory
                    ? 0
                    : write_at(f->zipped ? f->zip_fd : f->raw_fd, p->buffer, p->n_bytes, p->at);
            if (r < 0) {
                cache_failed(f->source->cache, r);
                return leave_cache(f, err);
            }
            f->came += p->n_bytes;
        }
        if (!p->arrival.begun && f->asked < f->n_bytes) {
            r = begin_piece(f, p, err);
            if (r < 0)
                return r;
        }
    }
    return f->came == f->n_bytes;
}

/* ---- unpacking ---- */

static int unpack_memory(const ShardFetch *f, char **ret, Error *err)
{
    _cleanup_free_ char *raw = malloc(f->info.raw_bytes + 1);
    if (!raw)
        return error_set(err, -ENOMEM, "%s: out of memory for %" PRIu64 " bytes", f->uri,
                         f->info.raw_bytes);
    size_t n = ZSTD_decompress(raw, f->info.raw_bytes, f->memory, f->n_bytes);
    if (ZSTD_isError(n))
        return error_set(err, -EBADMSG, "%s: zstd: %s", f->uri, ZSTD_getErrorName(n));
    if (n != f->info.raw_bytes)
        return error_set(err, -EBADMSG, "%s unpacks to %zu bytes, index.json says %" PRIu64, f->uri,
                         n, f->info.raw_bytes);
    *ret = TAKE_PTR(raw);
    return 0;
}

typedef struct Unpack {
    ZSTD_DCtx *context;
    char *in, *out;
    uint64_t n_out;
    int write_failed; /* the disk's word, not the shard's */
} Unpack;

static int unpack_block(const ShardFetch *f, Unpack *u, size_t n_in, Error *err)
{
    ZSTD_inBuffer in = {u->in, n_in, 0};
    for (bool full = true; in.pos < in.size || full;) {
        ZSTD_outBuffer out = {u->out, UNPACK_BYTES, 0};
        size_t left = ZSTD_decompressStream(u->context, &out, &in);
        if (ZSTD_isError(left))
            return error_set(err, -EBADMSG, "%s: zstd: %s", f->uri, ZSTD_getErrorName(left));
        if (u->n_out + out.pos > f->info.raw_bytes)
            return error_set(err, -EBADMSG, "%s unpacks to more than %" PRIu64 " bytes", f->uri,
                             f->info.raw_bytes);
        u->write_failed = write_at(f->raw_fd, u->out, out.pos, u->n_out);
        if (u->write_failed < 0)
            return error_errno(err, u->write_failed, "cannot unpack %s", f->uri);
        u->n_out += out.pos;
        full = out.pos == out.size;
    }
    return 0;
}

static int unpack_blocks(const ShardFetch *f, Unpack *u, Error *err)
{
    int r = 0;
    for (uint64_t at = 0; r == 0 && at < f->n_bytes; at += UNPACK_BYTES) {
        size_t n = (size_t)MIN((uint64_t)UNPACK_BYTES, f->n_bytes - at);
        r = fd_read_all(f->zip_fd, u->in, n, at);
        if (r < 0)
            return error_errno(err, u->write_failed = r, "cannot read back %s", f->uri);
        r = unpack_block(f, u, n, err);
    }
    if (r == 0 && u->n_out != f->info.raw_bytes)
        return error_set(err, -EBADMSG, "%s unpacks to %" PRIu64 " bytes, index.json says %" PRIu64,
                         f->uri, u->n_out, f->info.raw_bytes);
    return r;
}

static int unpack_file(const ShardFetch *f, int *ret_disk, Error *err)
{
    Unpack u = {.context = ZSTD_createDCtx(),
                .in = malloc(UNPACK_BYTES),
                .out = malloc(UNPACK_BYTES)};
    int r = u.context && u.in && u.out ? unpack_blocks(f, &u, err)
                                       : error_set(err, -ENOMEM, "out of memory");
    (void)ZSTD_freeDCtx(u.context); /* accepts NULL */
    free(u.in);
    free(u.out);
    *ret_disk = u.write_failed;
    return r;
}

/* ---- verified, and the reader's ---- */

static int finish_memory(ShardFetch *f, Shard **ret, Error *err)
{
    const ShardSource *s = f->source;
    int r = shard_verify_memory(s, f->uri, f->memory, f->n_bytes,
                                f->zipped ? f->info.zip_hashes : f->info.raw_hashes, err);
    if (r == 0 && f->zipped) {
        char *raw = NULL;
        r = unpack_memory(f, &raw, err);
        if (r < 0)
            return r;
        free(f->memory);
        f->memory = raw;
        r = shard_verify_memory(s, f->info.raw_name, raw, f->info.raw_bytes, f->info.raw_hashes,
                                err);
    }
    if (r == 0)
        r = shard_of_memory(s, &f->info, f->memory, ret, err);
    if (r < 0)
        return r;
    f->memory = NULL; /* the shard has it */
    return 1;
}

static int finish_file(ShardFetch *f, Shard **ret, Error *err)
{
    const ShardSource *s = f->source;
    int disk = 0, r = 0;
    if (f->zipped) {
        r = shard_verify_file(s, f->uri, f->zip_fd, f->n_bytes, f->info.zip_hashes, err);
        if (r == 0)
            r = unpack_file(f, &disk, err);
        f->zip_fd = cache_abandon(s->cache, f->zip_name, f->zip_fd);
    }
    if (r == 0)
        r = shard_verify_file(s, f->zipped ? f->info.raw_name : f->uri, f->raw_fd,
                              f->info.raw_bytes, f->info.raw_hashes, err);
    if (r == 0)
        r = disk = cache_commit(s->cache, f->name, f->raw_fd, s->n_hashes == 0);
    if (disk < 0) {
        cache_failed(s->cache, disk);
        return leave_cache(f, err);
    }
    if (r == 0) {
        r = shard_of_file(s, &f->info, f->raw_fd, ret, err);
        if (r < 0)
            cache_forget(s->cache, f->name);
    }
    if (r < 0)
        return r;
    f->raw_fd = -EBADF; /* the shard has it */
    return 1;
}

int shard_fetch_poll(ShardFetch *f, uint64_t *wake_usec, Shard **ret, Error *err)
{
    int r = f->begun ? 0 : begin(f, wake_usec, ret, err);
    if (r != 0 || !f->begun)
        return r;
    /* Reads that arrive while they are begun (file://) are taken at once. */
    uint64_t came, asked;
    do {
        came = f->came;
        asked = f->asked;
        r = bring(f, err);
    } while (r == 0 && (f->came != came || f->asked != asked));
    if (r <= 0)
        return r;
    r = f->memory ? finish_memory(f, ret, err) : finish_file(f, ret, err);
    if (r == 0)
        *wake_usec = 0; /* the cache failed it: from the beginning, into memory */
    return r;
}

int shard_fetch(const ShardSource *source, uint64_t number, const IndexShard *info, Shard **ret,
                Error *err)
{
    _cleanup_(shard_fetch_freep) ShardFetch *f = NULL;
    int r = shard_fetch_new(source, number, info, false, &f, err);
    while (r == 0) {
        uint64_t seen = bell_count(source->bell), wake_usec = UINT64_MAX;
        r = shard_fetch_poll(f, &wake_usec, ret, err);
        if (r == 0)
            bell_wait(source->bell, seen, wake_usec);
    }
    return r < 0 ? r : 0;
}
