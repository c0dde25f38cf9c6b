/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.c - this rank's part of the state at one step, in host memory.
 *
 * The copies run on LANE_OUT in parallel with training. The fence after the copies is waited for twice: by LANE_COMPUTE
 * before the next write of the state (train_state_before_write()), and by the writer's thread before it reads the
 * copies. If a save blocks and the host can read device memory, only the EMA that other ranks need is copied.
 *
 * If memory cannot be allocated or copies do not arrive, only the save fails, and the rank reports this.
 *
 * Fault points: checkpoint.memory, checkpoint.copied.
 */
#include "trainer/checkpoint/writer.h"

#include "base/fault.h"
#include "trainer/state/device-patience.h"

#include <string.h>

uint64_t snapshot_timeout_usec = 120 * USEC_PER_SEC;
size_t snapshot_ema_at_once_bytes = 64 << 20;

static size_t ema_bytes(const CheckpointWriter *w)
{
    return (size_t)w->layout.n_elements * sizeof(float);
}

/* ---- new, free ---- */

static int part_new(const CheckpointWriter *w, SnapshotPart *part)
{
    const size_t n = (size_t)w->layout.n_chunks;
    part->places = calloc(n, sizeof(*part->places));
    part->chunks = calloc(n, sizeof(*part->chunks));
    return part->places && part->chunks ? 0 : -ENOMEM;
}

int snapshot_new(CheckpointWriter *w)
{
    Snapshot *p = &w->snapshot;
    const size_t n_maxima = w->options.parameters->n_items * MAXIMA_WINDOW;
    p->ema_at_once = w->size > 1 && ema_bytes(w) <= snapshot_ema_at_once_bytes;
    p->scalars.maxima = calloc(n_maxima, sizeof(*p->scalars.maxima));
    p->scratch =
        calloc(p->ema_at_once ? ema_bytes(w) : (size_t)w->layout.chunk_elements * sizeof(float), 1);
    int r = p->scalars.maxima && p->scratch ? 0 : -ENOMEM;
    for (SnapshotKind kind = 0; r == 0 && kind < SNAPSHOT_KINDS; kind++)
        r = part_new(w, &p->parts[kind]);
    return r;
}

void snapshot_clear(CheckpointWriter *w)
{
    Snapshot *p = &w->snapshot;
    /* If copies never arrived, their memory is kept: the device may still write to it. */
    const bool idle = p->device && device_is_idle(p->device);
    for (SnapshotKind kind = 0; kind < SNAPSHOT_KINDS; kind++) {
        if (idle)
            device_host_release(p->device, p->parts[kind].memory);
        free(p->parts[kind].places);
        free(p->parts[kind].chunks);
    }
    free(p->scalars.maxima);
    free(p->metrics);
    free(p->scratch);
}

/* ---- memory ---- */

/* Returns whether objects are written directly from the state, without copies. */
static bool is_lent(const CheckpointWriter *w, const TrainState *state)
{
    return w->options.blocking && device_host_view(state->device, state->weights);
}

static bool is_complete(const CheckpointWriter *w, const TrainState *state)
{
    return state->zero_stage == 0 || w->size == 1;
}

/* Returns whether this rank needs the chunk in any save, whichever files the save has. */
static bool has_place(const CheckpointWriter *w, SnapshotKind kind, int64_t c)
{
    const ObjectTable *table = &w->tables[1]; /* tables[1] also has the files of tables[0] */
    if (chunk_owner(c, w->size) == w->rank)
        return true;
    if (kind == SNAPSHOT_WEIGHTS)
        return object_table_needs(table, &w->layout, OBJECT_WEIGHTS, c, w->rank, w->size);
    return kind == SNAPSHOT_EMA &&
           (w->snapshot.ema_at_once ||
            object_table_needs(table, &w->layout, OBJECT_EMA_WEIGHTS, c, w->rank, w->size));
}

