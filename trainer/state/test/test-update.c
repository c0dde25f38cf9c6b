/* SPDX-License-Identifier: Apache-2.0 */
/* test-update.c - the exact reduction: the same bits for every world size and ZeRO stage, through
 * redone steps, non-finite gradients, warm-up, clipping and the start of the EMA. */

#include "base/test/testing.h"
#include "trainer/state/exponent.h"
#include "trainer/state/test/testing-update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The result of one step of a world. */
typedef struct StepRecord {
    Hash digest;
    double loss, norm, lr;
    uint64_t redone;
} StepRecord;

typedef struct Run {
    Case c;
    bool bulk; /* sums and weights have their own comm */
    StepRecord records[STEPS];
    int64_t bad_grain;
    char bad_tensor[PARAMETER_NAME_MAX];
} Run;

static Hash digest(Rank *rank, Comm *comm)
{
    Error err = ERROR_INIT;
    const TrainState *state = rank->state;
    size_t n_chunks = (size_t)state->layout.n_chunks;
    int world = state->world_size;
    Hash *own = calloc(n_chunks, sizeof(Hash));
    Hash *all = calloc(n_chunks * (size_t)world, sizeof(Hash));
    for (int64_t c = 0; c < state->layout.n_chunks; c++) {
        if (state->zero_stage > 0 && chunk_owner(c, world) != state->rank)
            continue;
        int r = train_state_chunk_hash(state, c, &own[c], &err);
        world_check(r == 0, "%s", err.text);
    }
    int r = comm_all_gather(comm, own, all, n_chunks * sizeof(Hash), &err);
    world_check(r == 0, "%s", err.text);
    for (int64_t c = 0; c < state->layout.n_chunks; c++) {
        own[c] = all[(size_t)chunk_owner(c, world) * n_chunks + (size_t)c];
        for (int other = 0; other < world && state->zero_stage == 0; other++)
            world_check(hash_equal(own[c], all[(size_t)other * n_chunks + (size_t)c]),
                        "chunk %d of rank %d differs", (int)c, other);
    }
    Hash result = state_digest(&state->scalars, state->parameters->n_items, &state->layout,
                               state->ema_active, own);
    free(own);
    free(all);

    /* Checks that all ranks have the same weights. */
    const size_t n_bytes = (size_t)state->layout.n_elements * sizeof(float);
    device_download(state->device, rank->weights, state->weights, n_bytes);
    Hash weights[WORLD_MAX], mine = hash_bytes(rank->weights, n_bytes);
    r = comm_all_gather(comm, &mine, weights, sizeof(mine), &err);
    world_check(r == 0, "%s", err.text);
    for (int other = 0; other < world; other++)
        world_check(hash_equal(weights[other], mine), "weights of rank %d differ", other);
    return result;
}

static void one_step(Rank *rank, Comm *comm, Run *run)
{
    Error err = ERROR_INIT;
    int64_t step = rank->state->scalars.step + 1;
    UpdateResult result;
    if (step == NAN_STEP && rank->job.train.n_grains > 3) {
        update_begin(rank->update);
        rank_compute_grains(rank, true);
        world_check(rank_decide(rank, &result) == UPDATE_NON_FINITE, "a NaN was accepted");
        world_check(result.bad_grain == 2 && strcmp(result.bad_tensor, "tensor.6") == 0,
                    "grain %d, %s", (int)result.bad_grain, result.bad_tensor);
    }
    update_begin(rank->update);
    rank_compute_grains(rank, false);
    UpdateVerdict verdict = rank_decide(rank, &result);
    if (verdict == UPDATE_REDO) {
        rank_compute_grains(rank, false);
        verdict = rank_decide(rank, &result);
        world_check(result.redone, "a redone step that does not say so");
    }
    world_check(verdict == UPDATE_ACCEPT, "verdict %d at step %d", verdict, (int)step);
    uint32_t word = 99;
    uint32_t said = UINT32_C(1) << rank->state->rank | (uint32_t)step << 8;
    int r = update_apply(rank->update, said, &word, &result, &err);
    world_check(r == 0, "%s", err.text);
    uint32_t all = (UINT32_C(1) << rank->state->world_size) - 1;
    world_check(word == (all | (uint32_t)step << 8), "the words of all are %x", word);
    Hash hash = digest(rank, comm);
    if (rank->state->rank == 0)
        run->records[step - 1] = (StepRecord){.digest = hash,
                                              .loss = result.loss,
                                              .norm = result.gradient_norm,
                                              .lr = result.lr,
                                              .redone = result.redone};
}

