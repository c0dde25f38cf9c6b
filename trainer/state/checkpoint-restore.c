/* checkpoint-restore.c - a manifest's objects become a TrainState, each verified on the way.
 *
 * What must be read is planned as parts, ranges of objects in their order; a Reader keeps many
 * pieces of them under way while the oldest is hashed and uploaded. Weight files are read by every
 * rank, and their whole hash is compared. Moments are read by their owner. EMA files are read in
 * ranges, so their own hashes cannot be compared; the hash of each chunk, computed at its end from
 * what lies in device memory, covers them and the upload as well.
 *
 * What does not verify is read again from the part it began with: first without the local copies
 * that it came from, then at most TRIES times in all.
 */
#include "trainer/state/checkpoint-reader.h"

#include "base/log.h"
#include "trainer/state/manifest.h"
#include "trainer/state/safetensors.h"

#include <string.h>

enum { TRIES = 3, SMALL_BYTES_MAX = 64 << 20, LISTED_MAX = MANIFEST_OBJECTS_MAX };

typedef enum PartKind {
    PART_TEXT,    /* config or index: nothing here needs it, but a checkpoint verifies as a whole */
    PART_HEADER,  /* of a weight file */
    PART_DATA,    /* the rest of it; the part before is its header */
    PART_MOMENTS, /* of an own chunk */
    PART_EMA,     /* elements of an own chunk */
} PartKind;

typedef struct Part {
    PartKind kind;
    const ObjectRecord *object;
    int64_t first;   /* element where the data go */
    int64_t chunk;   /* of moments and EMA */
    bool ends_chunk; /* it is complete then */
    bool mends;      /* the local copy was bad: what is read replaces it */
    size_t again;    /* index of the part to begin with when this one does not verify */
} Part;

/* Where restored weights go: device memory of a state, or plain host memory. */
typedef struct Target {
    Device *device; /* NULL: host */
    float *flat;
} Target;

typedef struct Restore {
    Store *store;
    const CheckpointLocal *local;
    const Manifest *manifest;
    const ParameterList *parameters;
    TrainState *state; /* NULL: weights alone */
    Target weights;
    char folder[CHECKPOINT_FOLDER_MAX];
    /* the plan; owned */
    Part *parts;
    ReaderRange *ranges; /* one a part */
    size_t n_parts, room;
    /* the way through it; owned */
    Hasher *hasher; /* of the object being read */
    char *header;
    LocalFile mended;   /* a new local copy of that object */
    size_t failed_part; /* the one that `tries` counts */
    int tries;
    uint64_t n_bytes, n_local_bytes; /* read, and of them from local copies */
    Error *err;
} Restore;

static void restore_clear(Restore *rs)
{
    free(rs->parts);
    free(rs->ranges);
    free(rs->header);
    (void)hasher_free(rs->hasher);
    (void)local_file_close(&rs->mended, false, NULL); /* nothing to keep */
}

static void key_of(const Restore *rs, const ObjectRecord *o, char key[static READER_KEY_MAX])
{
    (void)snprintf(key, READER_KEY_MAX, "%s/%s", rs->folder, o->key);
}

/* ---- the plan ---- */

static int add_part(Restore *rs, Part part, uint64_t offset, uint64_t n_bytes)
{
    if (rs->n_parts == rs->room) {
        rs->room = MAX(2 * rs->room, (size_t)64);
        Part *parts = reallocarray(rs->parts, rs->room, sizeof(*parts));
        rs->parts = parts ?: rs->parts;
        ReaderRange *ranges = reallocarray(rs->ranges, rs->room, sizeof(*ranges));
        rs->ranges = ranges ?: rs->ranges;
        if (!parts || !ranges)
            return error_set(rs->err, -ENOMEM, "restore of %s: out of memory", rs->folder);
    }
    ReaderRange *range = &rs->ranges[rs->n_parts];
    *range = (ReaderRange){.offset = offset, .n_bytes = n_bytes};
    key_of(rs, part.object, range->key);
    const int has = checkpoint_local_has(rs->local, range->key, part.object->n_bytes);
    range->local = has > 0;
    part.mends = has < 0;
    rs->parts[rs->n_parts++] = part;
    return 0;
}

