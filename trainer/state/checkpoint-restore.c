/* checkpoint-restore.c - a manifest's objects become a TrainState, each verified on the way.
 *
 * Weight files are read by every rank, in pieces, and their whole hash is compared. Moments are
 * read by their owner. EMA files are read in ranges, so their own hashes cannot be compared; the
 * hash of each chunk, computed at the end from what lies in device memory, covers them and the
 * upload as well.
 */
#include "trainer/state/manifest.h"
#include "trainer/state/safetensors.h"

#include <string.h>

enum { PIECE_BYTES = 16 << 20, SMALL_BYTES_MAX = 64 << 20 };

typedef struct Restore {
    Store *store;
    const Manifest *manifest;
    const ParameterList *parameters;
    char folder[CHECKPOINT_FOLDER_MAX];
    char *piece; /* owned: PIECE_BYTES, or one chunk's moments if they are larger */
    size_t piece_bytes;
    Error *err;
} Restore;

static void restore_clear(Restore *rs) { free(rs->piece); }

static int restore_open(Restore *rs)
{
    checkpoint_name_format(&rs->manifest->name, rs->folder);
    rs->piece_bytes =
        MAX((size_t)PIECE_BYTES, (size_t)rs->manifest->layout.chunk_elements * 2 * sizeof(float));
    rs->piece = malloc(rs->piece_bytes);
    if (!rs->piece)
        return error_set(rs->err, -ENOMEM, "restore of %s: out of memory", rs->folder);
    return 0;
}

static void key_of(const Restore *rs, const ObjectRecord *o,
                   char key[static CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX])
{
    (void)snprintf(key, CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX, "%s/%s", rs->folder, o->key);
}

static int bad_object(const Restore *rs, const ObjectRecord *o, Hash found)
{
    char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    return error_set(rs->err, -EBADMSG, "%s/%s/%s: hash %s, the manifest says %s",
                     store_uri(rs->store), rs->folder, o->key, hash_format(found, got),
                     hash_format(o->hash, want));
}

/* A missing or short object is a checkpoint that does not verify. */
static int read_piece(const Restore *rs, const ObjectRecord *o, uint64_t offset, size_t n_bytes,
                      void *to)
{
    char key[CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX];
    key_of(rs, o, key);
    int r = store_get_range(rs->store, key, offset, n_bytes, to, rs->err);
    if (r == -ENOENT && rs->err)
        rs->err->code = -EBADMSG;
    return r == -ENOENT ? -EBADMSG : r;
}

static int check_size(const Restore *rs, const ObjectRecord *o)
{
    char key[CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX];
    key_of(rs, o, key);
    uint64_t n_bytes;
    int r = store_head(rs->store, key, &n_bytes, rs->err);
    if (r == -ENOENT)
        return error_set(rs->err, -EBADMSG, "%s/%s: missing, the manifest lists it",
                         store_uri(rs->store), key);
    if (r < 0)
        return r;
    if (n_bytes != o->n_bytes)
        return error_set(rs->err, -EBADMSG, "%s/%s: %llu bytes, the manifest says %llu",
                         store_uri(rs->store), key, (unsigned long long)n_bytes,
                         (unsigned long long)o->n_bytes);
    return 0;
}

static int check_small(const Restore *rs, const ObjectRecord *o)
{
    int r = check_size(rs, o);
    if (r < 0)
        return r;
    if (o->n_bytes > SMALL_BYTES_MAX)
        return error_set(rs->err, -EBADMSG, "%s/%s/%s: too large", store_uri(rs->store), rs->folder,
                         o->key);
    _cleanup_free_ char *text = malloc((size_t)o->n_bytes + 1);
    if (!text)
        return error_set(rs->err, -ENOMEM, "%s: out of memory", o->key);
    r = read_piece(rs, o, 0, (size_t)o->n_bytes, text);
    if (r < 0)
        return r;
    Hash found = hash_bytes(text, (size_t)o->n_bytes);
    return hash_equal(found, o->hash) ? 0 : bad_object(rs, o, found);
}

/* Where restored weights go: device memory of a state, or plain host memory. */
typedef struct Target {
    Device *device; /* NULL: host */
    float *flat;
} Target;

static void target_write(const Target *t, uint64_t byte, const void *from, size_t n_bytes)
{
    char *to = (char *)t->flat + byte;
    if (t->device)
        device_upload(t->device, to, from, n_bytes);
    else
        memcpy(to, from, n_bytes);
}

