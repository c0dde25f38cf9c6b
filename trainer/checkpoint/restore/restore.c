/* SPDX-License-Identifier: Apache-2.0 */
/* restore.c - reads a manifest's objects into a TrainState, and verifies each of them.
 *
 * The reads are planned as parts, which are ranges of objects in their order; a Reader reads many pieces of them ahead,
 * while the oldest piece is hashed and uploaded. Weight files are read by every rank, and their whole hash is compared.
 * Moments are read by their owner. EMA files are read in ranges, so that each rank reads only its own chunks: their
 * headers have a hash, and the hash of each chunk, computed at its end from device memory, covers the rest and the
 * upload as well.
 *
 * Data that do not verify are read again from the part that they began with. If they came from local copies, they are
 * first read from the store instead. If the store gives bytes with the same wrong hash TRIES times in a row, the bytes
 * in the store are wrong. Bytes that differ from read to read were changed on the way; they are read up to NOISY_TRIES
 * times.
 */
#include "trainer/checkpoint/restore/plan.h"

#include "base/log.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/weight-file.h"
#include "trainer/state/device-patience.h"

#include <string.h>

enum { TRIES = 3, NOISY_TRIES = 12 };
static const uint64_t PIECE_TIMEOUT_USEC = 60 * USEC_PER_SEC; /* timeout for sending a piece */

/* The destination of restored weights: device memory of a state, or plain host memory. */
typedef struct RestoreTarget {
    Device *device; /* NULL: host memory */
    float *flat;
} RestoreTarget;

typedef struct Restore {
    RestorePlan plan;
    const ParameterList *parameters;
    TrainState *state; /* NULL: only weights */
    RestoreTarget weights;
    /* the restore has failed by an error of the device, not because of the bytes that were read */
    bool device_failed;
    Hasher *hasher;                  /* owned; of the object being read */
    char *header;                    /* owned; of the weight file being read */
    char *text;                      /* buffer for the only PART_TEXT; NULL: texts are not kept */
    LocalFile mended;                /* a new local copy of the object being read */
    size_t failed_part;              /* index of the part whose failures are counted */
    Hash found;                      /* hash of the object or chunk checked last */
    Hash wrong;                      /* hash of the object or chunk that failed last */
    int tries;                       /* how often in a row failed_part had the hash `wrong` */
    int all_tries;                   /* how often failed_part had any wrong hash */
    uint64_t n_bytes, n_local_bytes; /* bytes read: in all, and from local copies */
    Error *err;
} Restore;

static void restore_clear(Restore *rs)
{
    plan_clear(&rs->plan);
    free(rs->header);
    (void)hasher_free(rs->hasher);
    (void)local_file_close(&rs->mended, false, NULL); /* an unfinished copy is removed */
}

/* ---- storing a piece ---- */

static void target_write(const RestoreTarget *t, uint64_t byte, const void *from, size_t n_bytes)
{
    char *to = (char *)t->flat + byte;
    if (t->device)
        device_send(t->device, LANE_IN, to, from, n_bytes);
    else
        memcpy(to, from, n_bytes);
}

/* Writes bytes [at, at + n_bytes) of one chunk's moments: all of m, then all of v. */
static void take_moments(const Restore *rs, const ObjectRecord *o, uint64_t at, const char *from,
                         size_t n_bytes)
{
    TrainState *state = rs->state;
    const uint64_t half = (uint64_t)o->count * sizeof(float);
    const RestoreTarget m = {state->device, train_state_chunk(state, state->m, o->part)};
    const RestoreTarget v = {state->device, train_state_chunk(state, state->v, o->part)};
    const size_t n_m = at < half ? (size_t)MIN(half - at, (uint64_t)n_bytes) : 0;
    if (n_m > 0)
        target_write(&m, at, from, n_m);
    if (n_m < n_bytes)
        target_write(&v, at + n_m - half, from + n_m, n_bytes - n_m);
}

static void take_ema(const Restore *rs, const Part *part, uint64_t at, const char *from,
                     size_t n_bytes)
{
    TrainState *state = rs->state;
    const RestoreTarget ema = {state->device, train_state_chunk(state, state->ema, part->chunk)};
    const int64_t first = part->first - chunk_begin(&state->layout, part->chunk);
    target_write(&ema, (uint64_t)first * sizeof(float) + at, from, n_bytes);
}