/* manifest_parse() saw to it that there is a header in front of the data. */
static uint64_t header_bytes(const ObjectRecord *o)
{
    return o->n_bytes - (uint64_t)o->count * sizeof(float);
}

static int refuse_size(const Restore *rs, const ObjectRecord *o)
{
    return error_set(rs->err, -EBADMSG, "%s/%s/%s: too large a header or text",
                     store_uri(rs->store), rs->folder, o->key);
}

static int plan_text(Restore *rs, const ObjectRecord *o)
{
    if (o->n_bytes > SMALL_BYTES_MAX)
        return refuse_size(rs, o);
    if (o->n_bytes == 0)
        return 0;
    return add_part(rs, (Part){.kind = PART_TEXT, .object = o, .again = rs->n_parts}, 0,
                    o->n_bytes);
}

static int plan_header(Restore *rs, const ObjectRecord *o)
{
    if (header_bytes(o) > SAFETENSORS_HEADER_MAX + sizeof(uint64_t))
        return refuse_size(rs, o);
    return add_part(rs, (Part){.kind = PART_HEADER, .object = o, .again = rs->n_parts}, 0,
                    header_bytes(o));
}

static int plan_weight_file(Restore *rs, const ObjectRecord *o)
{
    int r = plan_header(rs, o);
    return r < 0 ? r
                 : add_part(rs,
                            (Part){.kind = PART_DATA,
                                   .object = o,
                                   .first = o->first,
                                   .again = rs->n_parts - 1},
                            header_bytes(o), (uint64_t)o->count * sizeof(float));
}

/* The chunk's elements, from the one or more EMA files that hold them. */
static int plan_ema(Restore *rs, int64_t chunk, size_t again)
{
    const int64_t begin = chunk_begin(&rs->manifest->layout, chunk);
    const int64_t end = chunk_begin(&rs->manifest->layout, chunk + 1);
    int r = 0;
    for (size_t i = 0; r == 0 && i < rs->manifest->n_objects; i++) {
        const ObjectRecord *o = &rs->manifest->objects[i];
        const int64_t from = MAX(begin, o->first), to = MIN(end, o->first + o->count);
        if (o->kind != OBJECT_EMA_WEIGHTS || from >= to)
            continue;
        r = add_part(
            rs,
            (Part){.kind = PART_EMA, .object = o, .first = from, .chunk = chunk, .again = again},
            header_bytes(o) + (uint64_t)(from - o->first) * sizeof(float),
            (uint64_t)(to - from) * sizeof(float));
    }
    return r;
}

static int plan_chunk(Restore *rs, const ObjectRecord *o)
{
    const size_t again = rs->n_parts;
    int r = add_part(rs,
                     (Part){.kind = PART_MOMENTS,
                            .object = o,
                            .first = o->first,
                            .chunk = o->part,
                            .again = again},
                     0, o->n_bytes);
    if (r == 0 && rs->manifest->ema)
        r = plan_ema(rs, o->part, again);
    if (r == 0)
        rs->parts[rs->n_parts - 1].ends_chunk = true;
    return r;
}

static int plan_weights(Restore *rs, ObjectKind kind)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < rs->manifest->n_objects; i++)
        if (rs->manifest->objects[i].kind == kind)
            r = plan_weight_file(rs, &rs->manifest->objects[i]);
    return r;
}

/* What is small first, then the weights, then this rank's chunks. */
static int plan_state(Restore *rs)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < rs->manifest->n_objects; i++) {
        const ObjectRecord *o = &rs->manifest->objects[i];
        if (o->kind == OBJECT_EMA_WEIGHTS)
            r = plan_header(rs, o);
        else if (o->kind != OBJECT_WEIGHTS && o->kind != OBJECT_MOMENTS)
            r = plan_text(rs, o);
    }
    if (r == 0)
        r = plan_weights(rs, OBJECT_WEIGHTS);
    for (size_t i = 0; r == 0 && i < rs->manifest->n_objects; i++) {
        const ObjectRecord *o = &rs->manifest->objects[i];
        if (o->kind == OBJECT_MOMENTS && train_state_chunk(rs->state, rs->state->m, o->part))
            r = plan_chunk(rs, o);
    }
    return r;
}