static int run_steps(World *world, Comm *comm, void *arg)
{
    Run *run = arg;
    Rank rank = {0};
    Error err = ERROR_INIT;
    if (run->bulk)
        world_check(world_open(world, "bulk", &rank.bulk, &err) == 0, "%s", err.text);
    rank_open(&rank, &run->c, comm);
    for (int step = 1; step <= STEPS; step++)
        one_step(&rank, comm, run);
    rank_close(&rank);
    return 0;
}

static void run_world(int size, const Case *c, bool bulk, Run *run)
{
    memset(run, 0, sizeof(*run));
    run->c = *c;
    run->bulk = bulk;
    World world = {.size = size, .run = run_steps, .arg = run};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

static void bits_do_not_depend_on_the_world(void **state)
{
    (void)state;
    static const Case cases[] = {
        {4, 0, REDUCTION_EXACT, EMA_START, 1.0},
        {5, 0, REDUCTION_EXACT, EMA_START, 1e6},
        {8, 0, REDUCTION_EXACT, 0, 0},
        {5, 0, REDUCTION_EXACT64, EMA_START, 1.0},
    };
    Run *alone = world_share(sizeof(Run)), *run = world_share(sizeof(Run));
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        run_world(1, &cases[i], false, alone);
        assert_true(alone->records[0].redone); /* there is no history of maxima yet */
        for (int step = 2; step <= STEPS; step++)
            assert_int_equal(alone->records[step - 1].redone, step == 8 || step == 20);
        for (int size = 1; size <= 4; size++) {
            for (int zero_stage = 0; zero_stage <= 2; zero_stage++) {
                Case c = cases[i];
                c.zero_stage = zero_stage;
                run_world(size, &c, size > 1 && (size + zero_stage + (int)i) % 3 > 0, run);
                for (int step = 0; step < STEPS; step++) {
                    if (memcmp(&run->records[step], &alone->records[step], sizeof(StepRecord)) != 0)
                        fail_msg("G %d, world %d, ZeRO %d: step %d differs", (int)c.n_grains, size,
                                 zero_stage, step + 1);
                }
            }
        }
    }
}

/* Plain floats give the same bits for the same world size and ZeRO stage, whether or not the sums cross the network in
 * parallel with the training thread, and also on a device that stages the sums, as long as they fit into its staging
 * memory. Other sizes and stages give other bits, which shows that these gradients reveal the order of additions. */
static void floats_repeat_for_one_world_and_stage(void **state)
{
    (void)state;
    _cleanup_free_ char *device =
        getenv("SDTRAIN_TEST_DEVICE") ? strdup(getenv("SDTRAIN_TEST_DEVICE")) : NULL;
    Run *on_cpu = world_share(sizeof(Run)), *run = world_share(sizeof(Run));
    Hash seen[9];
    int n = 0;
    for (int size = 2; size <= 4; size++) {
        for (int zero_stage = 0; zero_stage <= 2; zero_stage++) {
            const Case c = {8, zero_stage, REDUCTION_FLOAT, EMA_START, 1.0};
            (void)unsetenv("SDTRAIN_TEST_DEVICE"); /* cannot fail for a valid name */
            run_world(size, &c, false, on_cpu);
            if (device)
                (void)setenv("SDTRAIN_TEST_DEVICE", device, 1); /* cannot fail for a valid name */
            run_world(size, &c, true, run);
            if (memcmp(run->records, on_cpu->records, sizeof(run->records)) != 0)
                fail_msg("world %d, ZeRO %d: the same job differs", size, zero_stage);
            seen[n++] = run->records[STEPS - 1].digest;
            for (int i = 0; i < n - 1; i++) /* only the sum of two numbers has no other order */
                assert_int_equal(hash_equal(seen[i], seen[n - 1]), i == 0 && n == 2);
        }
    }
}

/* ---- against float64 ---- */

