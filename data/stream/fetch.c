/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c - see fetch.h. Pieces are hashed in their order as they arrive, while they are still in the processor's
 * cache.
 *
 * Fault points: cache.write; cache.patience, which ends the wait for another process. */
#include "data/stream/fetch.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>
#include <zstd.h>

enum {
    PIECES = 4, /* pieces that are requested at the same time */
    LOOK_MSEC = 20,
    PATIENCE_SEC = 60, /* longest wait for another process that fetches the shard */
    UNPACK_BYTES = 1 << 20,
};

typedef struct Piece {
    StoreRead read;
    /* NULL: the shard is fetched into memory, and the piece is read directly to its place in ShardFetch.memory. */
    char *buffer;
} Piece;

struct ShardFetch {
    const ShardSource *source;
    uint64_t number;
    IndexShard info;
    bool background, zipped;
    bool to_memory, begun, met_corrupt;
    uint64_t patient_until_usec; /* end of the wait for another process; 0: there is no wait */
    char name[CACHE_NAME_MAX + 1], zip_name[CACHE_NAME_MAX + 1];
    char *uri;
    const char *key;
    int raw_fd, zip_fd; /* files in the cache that are being filled */
    char *memory;       /* [n_bytes]: the shard; NULL: the shard is fetched into the cache */
    uint64_t n_bytes, asked, came;
    ShardHashes hashes;   /* hashes of the bytes that arrived */
    Piece pieces[PIECES]; /* byte i is read by pieces[i / piece_bytes % PIECES] */
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

/* ---- buffers of pieces ---- */

static char *take_buffer(const ShardSource *s)
{
    if (s->spare && s->spare->n > 0)
        return s->spare->buffers[--s->spare->n];
    return malloc(s->piece_bytes);
}

static void give_buffer(const ShardSource *s, char *buffer)
{
    if (buffer && s->spare && s->spare->n < ELEMENTSOF(s->spare->buffers))
        s->spare->buffers[s->spare->n++] = buffer;
    else
        free(buffer);
}

void piece_buffers_clear(PieceBuffers *spare)
{
    while (spare->n > 0)
        free(spare->buffers[--spare->n]);
}

/* ---- one fetch ---- */

/* Cancels all requests, removes the files and frees the memory, so that the fetch can begin again. */
static void reset(ShardFetch *f)
{
    for (size_t i = 0; i < PIECES; i++) {
        store_read_cancel(f->source->store, &f->pieces[i].read);
        give_buffer(f->source, TAKE_PTR(f->pieces[i].buffer));
    }
    shard_hashes_clear(&f->hashes);
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

/* ---- a place for the shard ---- */

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
    /* NULL: hashes of samples are not needed, since a shard in memory is not checked again. */
    return shard_hashes_begin(&f->hashes, f->source, NULL, err);
}

/* Discards the bytes that arrived, since the cache failed, and begins again to fetch everything into memory. */
static int leave_cache(ShardFetch *f, Error *err)
{
    reset(f);
    f->to_memory = true;
    return begin_in_memory(f, err);
}

/* Returns 1 if another process has put the shard into the cache, 0 if the fetch has begun or must be tried again. */
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
            return leave_cache(f, err); /* the cache's file was corrupt twice */
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
    return shard_hashes_begin(&f->hashes, f->source, f->zipped ? NULL : &f->info, err);
}

/* ---- fetching the pieces ---- */

static Piece *piece_of(ShardFetch *f, uint64_t at)
{
    return &f->pieces[at / f->source->piece_bytes % PIECES];
}

static size_t piece_bytes(const ShardFetch *f, uint64_t at)
{
    return (size_t)MIN((uint64_t)f->source->piece_bytes, f->n_bytes - at);
}

static int begin_piece(ShardFetch *f, Error *err)
{
    Piece *p = piece_of(f, f->asked);
    const size_t n_bytes = piece_bytes(f, f->asked);
    assert(!p->read.begun && n_bytes > 0);
    if (!f->memory && !p->buffer && !(p->buffer = take_buffer(f->source)))
        return error_set(err, -ENOMEM, "%s: out of memory for %zu bytes", f->uri,
                         f->source->piece_bytes);
    p->read = (StoreRead){.key = f->key,
                          .offset = f->asked,
                          .n_bytes = n_bytes,
                          .buffer = f->memory ? f->memory + f->asked : p->buffer,
                          .events = f->source->events};
    int r = store_read_begin(f->source->store, &p->read, err);
    if (r == 0)
        f->asked += n_bytes;
    return r;
}

static int write_at(int fd, const char *data, size_t n_bytes, uint64_t at)
{
    int r = fault("cache.write");
    return r < 0 ? r : fd_write_at(fd, data, n_bytes, at);
}

/* Takes the next piece in order. Returns 1 if the piece was taken, or was discarded because the fetch moves to memory;
 * 0 if the piece has not arrived. */