/* ---- sizes ---- */

static int compare_key(const void *key, const void *object)
{
    return strcmp(key, ((const StoreObject *)object)->key);
}

/* The object's own word: a listing may lag behind. */
static int check_size(const Restore *rs, const ObjectRecord *o, const char *key)
{
    uint64_t n_bytes;
    int r = store_head(rs->store, key, &n_bytes, rs->err);
    if (r == -ENOENT)
        return error_set(rs->err, -EBADMSG, "%s/%s: missing, the manifest lists it",
                         store_uri(rs->store), key);
    if (r == 0 && n_bytes != o->n_bytes)
        return error_set(rs->err, -EBADMSG, "%s/%s: %llu bytes, the manifest says %llu",
                         store_uri(rs->store), key, (unsigned long long)n_bytes,
                         (unsigned long long)o->n_bytes);
    return r;
}

/* One listing says what a question for each object would (0.2 s for 1,000 objects of a store 20 ms
 * away, instead of 20 s). */
static int check_sizes(const Restore *rs)
{
    char prefix[CHECKPOINT_FOLDER_MAX + 1];
    StoreList list = {0};
    (void)snprintf(prefix, sizeof(prefix), "%s/", rs->folder);
    int r = store_list(rs->store, prefix, LISTED_MAX, &list, rs->err);
    for (size_t i = 0; r == 0 && i < rs->n_parts; i++) {
        const ObjectRecord *o = rs->parts[i].object;
        const char *key = rs->ranges[i].key;
        const StoreObject *found = list.n_objects > 0 ? bsearch(key, list.objects, list.n_objects,
                                                                sizeof(*list.objects), compare_key)
                                                      : NULL;
        if (!found || found->n_bytes != o->n_bytes)
            r = check_size(rs, o, key);
    }
    store_list_clear(&list);
    return r;
}

/* ---- what becomes of a piece ---- */

static int target_write(const Restore *rs, const Target *t, uint64_t byte, const void *from,
                        size_t n_bytes)
{
    char *to = (char *)t->flat + byte;
    if (!t->device) {
        memcpy(to, from, n_bytes);
        return 0;
    }
    device_upload(t->device, to, from, n_bytes);
    return device_synchronise(t->device, rs->err); /* the piece is used again */
}

/* Bytes [at, at + n_bytes) of m, then v, of one chunk. */
static int take_moments(const Restore *rs, const ObjectRecord *o, uint64_t at, const char *from,
                        size_t n_bytes)
{
    TrainState *state = rs->state;
    const uint64_t half = (uint64_t)o->count * sizeof(float);
    const Target m = {state->device, train_state_chunk(state, state->m, o->part)};
    const Target v = {state->device, train_state_chunk(state, state->v, o->part)};
    const size_t n_m = at < half ? (size_t)MIN(half - at, (uint64_t)n_bytes) : 0;
    int r = n_m > 0 ? target_write(rs, &m, at, from, n_m) : 0;
    if (r == 0 && n_m < n_bytes)
        r = target_write(rs, &v, at + n_m - half, from + n_m, n_bytes - n_m);
    return r;
}

static int take_ema(const Restore *rs, const Part *part, uint64_t at, const char *from,
                    size_t n_bytes)
{
    TrainState *state = rs->state;
    const Target ema = {state->device, train_state_chunk(state, state->ema, part->chunk)};
    const int64_t first = part->first - chunk_begin(&state->layout, part->chunk);
    return target_write(rs, &ema, (uint64_t)first * sizeof(float) + at, from, n_bytes);
}

