/* SPDX-License-Identifier: Apache-2.0 */
/* test-snapshot-parts.c - which chunks a rank copies for a save, and how much memory it has for them: the chunks that
 * it owns or writes into a file, each once and no others, in each world, ZeRO stage and kind of save. */
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/checkpoint/writer.h"

#include <string.h>

enum { GENERATION = 1, STEP = 3 };

static char folder[] = "/tmp/test-snapshot-parts-XXXXXX";
static Fixture fixture;

typedef struct Case {
    int zero_stage;
    bool ema, blocking, at_once;
} Case;

/* Returns whether a weight file that this rank writes holds an element of the chunk. */
static bool writes(const CheckpointWriter *w, ObjectKind kind, bool ema, int64_t c)
{
    const ObjectTable *table = &w->tables[ema];
    const int64_t first = chunk_begin(&w->layout, c), end = first + chunk_length(&w->layout, c);
    for (size_t i = 0; i < table->n_records; i++) {
        const ObjectRecord *o = &table->records[i];
        if (o->kind == kind && object_owner(table, o, w->size) == w->rank && o->first < end &&
            o->first + o->count > first)
            return true;
    }
    return false;
}

/* Returns whether this rank has memory for the chunk once there is an EMA. */
static bool has_room(const CheckpointWriter *w, const Case *c, SnapshotKind kind, int64_t chunk)
{
    const bool complete = c->zero_stage == 0 || w->size == 1;
    if (c->blocking && (kind != SNAPSHOT_EMA || complete))
        return false; /* the chunk is written directly from the state */
    return chunk_owner(chunk, w->size) == w->rank ||
           (kind == SNAPSHOT_WEIGHTS && writes(w, OBJECT_WEIGHTS, true, chunk)) ||
           (kind == SNAPSHOT_EMA &&
            ((c->at_once && w->size > 1) || writes(w, OBJECT_EMA_WEIGHTS, true, chunk)));
}

static const float *in_state(const TrainState *state, SnapshotKind kind, int64_t chunk)
{
    switch (kind) {
    case SNAPSHOT_WEIGHTS:
        return state->weights + chunk_begin(&state->layout, chunk);
    case SNAPSHOT_MOMENTS_M:
        return train_state_chunk(state, state->m, chunk);
    case SNAPSHOT_MOMENTS_V:
        return train_state_chunk(state, state->v, chunk);
    default:
        return train_state_chunk(state, state->ema, chunk);
    }
}

/* Returns whether the chunk is in this save, before ranks have sent each other any chunk. */
static bool is_taken(const CheckpointWriter *w, const TrainState *state, const Case *c,
                     SnapshotKind kind, int64_t chunk)
{
    const bool complete = c->zero_stage == 0 || w->size == 1;
    if ((kind == SNAPSHOT_EMA && !c->ema) || !in_state(state, kind, chunk))
        return false;
    if ((c->blocking && (kind != SNAPSHOT_EMA || complete)) ||
        chunk_owner(chunk, w->size) == w->rank)
        return true;
    return (kind == SNAPSHOT_WEIGHTS && writes(w, OBJECT_WEIGHTS, c->ema, chunk)) ||
           (kind == SNAPSHOT_EMA && complete && writes(w, OBJECT_EMA_WEIGHTS, c->ema, chunk));
}

