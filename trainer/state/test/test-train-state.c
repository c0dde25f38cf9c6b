/* SPDX-License-Identifier: Apache-2.0 */
/* test-train-state.c - tests chunks: bounds, owners, places in memory, and the data that their hashes cover. */

#include "base/fault.h"
#include "base/test/testing.h"
#include "kernels/test/testing-copy.h"
#include "trainer/state/train-state.h"

#include <string.h>

static void chunks_cover_the_buffer(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1,      4095,   4096,    4097,    262144,    262145,
                                    300001, 999999, 3200000, 1 << 28, 865910724, (1 << 28) + 1};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
        ChunkLayout layout = chunk_layout(sizes[i]);
        assert_in_range(layout.chunk_elements, 1 << 12, 1 << 22);
        assert_int_equal(layout.chunk_elements & (layout.chunk_elements - 1), 0);
        int64_t sum = 0;
        for (int64_t c = 0; c < layout.n_chunks; c++) {
            assert_int_equal(chunk_begin(&layout, c), sum);
            assert_true(chunk_length(&layout, c) > 0);
            sum += chunk_length(&layout, c);
        }
        assert_int_equal(sum, sizes[i]);
        if (sizes[i] <= 1 << 28)
            assert_true(layout.n_chunks <= 64);
        for (int world = 1; world <= 70; world++) {
            int64_t owned = 0;
            for (int rank = 0; rank < world; rank++) {
                int64_t n = chunks_owned(&layout, rank, world), counted = 0;
                for (int64_t c = 0; c < layout.n_chunks; c++)
                    counted += chunk_owner(c, world) == rank;
                assert_int_equal(n, counted);
                assert_true(n <= shard_slots(&layout, world));
                owned += n;
            }
            assert_int_equal(owned, layout.n_chunks);
        }
    }
}

/* Sets element i of n to first + i + plus. */
static void fill_range(Device *device, float *to, int64_t first, int64_t n, float plus)
{
    float *host = malloc((size_t)n * sizeof(float));
    assert_non_null(host);
    for (int64_t i = 0; i < n; i++)
        host[i] = (float)(first + i) + plus;
    device_upload(device, to, host, (size_t)n * sizeof(float));
    free(host);
}

static void fill(TrainState *state)
{
    const ChunkLayout *layout = &state->layout;
    Device *device = state->device;
    fill_range(device, state->weights, 0, layout->n_elements, 0);
    for (int64_t c = 0; c < layout->n_chunks; c++) {
        const int64_t first = chunk_begin(layout, c), n = chunk_length(layout, c);
        if (!train_state_keeps(state, c))
            continue;
        fill_range(device, train_state_chunk(state, state->m, c), first, n, 0.25f);
        fill_range(device, train_state_chunk(state, state->v, c), first, n, 0.5f);
        fill_range(device, train_state_chunk(state, state->ema, c), first, n, 0.75f);
    }
}

enum { ELEMENTS = 300001, WORLD = 4 };

typedef struct Fixture {
    Device *device;
    Parameter items[2];
    ParameterList list;
} Fixture;

static void open_fixture(Fixture *f)
{
    Error err = ERROR_INIT;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    assert_int_equal(device_open(&options, &f->device, &err), 0);
    f->items[0] = (Parameter){.name = "a", .n_elements = 1000};
    f->items[1] = (Parameter){.name = "b", .n_elements = ELEMENTS - 1000, .offset = 1000};
    f->list = (ParameterList){.items = f->items, .n_items = 2, .n_elements = ELEMENTS};
}

static TrainState *open_state(Fixture *f, int rank, int world, int zero_stage)
{
    Error err = ERROR_INIT;
    TrainState *state = NULL;
    assert_int_equal(train_state_new(f->device, &f->list, rank, world, zero_stage, true, &state,
                                     &err),
                     0);
    fill(state);
    return state;
}

static Hash digest_of(TrainState *const states[], int world)
{
    Error err = ERROR_INIT;
    Hash hashes[128];
    int64_t n = states[0]->layout.n_chunks;
    assert_in_range(n, 1, ELEMENTSOF(hashes));
    for (int64_t c = 0; c < n; c++)
        assert_int_equal(train_state_chunk_hash(states[chunk_owner(c, world)], c, &hashes[c], &err),
                         0);
    return state_digest(&states[0]->scalars, states[0]->parameters->n_items, &states[0]->layout,
                        states[0]->ema_active, hashes);
}

static void the_digest_does_not_depend_on_the_world(void **state)
{
    (void)state;
    Fixture f;
    open_fixture(&f);
    TrainState *alone = open_state(&f, 0, 1, 0);
    Hash expected = digest_of(&alone, 1);
    for (int zero_stage = 0; zero_stage <= 2; zero_stage++) {
        TrainState *states[WORLD];
        for (int rank = 0; rank < WORLD; rank++)
            states[rank] = open_state(&f, rank, WORLD, zero_stage);
        assert_true(hash_equal(digest_of(states, WORLD), expected));
        for (int rank = 0; rank < WORLD; rank++)
            states[rank] = train_state_free(states[rank]);
    }
    alone = train_state_free(alone);
    f.device = device_free(f.device);
}