static int take_piece(ShardFetch *f, Error *err)
{
    Piece *p = piece_of(f, f->came);
    const size_t n_bytes = piece_bytes(f, f->came);
    const char *data = f->memory ? f->memory + f->came : p->buffer;
    int r = store_read_poll(f->source->store, &p->read, err);
    if (r <= 0)
        return r < 0 ? shard_explain(f->source, &f->info, r, err) : 0;
    r = shard_hashes_add(&f->hashes, f->uri, data, n_bytes, err);
    if (r < 0)
        return r;
    if (!f->memory)
        r = write_at(f->zipped ? f->zip_fd : f->raw_fd, data, n_bytes, f->came);
    if (r < 0) {
        cache_failed(f->source->cache, r);
        r = leave_cache(f, err);
        return r < 0 ? r : 1;
    }
    f->came += n_bytes;
    return 1;
}

/* Returns 1 if all bytes have arrived. */
static int bring(ShardFetch *f, Error *err)
{
    for (int r = 1; r > 0;) {
        while (f->asked < f->n_bytes && !piece_of(f, f->asked)->read.begun) {
            r = begin_piece(f, err);
            if (r < 0)
                return r;
        }
        assert(f->came <= f->asked && f->asked <= f->n_bytes);
        if (f->came == f->n_bytes)
            return 1;
        r = take_piece(f, err);
        if (r <= 0)
            return r;
    }
    return 0;
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
    int write_failed; /* error of the cache's disk, not of the shard */
} Unpack;

static int unpack_block(ShardFetch *f, Unpack *u, size_t n_in, Error *err)
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
        int r = shard_hashes_add(&f->hashes, f->info.raw_name, u->out, out.pos, err);
        if (r < 0)
            return r;
        u->write_failed = write_at(f->raw_fd, u->out, out.pos, u->n_out);
        if (u->write_failed < 0)
            return error_errno(err, u->write_failed, "cannot unpack %s", f->uri);
        u->n_out += out.pos;
        full = out.pos == out.size;
    }
    return 0;
}

static int unpack_blocks(ShardFetch *f, Unpack *u, Error *err)
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

static int unpack_file(ShardFetch *f, int *ret_disk, Error *err)
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

/* ---- verifying and handing over ---- */

/* Verifies the bytes that arrived. If they are compressed, begins the hashes of the unpacked bytes. */
static int verify(ShardFetch *f, Error *err)
{
    int r = shard_hashes_end(&f->hashes, f->source, f->uri,
                             f->zipped ? f->info.zip_hashes : f->info.raw_hashes, err);
    return r == 0 && f->zipped
               ? shard_hashes_begin(&f->hashes, f->source, f->memory ? NULL : &f->info, err)
               : r;
}

static int verify_unpacked(ShardFetch *f, Error *err)
{
    return shard_hashes_end(&f->hashes, f->source, f->info.raw_name, f->info.raw_hashes, err);
}

static int finish_memory(ShardFetch *f, Shard **ret, Error *err)
{
    int r = 0;
    if (f->zipped) {
        char *raw = NULL;
        r = unpack_memory(f, &raw, err);
        if (r < 0)
            return r;
        free(f->memory);
        f->memory = raw;
        r = shard_hashes_add(&f->hashes, f->info.raw_name, raw, f->info.raw_bytes, err);
        if (r == 0)
            r = verify_unpacked(f, err);
    }
    if (r == 0)
        r = shard_of_memory(f->source, &f->info, f->memory, ret, err);
    if (r < 0)
        return r;
    f->memory = NULL; /* the shard owns the memory now */
    return 1;
}

static int finish_file(ShardFetch *f, Shard **ret, Error *err)
{
    const ShardSource *s = f->source;
    int disk = 0, r = 0;
    if (f->zipped) {
        r = unpack_file(f, &disk, err);
        f->zip_fd = cache_abandon(s->cache, f->zip_name, f->zip_fd);
        if (r == 0)
            r = verify_unpacked(f, err);
    }
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
    f->raw_fd = -EBADF; /* the shard owns the descriptor now */
    shard_keep_sample_hashes(*ret, &f->hashes);
    return 1;
}

int shard_fetch_poll(ShardFetch *f, uint64_t *wake_usec, Shard **ret, Error *err)
{
    int r = f->begun ? 0 : begin(f, wake_usec, ret, err);
    if (r != 0 || !f->begun)
        return r;
    assert((f->memory != NULL) != (f->raw_fd >= 0)); /* the fetch has one destination */
    r = bring(f, err);
    if (r <= 0)
        return r;
    r = verify(f, err);
    if (r < 0)
        return r;
    r = f->memory ? finish_memory(f, ret, err) : finish_file(f, ret, err);
    if (r == 0)
        *wake_usec = 0; /* the cache failed: fetch again, into memory */
    return r;
}

int shard_fetch(const ShardSource *source, uint64_t number, const IndexShard *info, Shard **ret,
                Error *err)
{
    _cleanup_(shard_fetch_freep) ShardFetch *f = NULL;
    int r = shard_fetch_new(source, number, info, false, &f, err);
    while (r == 0) {
        uint64_t seen = event_count_read(source->events), wake_usec = UINT64_MAX;
        r = shard_fetch_poll(f, &wake_usec, ret, err);
        if (r == 0)
            event_count_wait(source->events, seen, wake_usec);
    }
    return r < 0 ? r : 0;
}