/* *ret_bytes: where the data begin. hasher may be NULL. */
static int check_header(const Restore *rs, const ObjectRecord *o, Hasher *hasher,
                        uint64_t *ret_bytes)
{
    int r = check_size(rs, o);
    if (r < 0)
        return r;
    /* manifest_parse() saw to it that there is a header in front of the data. */
    const uint64_t n_bytes = o->n_bytes - (uint64_t)o->count * sizeof(float);
    char source[CHECKPOINT_URI_MAX];
    (void)snprintf(source, sizeof(source), "%s/%s/%s", store_uri(rs->store), rs->folder, o->key);
    if (n_bytes > SAFETENSORS_HEADER_MAX + sizeof(uint64_t))
        return error_set(rs->err, -EBADMSG, "%s: too large a header", source);

    _cleanup_free_ char *header = malloc((size_t)n_bytes);
    if (!header)
        return error_set(rs->err, -ENOMEM, "%s: out of memory", source);
    r = read_piece(rs, o, 0, (size_t)n_bytes, header);
    if (r < 0)
        return r;
    if (hasher)
        hasher_update(hasher, header, (size_t)n_bytes);
    *ret_bytes = n_bytes;
    return weight_file_check(source, rs->parameters, o, header, (size_t)n_bytes, rs->err);
}

static int restore_weight_file(const Restore *rs, const ObjectRecord *o, const Target *target)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    if (hasher_new(&hasher) < 0)
        return error_set(rs->err, -ENOMEM, "%s: out of memory", o->key);
    uint64_t header_bytes;
    int r = check_header(rs, o, hasher, &header_bytes);
    if (r < 0)
        return r;

    const uint64_t data_bytes = (uint64_t)o->count * sizeof(float);
    for (uint64_t at = 0; at < data_bytes;) {
        size_t n = (size_t)MIN(data_bytes - at, (uint64_t)rs->piece_bytes);
        r = read_piece(rs, o, header_bytes + at, n, rs->piece);
        if (r < 0)
            return r;
        hasher_update(hasher, rs->piece, n);
        target_write(target, (uint64_t)o->first * sizeof(float) + at, rs->piece, n);
        if (target->device) { /* the piece is used again */
            r = device_synchronise(target->device, rs->err);
            if (r < 0)
                return r;
        }
        at += n;
    }
    Hash found = hasher_digest(hasher);
    return hash_equal(found, o->hash) ? 0 : bad_object(rs, o, found);
}