/* Every bit of the state is in the digest, including the EMA once it is active. */
static void the_digest_covers_everything(void **state)
{
    (void)state;
    Fixture f;
    open_fixture(&f);
    TrainState *s = open_state(&f, 0, 1, 0);
    Hash before = digest_of(&s, 1);
    uint32_t *on_device[] = {(uint32_t *)s->weights + ELEMENTS - 1, (uint32_t *)s->m,
                             (uint32_t *)s->v + 77777};
    for (size_t i = 0; i < ELEMENTSOF(on_device); i++) {
        device_flip(f.device, on_device[i]);
        assert_false(hash_equal(digest_of(&s, 1), before));
        device_flip(f.device, on_device[i]);
        assert_true(hash_equal(digest_of(&s, 1), before));
    }
    uint32_t *words[] = {(uint32_t *)&s->scalars.step,
                         (uint32_t *)&s->scalars.position,
                         (uint32_t *)&s->scalars.adam_t,
                         (uint32_t *)&s->scalars.loss_scale,
                         (uint32_t *)&s->scalars.loss_scale_steps,
                         (uint32_t *)&s->scalars.n_maxima,
                         (uint32_t *)&s->scalars.n_accepted,
                         s->scalars.maxima + 2 * MAXIMA_WINDOW - 1};
    for (size_t i = 0; i < ELEMENTSOF(words); i++) {
        *words[i] ^= 1;
        assert_false(hash_equal(digest_of(&s, 1), before));
        *words[i] ^= 1;
        assert_true(hash_equal(digest_of(&s, 1), before));
    }
    device_flip(f.device, (uint32_t *)s->ema + 5);
    assert_true(hash_equal(digest_of(&s, 1), before));
    s->ema_active = true;
    Hash active = digest_of(&s, 1);
    assert_false(hash_equal(active, before));
    device_flip(f.device, (uint32_t *)s->ema + 5);
    assert_false(hash_equal(digest_of(&s, 1), active));
    s = train_state_free(s);
    f.device = device_free(f.device);
}

static void hash_downloaded(const TrainState *s, Hasher *hasher, const float *from, size_t n_bytes)
{
    _cleanup_free_ void *copy = malloc(n_bytes);
    assert_non_null(copy);
    device_download(s->device, copy, from, n_bytes);
    hasher_update(hasher, copy, n_bytes);
}

static void check_hash(const TrainState *s, int64_t c)
{
    Error err = ERROR_INIT;
    const size_t n_bytes = (size_t)chunk_length(&s->layout, c) * sizeof(float);
    Hash found;
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    assert_int_equal(hasher_new(&hasher), 0);
    assert_int_equal(train_state_chunk_hash(s, c, &found, &err), 0);
    hash_downloaded(s, hasher, s->weights + chunk_begin(&s->layout, c), n_bytes);
    hash_downloaded(s, hasher, train_state_chunk(s, s->m, c), n_bytes);
    hash_downloaded(s, hasher, train_state_chunk(s, s->v, c), n_bytes);
    hash_downloaded(s, hasher, train_state_chunk(s, s->ema, c), n_bytes);
    assert_true(hash_equal(found, hasher_digest(hasher)));
}

/* The hash of a chunk depends only on its bytes, not on the pieces in which they are copied to the host. */
static void a_hash_does_not_depend_on_the_pieces(void **state)
{
    (void)state;
    Fixture f;
    open_fixture(&f);
    TrainState *s = open_state(&f, 1, 3, 1);
    s->ema_active = true;
    static const size_t sizes[] = {8 << 20, 4, 12, 1000, 16384, 32764, 32768, 65536};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
        train_state_piece_bytes = sizes[i];
        train_state_release_staging(s);
        for (int64_t c = 1; c < s->layout.n_chunks; c += sizes[i] < 1000 ? 33 : 3)
            check_hash(s, c);
    }
    train_state_piece_bytes = sizes[0];
    s = train_state_free(s);
    f.device = device_free(f.device);
}

/* If a hash copied memory that the host can read, each byte of a restore would be copied once more. */
static void a_hash_copies_nothing_where_the_host_may_read(void **state)
{
    (void)state;
    Fixture f;
    open_fixture(&f);
    TrainState *s = open_state(&f, 0, 1, 0);
    const uint64_t before = device_fence(f.device, LANE_OUT).serial;
    s->ema_active = true;
    check_hash(s, 2);
    const bool copied = device_fence(f.device, LANE_OUT).serial != before;
    assert_int_equal(copied, !device_host_view(f.device, s->weights));
    s = train_state_free(s);
    f.device = device_free(f.device);
}

/* This is the last test, since the lane stays slow. */
static void a_hash_waits_for_late_pieces(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    Fixture f;
    open_fixture(&f);
    TrainState *s = open_state(&f, 0, 1, 0);
    s->ema_active = true;
    assert_int_equal(setenv("SDTRAIN_FAULT", "device.copy=slow@*,shadow.break.out=slow@*", 1), 0);
    assert_int_equal(fault_open(&err), 0);
    train_state_piece_bytes = 20000;
    check_hash(s, 2);
    s = train_state_free(s);
    f.device = device_free(f.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_the_buffer),
        cmocka_unit_test(the_digest_does_not_depend_on_the_world),
        cmocka_unit_test(the_digest_covers_everything),
        cmocka_unit_test(a_hash_does_not_depend_on_the_pieces),
        cmocka_unit_test(a_hash_copies_nothing_where_the_host_may_read),
        cmocka_unit_test(a_hash_waits_for_late_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