static int allocate_part(CheckpointWriter *w, SnapshotKind kind, Error *err)
{
    SnapshotPart *part = &w->snapshot.parts[kind];
    int64_t n = 0;
    if (part->memory)
        return 0;
    for (int64_t c = 0; c < w->layout.n_chunks; c++) {
        part->places[c] = n;
        n += has_place(w, kind, c) ? chunk_length(&w->layout, c) : 0;
    }
    if (n == 0)
        return 0;
    int r = fault("checkpoint.memory");
    if (r < 0)
        return error_errno(err, r, "no host memory for %lld elements", (long long)n);
    return device_host_allocate(w->snapshot.device, (size_t)n * sizeof(float),
                                (void **)&part->memory, err);
}

int snapshot_allocate(CheckpointWriter *w, const TrainState *state, Error *err)
{
    const bool lent = is_lent(w, state);
    int r = 0;
    w->snapshot.device = state->device;
    for (SnapshotKind kind = 0; r == 0 && kind < SNAPSHOT_EMA && !lent; kind++)
        r = allocate_part(w, kind, err);
    if (r == 0 && state->ema && !(lent && is_complete(w, state)))
        r = allocate_part(w, SNAPSHOT_EMA, err);
    return r < 0 ? error_prefix(err, r, "the copy of the state that a save makes") : 0;
}

/* ---- the copies ---- */

static void take_scalars(CheckpointWriter *w, const TrainState *state)
{
    Snapshot *p = &w->snapshot;
    uint32_t *maxima = p->scalars.maxima;
    memcpy(maxima, state->scalars.maxima,
           state->parameters->n_items * MAXIMA_WINDOW * sizeof(*maxima));
    p->scalars = state->scalars;
    p->scalars.maxima = maxima;
    p->ema_active = state->ema_active;
    p->ema_complete = is_complete(w, state);
}

/* Returns whether this rank needs a copy of the chunk in this save: to write it, or to send it to other ranks. */
static bool copies(const CheckpointWriter *w, SnapshotKind kind, int64_t c)
{
    const ObjectKind file = kind == SNAPSHOT_WEIGHTS ? OBJECT_WEIGHTS : OBJECT_EMA_WEIGHTS;
    if (chunk_owner(c, w->size) == w->rank)
        return true;
    if (kind == SNAPSHOT_MOMENTS_M || kind == SNAPSHOT_MOMENTS_V)
        return false;
    return (kind == SNAPSHOT_WEIGHTS || w->snapshot.ema_complete) &&
           object_table_needs(writer_table(w), &w->layout, file, c, w->rank, w->size);
}

static const float *chunk_of(const TrainState *state, SnapshotKind kind, int64_t c)
{
    switch (kind) {
    case SNAPSHOT_WEIGHTS:
        return state->weights + chunk_begin(&state->layout, c);
    case SNAPSHOT_MOMENTS_M:
        return train_state_chunk(state, state->m, c);
    case SNAPSHOT_MOMENTS_V:
        return train_state_chunk(state, state->v, c);
    case SNAPSHOT_EMA:
        return state->ema_active ? train_state_chunk(state, state->ema, c) : NULL;
    case SNAPSHOT_KINDS:
        break;
    }
    assert(false);
    return NULL;
}

static void take_chunk(CheckpointWriter *w, const TrainState *state, SnapshotKind kind, int64_t c)
{
    SnapshotPart *part = &w->snapshot.parts[kind];
    const float *from = chunk_of(state, kind, c);
    const bool lent = is_lent(w, state) && (kind != SNAPSHOT_EMA || w->snapshot.ema_complete);
    part->chunks[c] = NULL;
    if (!from)
        return;
    if (lent) {
        part->chunks[c] = device_host_view(state->device, from);
    } else if (copies(w, kind, c)) {
        float *to = part->memory + part->places[c];
        assert(part->memory && has_place(w, kind, c));
        device_fetch(state->device, LANE_OUT, to, from,
                     (size_t)chunk_length(&w->layout, c) * sizeof(float));
        part->chunks[c] = to;
    }
}