/* Only what is read whole can replace a copy. */
static void begin_mending(Restore *rs, const Part *part, const char *key)
{
    Error err = ERROR_INIT;
    (void)local_file_close(&rs->mended, false, NULL); /* it was not finished */
    if (part->mends && part->object->kind != OBJECT_EMA_WEIGHTS &&
        local_file_open(rs->local, key, &rs->mended, &err) < 0)
        log_warning("%s", err.text);
}

static void end_mending(Restore *rs)
{
    Error err = ERROR_INIT;
    if (local_file_close(&rs->mended, true, &err) < 0)
        log_warning("%s", err.text);
}

/* A new object: a hash of its own, room for its header. */
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

static int take_piece(Restore *rs, const Part *part, const ReaderPiece *piece)
{
    if (part->kind != PART_EMA)
        hasher_update(rs->hasher, piece->data, piece->n_bytes);
    if (rs->mended.path && local_file_write(&rs->mended, piece->data, piece->n_bytes, NULL) < 0)
        (void)local_file_close(&rs->mended, false, NULL); /* a full disk: there is no copy */
    switch (part->kind) {
    case PART_TEXT:
        return 0;
    case PART_HEADER:
        memcpy(rs->header + piece->at, piece->data, piece->n_bytes);
        return 0;
    case PART_DATA:
        return target_write(rs, &rs->weights, (uint64_t)part->first * sizeof(float) + piece->at,
                            piece->data, piece->n_bytes);
    case PART_MOMENTS:
        return take_moments(rs, part->object, piece->at, piece->data, piece->n_bytes);
    case PART_EMA:
        return take_ema(rs, part, piece->at, piece->data, piece->n_bytes);
    }
    assert(false);
    return -EINVAL;
}

/* ---- what a part has to be ---- */

static int check_object(const Restore *rs, const ObjectRecord *o)
{
    char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    const Hash found = hasher_digest(rs->hasher);
    if (hash_equal(found, o->hash))
        return 0;
    return error_set(rs->err, -EBADMSG,
                     "%s/%s/%s: bytes 0 to %llu have hash %s, the manifest says %s",
                     store_uri(rs->store), rs->folder, o->key, (unsigned long long)(o->n_bytes - 1),
                     hash_format(found, got), hash_format(o->hash, want));
}

static int check_header(const Restore *rs, const ObjectRecord *o)
{
    char source[CHECKPOINT_URI_MAX];
    (void)snprintf(source, sizeof(source), "%s/%s/%s", store_uri(rs->store), rs->folder, o->key);
    return weight_file_check(source, rs->parameters, o, rs->header, (size_t)header_bytes(o),
                             rs->err);
}

/* The part is the chunk's last: the EMA's, when there is one, for moments have a hash of their own.
 */