static int restore_weights(const Restore *rs, ObjectKind kind, const Target *target)
{
    for (size_t i = 0; i < rs->manifest->n_objects; i++) {
        const ObjectRecord *o = &rs->manifest->objects[i];
        if (o->kind != kind)
            continue;
        int r = restore_weight_file(rs, o, target);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- chunks ---- */

static int restore_moments(const Restore *rs, const ObjectRecord *o, TrainState *state)
{
    int r = check_size(rs, o);
    if (r < 0)
        return r;
    assert(o->n_bytes <= rs->piece_bytes); /* two chunks, as manifest_parse() checked */
    r = read_piece(rs, o, 0, (size_t)o->n_bytes, rs->piece);
    if (r < 0)
        return r;
    Hash found = hash_bytes(rs->piece, (size_t)o->n_bytes);
    if (!hash_equal(found, o->hash))
        return bad_object(rs, o, found);

    const size_t half = (size_t)o->count * sizeof(float);
    device_upload(state->device, train_state_chunk(state, state->m, o->part), rs->piece, half);
    device_upload(state->device, train_state_chunk(state, state->v, o->part), rs->piece + half,
                  half);
    return device_synchronise(state->device, rs->err);
}

/* The chunk's elements, from the one or more EMA files that hold them. */
static int restore_ema(const Restore *rs, int64_t chunk, TrainState *state)
{
    const int64_t begin = chunk_begin(&state->layout, chunk);
    const int64_t end = chunk_begin(&state->layout, chunk + 1);
    for (size_t i = 0; i < rs->manifest->n_objects; i++) {
        const ObjectRecord *o = &rs->manifest->objects[i];
        const int64_t from = MAX(begin, o->first), to = MIN(end, o->first + o->count);
        if (o->kind != OBJECT_EMA_WEIGHTS || from >= to)
            continue;
        const uint64_t data_begin = o->n_bytes - (uint64_t)o->count * sizeof(float);
        int r = read_piece(rs, o, data_begin + (uint64_t)(from - o->first) * sizeof(float),
                           (size_t)(to - from) * sizeof(float),
                           rs->piece + (size_t)(from - begin) * sizeof(float));
        if (r < 0)
            return r;
    }
    device_upload(state->device, train_state_chunk(state, state->ema, chunk), rs->piece,
                  (size_t)(end - begin) * sizeof(float));
    return device_synchronise(state->device, rs->err);
}

static int verify_chunk(const Restore *rs, int64_t chunk, const TrainState *state)
{
    Hash found;
    int r = train_state_chunk_hash(state, chunk, &found, rs->err);
    if (r < 0)
        return r;
    char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    if (!hash_equal(found, rs->manifest->chunks[chunk]))
        return error_set(rs->err, -EBADMSG,
                         "%s/%s: chunk %lld of the state has hash %s, the manifest says %s",
                         store_uri(rs->store), rs->folder, (long long)chunk,
                         hash_format(found, got), hash_format(rs->manifest->chunks[chunk], want));
    return 0;
}

static int restore_chunks(const Restore *rs, TrainState *state)
{
    for (size_t i = 0; i < rs->manifest->n_objects; i++) {
        const ObjectRecord *o = &rs->manifest->objects[i];
        if (o->kind != OBJECT_MOMENTS || !train_state_chunk(state, state->m, o->part))
            continue;
        int r = restore_moments(rs, o, state);
        if (r == 0 && rs->manifest->ema)
            r = restore_ema(rs, o->part, state);
        if (r == 0)
            r = verify_chunk(rs, o->part, state);
        if (r < 0)
            return r;
    }
    return 0;
}

/* What other programs read beside the weights, and the headers of the EMA files: nothing here
 * needs them, but a checkpoint verifies as a whole. */
static int check_rest(const Restore *rs)
{
    for (size_t i = 0; i < rs->manifest->n_objects; i++) {
        const ObjectRecord *o = &rs->manifest->objects[i];
        uint64_t header_bytes;
        int r = 0;
        if (o->kind == OBJECT_EMA_WEIGHTS)
            r = check_header(rs, o, NULL, &header_bytes);
        else if (o->kind != OBJECT_WEIGHTS && o->kind != OBJECT_MOMENTS)
            r = check_small(rs, o);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_model(const Restore *rs, int64_t n_elements, int64_t chunk_elements)
{
    const ChunkLayout *l = &rs->manifest->layout;
    if (l->n_elements != n_elements || l->chunk_elements != chunk_elements)
        return error_set(rs->err, -EBADMSG,
                         "%s/%s: a model of %lld elements in chunks of %lld, this job's has %lld "
                         "in chunks of %lld",
                         store_uri(rs->store), rs->folder, (long long)l->n_elements,
                         (long long)l->chunk_elements, (long long)n_elements,
                         (long long)chunk_elements);
    if (rs->manifest->n_tensors != (int64_t)rs->parameters->n_items)
        return error_set(rs->err, -EBADMSG, "%s/%s: %lld tensors, this job's model has %zu",
                         store_uri(rs->store), rs->folder, (long long)rs->manifest->n_tensors,
                         rs->parameters->n_items);
    return 0;
}

int checkpoint_restore(Store *store, const Manifest *manifest, TrainState *state, Error *err)
{
    _cleanup_(restore_clear) Restore rs = {.store = store,
                                           .manifest = manifest,
                                           .parameters = state->parameters,
                                           .err = err};
    int r = restore_open(&rs);
    if (r < 0)
        return r;
    r = check_model(&rs, state->layout.n_elements, state->layout.chunk_elements);
    if (r < 0)
        return r;
    if (manifest->ema && !state->ema)
        return error_set(err, -EBADMSG, "%s/%s: it holds an EMA, this job has none",
                         store_uri(store), rs.folder);

    uint32_t *maxima = state->scalars.maxima;
    memcpy(maxima, manifest->scalars.maxima,
           (size_t)manifest->n_tensors * MAXIMA_WINDOW * sizeof(*maxima));
    state->scalars = manifest->scalars;
    state->scalars.maxima = maxima;
    state->ema_active = manifest->ema;

    r = check_rest(&rs);
    if (r == 0)
        r = restore_weights(&rs, OBJECT_WEIGHTS,
                            &(Target){.device = state->device, .flat = state->weights});
    return r < 0 ? r : restore_chunks(&rs, state);
}

int checkpoint_restore_weights(Store *store, const Manifest *manifest, bool ema,
                               const ParameterList *parameters, float *flat, Error *err)
{
    _cleanup_(restore_clear)
        Restore rs = {.store = store, .manifest = manifest, .parameters = parameters, .err = err};
    int r = restore_open(&rs);
    if (r < 0)
        return r;
    r = check_model(&rs, parameters->n_elements, manifest->layout.chunk_elements);
    if (r < 0)
        return r;
    if (ema && !manifest->ema)
        return error_set(err, -ENOENT, "%s/%s: it holds no EMA", store_uri(store), rs.folder);
    return restore_weights(&rs, ema ? OBJECT_EMA_WEIGHTS : OBJECT_WEIGHTS, &(Target){.flat = flat});
}