/* Begins a new local copy. Only an object that is read whole can replace a bad copy. */
static void begin_mending(Restore *rs, const Part *part, const char *key)
{
    Error err = ERROR_INIT;
    (void)local_file_close(&rs->mended, false, NULL); /* an earlier copy was not finished */
    if (part->mends && part->object->kind != OBJECT_EMA_WEIGHTS &&
        local_file_open(rs->plan.local, key, &rs->mended, &err) < 0)
        log_warning("%s", err.text);
}

static void end_mending(Restore *rs)
{
    Error err = ERROR_INIT;
    if (local_file_close(&rs->mended, true, &err) < 0)
        log_warning("%s", err.text);
}

/* Begins a new object: makes its hasher and, for a weight file, a buffer for its header. */
static int begin_part(Restore *rs, const Part *part, const ReaderRange *range)
{
    if (part->kind == PART_DATA || part->kind == PART_EMA)
        return 0;
    begin_mending(rs, part, range->key);
    rs->hasher = hasher_free(rs->hasher);
    if (hasher_new(&rs->hasher) < 0)
        return error_set(rs->err, -ENOMEM, "%s: out of memory", part->object->key);
    if (part->kind == PART_HEADER) {
        free(rs->header);
        rs->header = malloc((size_t)range->n_bytes);
        if (!rs->header)
            return error_set(rs->err, -ENOMEM, "%s: out of memory", part->object->key);
    }
    return 0;
}

/* Starts to send the piece to its destination. */
static void send_piece(const Restore *rs, const Part *part, const ReaderPiece *piece)
{
    switch (part->kind) {
    case PART_TEXT:
        if (rs->text)
            memcpy(rs->text + piece->at, piece->data, piece->n_bytes);
        return;
    case PART_HEADER:
        memcpy(rs->header + piece->at, piece->data, piece->n_bytes);
        return;
    case PART_DATA:
        target_write(&rs->weights, (uint64_t)part->first * sizeof(float) + piece->at, piece->data,
                     piece->n_bytes);
        return;
    case PART_MOMENTS:
        take_moments(rs, part->object, piece->at, piece->data, piece->n_bytes);
        return;
    case PART_EMA:
        take_ema(rs, part, piece->at, piece->data, piece->n_bytes);
        return;
    }
    assert(false);
}

/* Sends and hashes the piece. The device has received it when this function returns, so that the piece's memory can be
 * used again. */
static int take_piece(Restore *rs, const Part *part, const ReaderPiece *piece)
{
    send_piece(rs, part, piece);
    if (part->kind != PART_EMA)
        hasher_update(rs->hasher, piece->data, piece->n_bytes);
    if (rs->mended.path && local_file_write(&rs->mended, piece->data, piece->n_bytes, NULL) < 0)
        (void)local_file_close(&rs->mended, false, NULL); /* the disk is full: no copy is made */
    Device *device = rs->weights.device;
    if (!device)
        return 0;
    int r = device_await(device, device_fence(device, LANE_IN), device_patience(PIECE_TIMEOUT_USEC),
                         rs->err);
    rs->device_failed = r < 0;
    return r;
}

/* ---- verifying a part ---- */

static int check_object(Restore *rs, const ObjectRecord *o)
{
    char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    const Hash found = rs->found = hasher_digest(rs->hasher);
    if (hash_equal(found, o->hash))
        return 0;
    return error_set(rs->err, -EBADMSG,
                     "%s/%s/%s: bytes 0 to %llu have hash %s, the manifest says %s",
                     store_uri(rs->plan.store), rs->plan.folder, o->key,
                     (unsigned long long)(o->n_bytes - 1), hash_format(found, got),
                     hash_format(o->hash, want));
}

/* Checks the header by its own hash: the rest of an EMA file is read in ranges, so the hash of the whole file cannot be
 * compared. */
static int check_header(Restore *rs, const ObjectRecord *o)
{
    char source[CHECKPOINT_URI_MAX], want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    const size_t n_bytes = (size_t)object_header_bytes(o);
    const Hash found = rs->found = hash_bytes(rs->header, n_bytes);
    if (!hash_equal(found, o->header))
        return error_set(rs->err, -EBADMSG,
                         "%s/%s/%s: its header, bytes 0 to %zu, has hash %s, the manifest says %s",
                         store_uri(rs->plan.store), rs->plan.folder, o->key, n_bytes - 1,
                         hash_format(found, got), hash_format(o->header, want));
    (void)snprintf(source, sizeof(source), "%s/%s/%s", store_uri(rs->plan.store), rs->plan.folder,
                   o->key);
    return weight_file_check(source, rs->parameters, o, rs->header, n_bytes, rs->err);
}