static int check_chunk(const Restore *rs, const Part *part, const ReaderRange *range)
{
    Hash found;
    int r = train_state_chunk_hash(rs->state, part->chunk, &found, rs->err);
    if (r < 0 || hash_equal(found, rs->manifest->chunks[part->chunk]))
        return r;
    char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    return error_set(rs->err, -EBADMSG,
                     "%s/%s/%s: with bytes %llu to %llu chunk %lld of the state has hash %s, the "
                     "manifest says %s",
                     store_uri(rs->store), rs->folder, part->object->key,
                     (unsigned long long)range->offset,
                     (unsigned long long)(range->offset + range->n_bytes - 1),
                     (long long)part->chunk, hash_format(found, got),
                     hash_format(rs->manifest->chunks[part->chunk], want));
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

/* ---- once more ---- */

/* Every part of this object comes from the store from now on. */
static void leave_local(Restore *rs, const ObjectRecord *o, const char *key)
{
    checkpoint_local_drop(rs->local, key);
    for (size_t i = 0; i < rs->n_parts; i++)
        if (rs->parts[i].object == o) {
            rs->ranges[i].local = false;
            rs->parts[i].mends = true;
        }
}

/* 0: the reader stands where the part begins once more. */
static int read_again(Restore *rs, Reader *reader, size_t index, int r)
{
    const size_t again = rs->parts[index].again;
    bool was_local = false;
    if (r == -ENOMEM)
        return r; /* says nothing about what was read */
    for (size_t i = again; i <= index; i++)
        if (rs->ranges[i].local) {
            leave_local(rs, rs->parts[i].object, rs->ranges[i].key);
            was_local = true;
        }
    if (!was_local && r != -EBADMSG)
        return r; /* the store has tried for long enough */
    if (!was_local) {
        rs->tries = rs->failed_part == again ? rs->tries + 1 : 1;
        rs->failed_part = again;
        if (rs->tries >= TRIES)
            return r;
    }
    log_warning("read again%s: %s", was_local ? " from the store, the local copy is bad" : "",
                rs->err->text);
    reader_rewind(reader, again);
    return 0;
}

/* A missing object is a checkpoint that does not verify. */
static int missing_is_bad(const Restore *rs, int r)
{
    if (r == -ENOENT)
        rs->err->code = r = -EBADMSG;
    return r;
}

static int take_part_of(Restore *rs, const ReaderPiece *piece)
{
    const Part *part = &rs->parts[piece->range];
    const ReaderRange *range = &rs->ranges[piece->range];
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
    int r = check_sizes(rs);
    if (r == 0)
        r = reader_new(rs->store, rs->local, rs->ranges, rs->n_parts, &reader, rs->err);
    if (r < 0)
        return r;
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
    if (rs->local)
        log_info("%llu of %llu MB came from this node's copies",
                 (unsigned long long)rs->n_local_bytes / 1000000,
                 (unsigned long long)rs->n_bytes / 1000000);
    return 0;
}

/* ---- the whole ---- */

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

static int restore_state(Restore *rs)
{
    TrainState *state = rs->state;
    int r = check_model(rs, state->layout.n_elements, state->layout.chunk_elements);
    if (r < 0)
        return r;
    if (rs->manifest->ema && !state->ema)
        return error_set(rs->err, -EBADMSG, "%s/%s: it holds an EMA, this job has none",
                         store_uri(rs->store), rs->folder);

    uint32_t *maxima = state->scalars.maxima;
    memcpy(maxima, rs->manifest->scalars.maxima,
           (size_t)rs->manifest->n_tensors * MAXIMA_WINDOW * sizeof(*maxima));
    state->scalars = rs->manifest->scalars;
    state->scalars.maxima = maxima;
    state->ema_active = rs->manifest->ema;

    r = plan_state(rs);
    return r < 0 ? r : read_parts(rs);
}

int checkpoint_restore(Store *store, const CheckpointLocal *local, const Manifest *manifest,
                       TrainState *state, Error *err)
{
    Error scratch;
    _cleanup_(restore_clear)
        Restore rs = {.store = store,
                      .local = local,
                      .manifest = manifest,
                      .parameters = state->parameters,
                      .state = state,
                      .weights = {.device = state->device, .flat = state->weights},
                      .mended = LOCAL_FILE_INIT,
                      .err = err ?: &scratch};
    checkpoint_name_format(&manifest->name, rs.folder);
    return restore_state(&rs);
}

int checkpoint_restore_weights(Store *store, const Manifest *manifest, bool ema,
                               const ParameterList *parameters, float *flat, Error *err)
{
    Error scratch;
    _cleanup_(restore_clear) Restore rs = {.store = store,
                                           .manifest = manifest,
                                           .parameters = parameters,
                                           .weights = {.flat = flat},
                                           .mended = LOCAL_FILE_INIT,
                                           .err = err ?: &scratch};
    checkpoint_name_format(&manifest->name, rs.folder);
    int r = check_model(&rs, parameters->n_elements, manifest->layout.chunk_elements);
    if (r < 0)
        return r;
    if (ema && !manifest->ema)
        return error_set(rs.err, -ENOENT, "%s/%s: it holds no EMA", store_uri(store), rs.folder);
    r = plan_weights(&rs, ema ? OBJECT_EMA_WEIGHTS : OBJECT_WEIGHTS);
    return r < 0 ? r : read_parts(&rs);
}