typedef struct Reference {
    double *w, *m, *v, *ema, *g;
    float *w32;
} Reference;

static double reference_step(const Rank *rank, Reference *ref, int64_t step)
{
    const typeof(rank->job.train.optimizer) *o = &rank->job.train.optimizer;
    int64_t n = rank->list.n_elements, n_grains = rank->job.train.n_grains;
    memset(ref->g, 0, (size_t)n * sizeof(double));
    for (int64_t i = 0; i < n; i++)
        ref->w32[i] = (float)ref->w[i];
    for (int64_t grain = 0; grain < n_grains; grain++) {
        rank_fill_gradients(&rank->list, ref->w32, step, grain, n_grains, rank->gradients);
        for (int64_t i = 0; i < n; i++)
            ref->g[i] += (double)rank->gradients[i] / (double)n_grains;
    }
    double norm = 0;
    for (int64_t i = 0; i < n; i++)
        norm += ref->g[i] * ref->g[i];
    norm = sqrt(norm);
    double clip = fmin(1, o->clip_norm / (norm + 1e-6));
    double lr = o->lr * fmin(1, (double)step / (double)o->warmup_steps);
    double beta1 = o->beta1, beta2 = o->beta2;
    for (int64_t i = 0; i < n; i++) {
        double g = ref->g[i] * clip;
        ref->w[i] -= lr * o->weight_decay * ref->w[i];
        ref->m[i] = beta1 * ref->m[i] + (1 - beta1) * g;
        ref->v[i] = beta2 * ref->v[i] + (1 - beta2) * g * g;
        ref->w[i] -= lr * (ref->m[i] / (1 - pow(beta1, (double)step))) /
                     (sqrt(ref->v[i] / (1 - pow(beta2, (double)step))) + o->eps);
        if (step == EMA_START)
            ref->ema[i] = ref->w[i];
        else if (step > EMA_START)
            ref->ema[i] = rank->job.train.ema.decay * ref->ema[i] +
                          (1 - rank->job.train.ema.decay) * ref->w[i];
    }
    return norm;
}

static double distance(const Rank *rank, const float *device, const double *b, int64_t n)
{
    float *a = malloc((size_t)n * sizeof(float));
    assert_non_null(a);
    device_download(rank->device, a, device, (size_t)n * sizeof(float));
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    free(a);
    return sqrt(difference / size);
}

static void steps_follow_adamw(void **state)
{
    (void)state;
    const Reduction reductions[] = {REDUCTION_EXACT, REDUCTION_EXACT64, REDUCTION_FLOAT};
    for (size_t k = 0; k < ELEMENTSOF(reductions); k++) {
        Case c = {5, 0, reductions[k], EMA_START, 1.0};
        Run *run = world_share(sizeof(Run));
        Error err = ERROR_INIT;
        _cleanup_(comm_freep) Comm *comm = NULL;
        assert_int_equal(comm_open_self(&comm, &err), 0);
        Rank rank = {0};
        rank_open(&rank, &c, comm);
        size_t n = (size_t)rank.list.n_elements;
        double *memory = calloc(5 * n, sizeof(double));
        Reference ref = {memory,         memory + n,     memory + 2 * n,
                         memory + 3 * n, memory + 4 * n, malloc(n * sizeof(float))};
        for (size_t i = 0; i < n; i++)
            ref.w[i] = (double)rank.weights[i];
        for (int64_t step = 1; step <= STEPS; step++) {
            one_step(&rank, comm, run);
            double norm = reference_step(&rank, &ref, step);
            assert_true(fabs(run->records[step - 1].norm - norm) < 1e-5 * norm);
            assert_int_equal(run->records[step - 1].redone,
                             c.reduction != REDUCTION_FLOAT &&
                                 (step == 1 || step == 8 || step == 20));
        }
        assert_true(run->records[0].lr == 1e-3 / 5 && run->records[9].lr == 1e-3);
        assert_true(distance(&rank, rank.state->weights, ref.w, (int64_t)n) < 1e-5);
        assert_true(distance(&rank, rank.state->m, ref.m, (int64_t)n) < 1e-5);
        assert_true(distance(&rank, rank.state->v, ref.v, (int64_t)n) < 1e-5);
        assert_true(distance(&rank, rank.state->ema, ref.ema, (int64_t)n) < 1e-5);
        free(memory);
        free(ref.w32);
        rank_close(&rank);
    }
}