/* Checks the chunk's hash after the chunk's last part: an EMA part or, without an EMA, the moments. */
static int check_chunk(Restore *rs, const Part *part, const ReaderRange *range)
{
    Hash found = {0};
    int r = train_state_chunk_hash(rs->state, part->chunk, &found, rs->err);
    rs->found = found;
    rs->device_failed = r < 0;
    if (r < 0 || hash_equal(found, rs->plan.manifest->chunks[part->chunk]))
        return r;
    char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    return error_set(rs->err, -EBADMSG,
                     "%s/%s/%s: with bytes %llu to %llu chunk %lld of the state has hash %s, the "
                     "manifest says %s",
                     store_uri(rs->plan.store), rs->plan.folder, part->object->key,
                     (unsigned long long)range->offset,
                     (unsigned long long)(range->offset + range->n_bytes - 1),
                     (long long)part->chunk, hash_format(found, got),
                     hash_format(rs->plan.manifest->chunks[part->chunk], want));
}

static int end_part(Restore *rs, const Part *part, const ReaderRange *range)
{
    int r = 0;
    if (part->kind == PART_HEADER)
        r = check_header(rs, part->object);
    else if (part->kind != PART_EMA)
        r = check_object(rs, part->object);
    if (r == 0 && part->kind != PART_HEADER)
        end_mending(rs);
    if (r == 0 && part->ends_chunk)
        r = check_chunk(rs, part, range);
    rs->n_bytes += range->n_bytes;
    rs->n_local_bytes += range->local ? range->n_bytes : 0;
    return r;
}

/* ---- reading again ---- */

/* From now on, reads every part of this object from the store. */
static void leave_local(Restore *rs, const ObjectRecord *o, const char *key)
{
    checkpoint_local_drop(rs->plan.local, key);
    for (size_t i = 0; i < rs->plan.n_parts; i++)
        if (rs->plan.parts[i].object == o) {
            rs->plan.ranges[i].local = false;
            rs->plan.parts[i].mends = true;
        }
}

/* Counts a failure of the part. Returns whether the store has given the same wrong bytes often enough, or different
 * wrong bytes too often. */
static bool is_final(Restore *rs, size_t part)
{
    const bool again = rs->all_tries > 0 && rs->failed_part == part;
    rs->tries = again && hash_equal(rs->found, rs->wrong) ? rs->tries + 1 : 1;
    rs->all_tries = again ? rs->all_tries + 1 : 1;
    rs->failed_part = part;
    rs->wrong = rs->found;
    return rs->tries >= TRIES || rs->all_tries >= NOISY_TRIES;
}

/* Returns 0 if the reader has gone back to where the part begins, otherwise r. */
static int read_again(Restore *rs, Reader *reader, size_t index, int r)
{
    const size_t again = rs->plan.parts[index].again;
    bool was_local = false;
    if (r == -ENOMEM || rs->device_failed)
        return r; /* this error does not concern the bytes that were read */
    for (size_t i = again; i <= index; i++)
        if (rs->plan.ranges[i].local) {
            leave_local(rs, rs->plan.parts[i].object, rs->plan.ranges[i].key);
            was_local = true;
        }
    if (!was_local && r != -EBADMSG)
        return r; /* the store itself has already retried */
    if (!was_local && is_final(rs, again))
        return r;
    log_warning("read again%s: %s", was_local ? " from the store, the local copy is bad" : "",
                rs->err->text);
    reader_rewind(reader, again);
    return 0;
}

/* Turns -ENOENT into -EBADMSG: a checkpoint with a missing object does not verify. */
static int missing_is_bad(const Restore *rs, int r)
{
    if (r == -ENOENT)
        rs->err->code = r = -EBADMSG;
    return r;
}

static int take_part_of(Restore *rs, const ReaderPiece *piece)
{
    const Part *part = &rs->plan.parts[piece->range];
    const ReaderRange *range = &rs->plan.ranges[piece->range];
    int r = piece->at == 0 ? begin_part(rs, part, range) : 0;
    if (r == 0)
        r = take_piece(rs, part, piece);
    if (r == 0 && piece->at + piece->n_bytes == range->n_bytes)
        r = end_part(rs, part, range);
    return r;
}