void snapshot_take(CheckpointWriter *w, const TrainState *state)
{
    Snapshot *p = &w->snapshot;
    take_scalars(w, state);
    p->error = ERROR_INIT;
    if (snapshot_allocate(w, state, &p->error) < 0)
        return;
    device_wait(state->device, LANE_OUT, device_fence(state->device, LANE_COMPUTE));
    for (SnapshotKind kind = 0; kind < SNAPSHOT_KINDS; kind++)
        for (int64_t c = 0; c < w->layout.n_chunks; c++)
            take_chunk(w, state, kind, c);
    p->copied = device_fence(state->device, LANE_OUT);
    train_state_copying(state, p->copied);
}

int snapshot_await(CheckpointWriter *w, Error *err)
{
    Snapshot *p = &w->snapshot;
    if (p->error.code < 0) {
        *err = p->error;
        return err->code;
    }
    int r = device_await(p->device, p->copied, device_patience(snapshot_timeout_usec), err);
    if (r == 0) {
        r = fault("checkpoint.copied");
        if (r < 0)
            /* the error's code is r already */
            (void)error_errno(err, r, "a copy out of device memory");
    }
    if (r < 0)
        p->error = *err; /* kept in case the caller discards err */
    return r < 0 ? error_prefix(err, r, "copying the state") : 0;
}

/* ---- reading the snapshot ---- */

const float *snapshot_range(const CheckpointWriter *w, SnapshotKind kind, int64_t first,
                            int64_t count)
{
    const SnapshotPart *part = &w->snapshot.parts[kind];
    const int64_t each = w->layout.chunk_elements, c = first / each;
    assert(count > 0 && part->chunks[c]);
    for (int64_t k = c + 1; k <= (first + count - 1) / each; k++)
        /* neighbouring chunks must be contiguous */
        assert(part->chunks[k] == part->chunks[k - 1] + each);
    return part->chunks[c] + first % each;
}

/* ---- the EMA of other ranks ---- */

/* Returns the memory for the EMA; NULL: the copies of this rank failed. Such a rank still takes part in the gathering,
 * but its result is not used. */
static float *ema_memory(const CheckpointWriter *w)
{
    const Snapshot *p = &w->snapshot;
    return p->error.code < 0 ? NULL : p->parts[SNAPSHOT_EMA].memory;
}

static int gather_at_once(CheckpointWriter *w, Error *err)
{
    float *memory = ema_memory(w);
    SnapshotPart *part = &w->snapshot.parts[SNAPSHOT_EMA];
    int r = comm_all_gather_dealt(w->options.reports, memory ?: w->snapshot.scratch, ema_bytes(w),
                                  (size_t)w->layout.chunk_elements * sizeof(float), err);
    for (int64_t c = 0; r == 0 && memory && c < w->layout.n_chunks; c++)
        part->chunks[c] = memory + part->places[c];
    return r;
}

static int gather_chunk(CheckpointWriter *w, int64_t c, Error *err)
{
    float *memory = ema_memory(w);
    SnapshotPart *part = &w->snapshot.parts[SNAPSHOT_EMA];
    const bool keeps = memory && has_place(w, SNAPSHOT_EMA, c);
    float *to = keeps ? memory + part->places[c] : w->snapshot.scratch;
    if (keeps)
        part->chunks[c] = to;
    return comm_broadcast(w->options.reports, chunk_owner(c, w->size), to,
                          (size_t)chunk_length(&w->layout, c) * sizeof(float), err);
}

int snapshot_gather_ema(CheckpointWriter *w, Error *err)
{
    int r = 0;
    if (w->snapshot.ema_at_once)
        r = gather_at_once(w, err);
    for (int64_t c = 0; r == 0 && !w->snapshot.ema_at_once && c < w->layout.n_chunks; c++)
        r = gather_chunk(w, c, err);
    return r < 0 ? error_prefix(err, r, "gathering the EMA") : 0;
}