/* ---- planted bugs: each must change a bit or end in an error ---- */

typedef enum Plant { PLANT_NONE, PLANT_LOCAL_MAXIMUM, PLANT_LOST_RANK } Plant;
static Plant plant; /* set before the fork */

int __real_comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err);
int __wrap_comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err);

/* Wraps the calls of update.c to comm (ld --wrap). */
int __wrap_comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err)
{
    if (plant == PLANT_LOCAL_MAXIMUM && op == COMM_MAX)
        return 0; /* each rank decides only from its own grains */
    if (plant == PLANT_LOST_RANK && op == COMM_SUM && comm_rank(comm) == 1)
        memset(data, 0, n * comm_type_bytes(type));
    return __real_comm_all_reduce(comm, type, op, data, n, err);
}

static void planted_bugs_are_found(void **state)
{
    (void)state;
    Run *alone = world_share(sizeof(Run)), *run = world_share(sizeof(Run));
    const Case c = {4, 0, REDUCTION_EXACT, EMA_START, 1.0};
    run_world(1, &c, false, alone);
    for (plant = PLANT_NONE; plant <= PLANT_LOST_RANK; plant++) {
        memset(run, 0, sizeof(*run));
        run->c = c;
        World world = {.size = 2, .run = run_steps, .arg = run};
        if (plant != PLANT_NONE) /* ranks that disagree may wait for each other */
            world.timeout_usec = USEC_PER_SEC;
        int failed = world_run(&world, WORLD_SEC);
        bool same = failed == 0 && memcmp(run->records, alone->records, sizeof(run->records)) == 0;
        assert_int_equal(same, plant == PLANT_NONE);
    }
    plant = PLANT_NONE;
}

/* All grains have the same gradients, as large as possible: no accepted sum overflows. */
static void growth_is_redone_before_it_overflows(void **state)
{
    (void)state;
    static const float growths[] = {0,     1,    1.999f, 3.99f, 4.01f,  7.99f,  8.01f, 15.9f,
                                    16.1f, 1000, 1e10f,  1e30f, 1e-10f, 1e-38f, 4e36f};
    for (int64_t n_grains = 1; n_grains <= 9; n_grains++) {
        for (size_t i = 0; i < ELEMENTSOF(growths); i++) {
            Small small;
            const Case c = {n_grains, 0, REDUCTION_EXACT, 0, 0};
            small_open(&small, &c);
            UpdateResult result;
            update_begin(small.rank.update);
            assert_int_equal(small_pass(&small, 1, &result), UPDATE_REDO);
            assert_int_equal(small_pass(&small, 1, &result), UPDATE_ACCEPT);
            small_apply(&small, &result);

            update_begin(small.rank.update);
            UpdateVerdict verdict = small_pass(&small, growths[i], &result);
            if (growths[i] < 4)
                assert_int_equal(verdict, UPDATE_ACCEPT);
            if (growths[i] >= 16)
                assert_int_equal(verdict, UPDATE_REDO);
            if (verdict == UPDATE_REDO)
                assert_int_equal(small_pass(&small, growths[i], &result), UPDATE_ACCEPT);
            assert_int_equal(result.redone, verdict == UPDATE_REDO);
            small_apply(&small, &result);
            const int64_t n = small.rank.list.n_elements;
            device_download(small.rank.device, small.rank.gradients, small.rank.state->m,
                            (size_t)n * sizeof(float));
            for (int64_t k = 0; k < n; k += 97)
                assert_true(fabs((double)small.rank.gradients[k] - (double)growths[i]) <=
                            fmax(0x1p-20 * (double)growths[i], 0x1p-24));
            small_close(&small);
        }
    }
}