static int read_parts(Restore *rs)
{
    _cleanup_(reader_freep) Reader *reader = NULL;
    int r = plan_check_sizes(&rs->plan);
    if (r == 0)
        r = reader_new(rs->plan.store, rs->plan.local, rs->weights.device, rs->plan.ranges,
                       rs->plan.n_parts, &reader, rs->err);
    if (r < 0)
        return r;
    if (rs->weights.device) /* earlier operations must not overwrite restored bytes */
        device_wait(rs->weights.device, LANE_IN, device_fence(rs->weights.device, LANE_COMPUTE));
    for (;;) {
        ReaderPiece piece;
        r = reader_next(reader, &piece, rs->err);
        if (r == 0)
            break;
        r = r > 0 ? take_part_of(rs, &piece) : missing_is_bad(rs, r);
        if (r < 0)
            r = read_again(rs, reader, piece.range, r);
        if (r < 0)
            return r;
    }
    if (rs->plan.local)
        log_info("%.1f of %.1f MB came from this node's copies", (double)rs->n_local_bytes / 1e6,
                 (double)rs->n_bytes / 1e6);
    return 0;
}

/* ---- whole restores ---- */

static int check_model(const Restore *rs, int64_t n_elements, int64_t chunk_elements, bool has_ema)
{
    char source[CHECKPOINT_URI_MAX];
    const ManifestNetwork network = {.n_elements = n_elements,
                                     .n_tensors = (int64_t)rs->parameters->n_items,
                                     .chunk_elements = chunk_elements,
                                     .keeps_ema = has_ema};
    (void)snprintf(source, sizeof(source), "%s/%s", store_uri(rs->plan.store), rs->plan.folder);
    return manifest_check_network(rs->plan.manifest, source, &network, rs->err);
}

static int restore_state(Restore *rs)
{
    TrainState *state = rs->state;
    int r = check_model(rs, state->layout.n_elements, state->layout.chunk_elements, state->ema);
    if (r < 0)
        return r;

    uint32_t *maxima = state->scalars.maxima;
    memcpy(maxima, rs->plan.manifest->scalars.maxima,
           (size_t)rs->plan.manifest->n_tensors * MAXIMA_WINDOW * sizeof(*maxima));
    state->scalars = rs->plan.manifest->scalars;
    state->scalars.maxima = maxima;
    state->ema_active = rs->plan.manifest->ema;

    train_state_before_write(state);
    r = plan_state(&rs->plan, state);
    if (r == 0)
        r = read_parts(rs);
    train_state_release_staging(state);
    return r;
}

int checkpoint_restore(Store *store, const CheckpointLocal *local, const Manifest *manifest,
                       TrainState *state, Error *err)
{
    Error scratch;
    _cleanup_(restore_clear)
        Restore rs = {.parameters = state->parameters,
                      .state = state,
                      .weights = {.device = state->device, .flat = state->weights},
                      .mended = LOCAL_FILE_INIT,
                      .err = err ?: &scratch};
    plan_open(store, local, manifest, rs.err, &rs.plan);
    return restore_state(&rs);
}

int checkpoint_restore_plans(Store *store, const CheckpointLocal *local, const Manifest *manifest,
                             char **ret, Error *err)
{
    Error scratch;
    _cleanup_free_ char *text = NULL;
    _cleanup_(restore_clear) Restore rs = {.mended = LOCAL_FILE_INIT, .err = err ?: &scratch};
    plan_open(store, local, manifest, rs.err, &rs.plan);
    int r = plan_device_plans(&rs.plan);
    if (r < 0 || rs.plan.n_parts == 0) {
        *ret = NULL;
        return r;
    }
    text = rs.text = calloc((size_t)rs.plan.ranges[0].n_bytes + 1, 1); /* one more byte for a NUL */
    if (!text)
        return error_set(rs.err, -ENOMEM, "the plans of %s: out of memory", rs.plan.folder);
    r = read_parts(&rs);
    if (r == 0)
        *ret = TAKE_PTR(text);
    return r;
}

int checkpoint_restore_weights(Store *store, const Manifest *manifest, bool ema,
                               const ParameterList *parameters, Device *device, float *flat,
                               Error *err)
{
    Error scratch;
    _cleanup_(restore_clear) Restore rs = {.parameters = parameters,
                                           .weights = {.device = device, .flat = flat},
                                           .mended = LOCAL_FILE_INIT,
                                           .err = err ?: &scratch};
    plan_open(store, NULL, manifest, rs.err, &rs.plan);
    int r = check_model(&rs, parameters->n_elements, manifest->layout.chunk_elements, true);
    if (r < 0)
        return r;
    if (ema && !manifest->ema)
        return error_set(rs.err, -ENOENT, "%s/%s: it holds no EMA", store_uri(store),
                         rs.plan.folder);
    r = plan_weights(&rs.plan, ema ? OBJECT_EMA_WEIGHTS : OBJECT_WEIGHTS);
    return r < 0 ? r : read_parts(&rs);
}