static void check_part(const CheckpointWriter *w, const TrainState *state, const Case *c,
                       SnapshotKind kind)
{
    const SnapshotPart *part = &w->snapshot.parts[kind];
    int64_t room = 0;
    for (int64_t chunk = 0; chunk < w->layout.n_chunks; chunk++) {
        const bool has = has_room(w, c, kind, chunk);
        const float *from = in_state(state, kind, chunk), *at = part->chunks[chunk];
        const int64_t n = chunk_length(&w->layout, chunk);
        world_check(!has || part->places[chunk] == room, "kind %d, chunk %d lies at %d, not %d",
                    (int)kind, (int)chunk, (int)part->places[chunk], (int)room);
        room += has ? n : 0;
        world_check((at != NULL) == is_taken(w, state, c, kind, chunk), "kind %d, chunk %d: %p",
                    (int)kind, (int)chunk, (const void *)at);
        if (!at)
            continue;
        world_check(memcmp(at, from, (size_t)n * sizeof(float)) == 0, "kind %d, chunk %d",
                    (int)kind, (int)chunk);
        world_check(at == (has ? part->memory + part->places[chunk] : from),
                    "kind %d, chunk %d lies elsewhere", (int)kind, (int)chunk);
    }
    world_check((part->memory != NULL) == (room > 0), "kind %d has room for %d", (int)kind,
                (int)room);
}

static int take(World *world, Comm *comm, void *arg)
{
    Error err = ERROR_INIT;
    const Case *c = arg;
    char path[128];
    Store *store;
    if (!c->at_once)
        /* this setting stays until the process ends, which runs no other case */
        snapshot_ema_at_once_bytes = 0;
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    world_check(store_open(path, &store, &err) == 0, "%s", err.text);
    TrainState *state =
        testing_state(&fixture, STEP, world->rank, world->size, c->zero_stage, c->ema);
    CheckpointWriter *w = testing_writer(&fixture, store, comm, GENERATION, 20000);
    const Snapshot *s = &w->snapshot;
    w->options.blocking = c->blocking;
    world_check(s->ema_at_once == (c->at_once && world->size > 1), "at once");
    for (int times = 0; times < 2; times++) { /* the second time no memory may be allocated */
        const float *memory = s->parts[SNAPSHOT_EMA].memory;
        snapshot_take(w, state);
        world_check(snapshot_await(w, &err) == 0, "%s", err.text);
        world_check(times == 0 || memory == s->parts[SNAPSHOT_EMA].memory, "had again");
        world_check(s->ema_active == c->ema, "ema_active");
        world_check(s->ema_complete == (c->zero_stage == 0 || world->size == 1), "complete");
        world_check(s->scalars.maxima != state->scalars.maxima &&
                        memcmp(s->scalars.maxima, state->scalars.maxima,
                               fixture.parameters->n_items * MAXIMA_WINDOW * sizeof(uint32_t)) == 0,
                    "maxima");
        TrainScalars scalars = s->scalars;
        scalars.maxima = state->scalars.maxima;
        world_check(memcmp(&scalars, &state->scalars, sizeof(scalars)) == 0, "scalars");
        for (SnapshotKind kind = 0; kind < SNAPSHOT_KINDS; kind++)
            check_part(w, state, c, kind);
    }
    world_check(world_barrier(comm, &err) == 0, "%s", err.text); /* all ranks have finished */
    w = checkpoint_writer_free(w);
    state = train_state_free(state);
    store = store_free(store);
    return 0;
}

static void each_rank_copies_what_it_owns_or_writes(_unused_ void **state)
{
    for (int i = 0; i < 3 * 3 * 8; i++) {
        Case c = {.zero_stage = i / 3 % 3,
                  .ema = i / 9 % 2,
                  .blocking = i / 18 % 2,
                  .at_once = i / 36 % 2};
        World world = {.size = 1 + i % 3, .run = take, .arg = &c};
        if (world_run(&world, WORLD_SEC) != 0)
            fail_msg("%d ranks, ZeRO %d, average %d, blocking %d, at once %d", world.size,
                     c.zero_stage, c.ema, c.blocking, c.at_once);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_rank_copies_what_it_owns_or_writes)};
    log_set_level(LOG_LEVEL_ERROR);
    assert(mkdtemp(folder));
    fixture_open(FIXTURE_MEDIUM, &fixture);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close(&fixture);
    (void)folder_remove(folder, NULL); /* a folder that remains is not a failure of the test */
    return failed;
}