static void a_redone_step_must_repeat_its_gradients(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    Small small;
    const Case c = {2, 0, REDUCTION_EXACT, 0, 0};
    small_open(&small, &c);
    UpdateResult result;
    update_begin(small.rank.update);
    assert_int_equal(small_pass(&small, 1, &result), UPDATE_REDO);
    for (int64_t i = 0; i < small.rank.list.n_elements; i++)
        small.rank.gradients[i] = 1.5f;
    for (int64_t grain = 0; grain < 2; grain++)
        assert_int_equal(rank_add_grain(&small.rank, grain, true, 1, &err), 0);
    UpdateVerdict verdict;
    assert_int_equal(update_collect(small.rank.update, &err), 0);
    assert_int_equal(update_decide(small.rank.update, &verdict, &result, &err), -EBADMSG);
    small_close(&small);
}

/* A gradient that is infinite or too large to be summed in fp32, or a loss that is not a number, is never redone. */
static void non_finite_is_never_redone(void **state)
{
    (void)state;
    Small small;
    const Case c = {9, 1, REDUCTION_EXACT, 0, 0};
    small_open(&small, &c);
    UpdateResult result;
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN, 0x1p124f};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        update_begin(small.rank.update);
        assert_int_equal(small_pass(&small, bad[i], &result), UPDATE_NON_FINITE);
        assert_int_equal(result.bad_grain, 0);
        assert_string_equal(result.bad_tensor, "tensor.0");
        assert_int_equal(small.rank.state->scalars.step, 0);
    }
    Error err = ERROR_INIT;
    update_begin(small.rank.update);
    memset(small.rank.gradients, 0, (size_t)small.rank.list.n_elements * sizeof(float));
    for (int64_t grain = 0; grain < 9; grain++)
        assert_int_equal(rank_add_grain(&small.rank, grain, true, grain >= 7 ? NAN : 1, &err), 0);
    assert_int_equal(rank_decide(&small.rank, &result), UPDATE_NON_FINITE);
    assert_int_equal(result.bad_grain, 7);
    assert_string_equal(result.bad_tensor, "loss");
    small_close(&small);
}

/* The exponents of a step depend on exactly the 16 steps before it. */
static void the_window_is_sixteen_steps(void **state)
{
    (void)state;
    Small small;
    const Case c = {2, 0, REDUCTION_EXACT, 0, 0};
    small_open(&small, &c);
    UpdateResult result;
    for (int step = 1; step <= 40; step++) {
        float g = step == 1 || step == 17 || step == 34 ? 100.0f : 1.0f;
        update_begin(small.rank.update);
        UpdateVerdict verdict = small_pass(&small, g, &result);
        /* At step 17 the window still has step 1; at step 34 it has only steps 18 to 33, with gradients of 1. */
        assert_int_equal(verdict, step == 1 || step == 34 ? UPDATE_REDO : UPDATE_ACCEPT);
        if (verdict == UPDATE_REDO)
            assert_int_equal(small_pass(&small, g, &result), UPDATE_ACCEPT);
        small_apply(&small, &result);
        assert_int_equal(small.rank.state->scalars.n_maxima, MIN(step, MAXIMA_WINDOW));
        assert_int_equal(small.rank.state->scalars.n_accepted, step);
        assert_int_equal(small.rank.state->scalars.position, step * 2 * GRAIN_SAMPLES);
    }
    small_close(&small);
}

static void shares_cover_all_grains(void **state)
{
    (void)state;
    for (int64_t n_grains = 1; n_grains < 40; n_grains++) {
        for (int world = 1; world <= n_grains; world++) {
            int64_t next = 0, first, n, share, largest = 0;
            for (int rank = 0; rank < world; rank++) {
                grain_share(n_grains, rank, world, &first, &n, &share);
                assert_int_equal(first, next);
                assert_true(n >= 1 && n <= share);
                next += n;
                largest = MAX(largest, n);
            }
            assert_int_equal(next, n_grains);
            assert_int_equal(largest, share);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_cover_all_grains),
        cmocka_unit_test(bits_do_not_depend_on_the_world),
        cmocka_unit_test(floats_repeat_for_one_world_and_stage),
        cmocka_unit_test(planted_bugs_are_found),
        cmocka_unit_test(steps_follow_adamw),
        cmocka_unit_test(growth_is_redone_before_it_overflows),
        cmocka_unit_test(a_redone_step_must_repeat_its_gradients),
        cmocka_unit_test(non_finite_is_never_redone),
        cmocka_unit_test(the_window_is_sixteen_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
