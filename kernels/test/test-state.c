/* SPDX-License-Identifier: Apache-2.0 */
/* test-state.c - tests the operations over whole ranges of the training state against loops over elements, exactly
 * where kernels.h guarantees exactness. */
#include "kernels/test/testing-reference.h"

enum { TENSORS = 9, CHUNK = 4096, SQUARES_PARTS = 64, SQUARES_LANES = 16 };

static const int64_t lengths[TENSORS] = {3, 20001, 1, 4095, 4096, 17, 9000, 2, 1337};

/* A state of nine tensors, whose last chunk is shorter. */
typedef struct Fixture {
    TensorSpan spans[TENSORS];
    int32_t exponents[TENSORS];
    int64_t n, n_chunks;
    float *gradient; /* the gradient that the sums represent */
    int32_t *sums;
    int64_t *sums64;
} Fixture;

static const double scale = 1.0 / 3;

static void fixture_open(Fixture *f)
{
    *f = (Fixture){0};
    for (int t = 0; t < TENSORS; f->n += lengths[t++]) {
        f->spans[t] = (TensorSpan){.offset = f->n, .n = lengths[t]};
        f->exponents[t] = t == 4 ? -20 : 20 + t;
    }
    f->n_chunks = DIV_ROUND_UP(f->n, (int64_t)CHUNK);
    assert_true(f->n % CHUNK != 0);
    f->gradient = floats_new((size_t)f->n);
    f->sums = calloc((size_t)f->n, sizeof(*f->sums));
    f->sums64 = calloc((size_t)f->n, sizeof(*f->sums64));
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = f->spans[t].offset; i < f->spans[t].offset + f->spans[t].n; i++) {
            f->sums[i] = (int32_t)philox4x32(5, (uint64_t)i, 0).word[0] >> (i % 20);
            f->sums64[i] = f->sums[i];
            f->gradient[i] = (float)(ldexp((double)f->sums[i], -f->exponents[t]) * scale);
        }
}

static void fixture_close(Fixture *f)
{
    floats_free(f->gradient, (size_t)f->n);
    free(f->sums);
    free(f->sums64);
}

static StatePlan *plan_new(Device *device, const Fixture *f, int n_ranks, int rank, int n_shards)
{
    const StatePlanShape shape = {.tensors = f->spans,
                                  .n_tensors = TENSORS,
                                  .n_elements = f->n,
                                  .chunk_elements = CHUNK,
                                  .n_ranks = n_ranks,
                                  .rank = rank,
                                  .n_shards = n_shards,
                                  .shard = n_shards == 1 ? 0 : rank};
    StatePlan *plan;
    Error err = ERROR_INIT;
    assert_int_equal(state_plan_new(device, &shape, &plan, &err), 0);
    return plan;
}

static int64_t slots(const Fixture *f, int n_shards) { return DIV_ROUND_UP(f->n_chunks, n_shards); }

/* Returns the shard of `flat`, padded with zeros. */
static void *shard_new(const Fixture *f, const void *flat, size_t element_bytes, int n_shards,
                       int shard)
{
    char *to = calloc((size_t)(slots(f, n_shards) * CHUNK), element_bytes);
    assert_non_null(to);
    for (int64_t c = shard; c < f->n_chunks; c += n_shards)
        memcpy(to + (size_t)(c / n_shards * CHUNK) * element_bytes,
               (const char *)flat + (size_t)(c * CHUNK) * element_bytes,
               (size_t)MIN((int64_t)CHUNK, f->n - c * CHUNK) * element_bytes);
    return to;
}

static const SumType types[] = {SUM_I32, SUM_I64, SUM_F32};

/* Returns the sums of one type, of the whole state or of one shard. The caller frees *ret_data. */
static GradientSums sums_of(const Fixture *f, SumType type, bool is_shard, int n_shards, int shard,
                            void **ret_data)
{
    const void *flat = type == SUM_I32   ? (const void *)f->sums
                       : type == SUM_I64 ? (const void *)f->sums64
                                         : (const void *)f->gradient;
    const size_t bytes = type == SUM_I64 ? sizeof(int64_t) : sizeof(int32_t);
    *ret_data = shard_new(f, flat, bytes, is_shard ? n_shards : 1, is_shard ? shard : 0);
    return (GradientSums){.data = *ret_data,
                          .type = type,
                          .is_shard = is_shard,
                          .exponents = f->exponents,
                          .scale = scale};
}

/* Computes the sum by the tree: 64 parts of whole lanes, each lane a chain, lanes folded in halves, parts in order. */
static double squares_of(const float *g, int64_t n)
{
    int64_t each = DIV_ROUND_UP(DIV_ROUND_UP(n, (int64_t)SQUARES_PARTS), (int64_t)SQUARES_LANES) *
                   SQUARES_LANES;
    double total = 0;
    for (int part = 0; part < SQUARES_PARTS; part++) {
        double lane[SQUARES_LANES] = {0};
        for (int64_t i = part * each; i < MIN((part + 1) * each, n); i++)
            lane[(i - part * each) % SQUARES_LANES] += (double)g[i] * (double)g[i];
        for (int width = SQUARES_LANES / 2; width > 0; width /= 2)
            for (int j = 0; j < width; j++)
                lane[j] += lane[j + width];
        total += lane[0];
    }
    return total;
}

static void check_squares(const Fixture *f, int threads, int n_ranks, int rank, int n_shards,
                          SumType type)
{
    Device *device = cpu_open(threads);
    StatePlan *plan = plan_new(device, f, n_ranks, rank, n_shards);
    void *data;
    const bool is_shard = n_shards > 1;
    GradientSums sums = sums_of(f, type, is_shard, n_shards, rank, &data);
    double squares[64];
    for (size_t i = 0; i < ELEMENTSOF(squares); i++)
        squares[i] = -1;
    state_squares(plan, &sums, squares);
    int64_t slot = 0;
    for (int64_t c = rank; c < f->n_chunks; c += n_ranks, slot++)
        assert_true(squares[slot] ==
                    squares_of(f->gradient + c * CHUNK, MIN((int64_t)CHUNK, f->n - c * CHUNK)));
    assert_true(squares[slot] == -1);
    free(data);
    plan = state_plan_free(plan);
    device = device_free(device);
}

static void squares_are_of_each_chunk_by_one_tree(void **state)
{
    (void)state;
    Fixture f;
    fixture_open(&f);
    for (int threads = 1; threads <= 5; threads += 2)
        for (int n_ranks = 1; n_ranks <= 4; n_ranks++)
            for (int rank = 0; rank < n_ranks; rank++)
                for (size_t type = 0; type < ELEMENTSOF(types); type++) {
                    check_squares(&f, threads, n_ranks, rank, 1, types[type]);
                    check_squares(&f, threads, n_ranks, rank, n_ranks, types[type]);
                }
    fixture_close(&f);
}

/* Squares are right for a single chunk of any length. */
static void squares_hold_for_any_length(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 15, 16, 17, 1023, 1025, 100003};
    for (size_t k = 0; k < ELEMENTSOF(sizes); k++)
        for (int threads = 1; threads <= 2; threads++) {
            float *g = random_new((size_t)sizes[k], 1);
            const TensorSpan span = {0, sizes[k]};
            const StatePlanShape shape = {.tensors = &span,
                                          .n_tensors = 1,
                                          .n_elements = sizes[k],
                                          .chunk_elements = 1 << 17,
                                          .n_ranks = 1,
                                          .n_shards = 1};
            const GradientSums sums = {.data = g, .type = SUM_F32};
            Device *device = cpu_open(threads);
            StatePlan *plan;
            Error err = ERROR_INIT;
            double found;
            long double expected = 0;
            assert_int_equal(state_plan_new(device, &shape, &plan, &err), 0);
            state_squares(plan, &sums, &found);
            for (int64_t i = 0; i < sizes[k]; i++)
                expected += (long double)g[i] * (long double)g[i];
            assert_true(found == squares_of(g, sizes[k]));
            assert_true(fabsl((long double)found / expected - 1) < 1e-13L);
            floats_free(g, (size_t)sizes[k]);
            plan = state_plan_free(plan);
            device = device_free(device);
        }
}

typedef struct Moments {
    float *w, *m, *v, *ema; /* the values of the whole state */
} Moments;

static Moments moments_new(size_t n)
{
    Moments s = {random_new(n, 1), random_new(n, 2), random_new(n, 3), random_new(n, 4)};
    for (size_t i = 0; i < n; i++)
        s.v[i] *= s.v[i];
    return s;
}

static void moments_free(Moments *s, size_t n)
{
    floats_free(s->w, n);
    floats_free(s->m, n);
    floats_free(s->v, n);
    floats_free(s->ema, n);
}

static const AdamW settings = {.lr = 1e-3f,
                               .eps = 1e-8f,
                               .weight_decay = 0.01f,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .gradient_scale = 0.7f,
                               .correction1 = 0.19f,
                               .correction2 = 0.002f};

/* Computes one element's update with the order of rounding that the kernels must have. */
static void expect_update(const AdamW *a, double decay, float g, Moments *s, int64_t i, bool ema)
{
    const float gradient = g * a->gradient_scale;
    s->m[i] = (float)a->beta1 * s->m[i] + (float)(1.0 - a->beta1) * gradient;
    s->v[i] = (float)a->beta2 * s->v[i] + (float)(1.0 - a->beta2) * (gradient * gradient);
    s->w[i] = (s->w[i] - a->lr * a->weight_decay * s->w[i]) -
              a->lr / a->correction1 * (s->m[i] / (sqrtf(s->v[i] / a->correction2) + a->eps));
    if (ema)
        s->ema[i] = (float)decay * s->ema[i] + (float)(1.0 - decay) * s->w[i];
}

/* Checks that all shards of one world together give the result of the whole state. */
static void check_update(const Fixture *f, int threads, int n_shards, SumType type, bool is_shard,
                         bool ema)
{
    const size_t n = (size_t)f->n, bytes = sizeof(float);
    Moments wanted = moments_new(n), before = moments_new(n);
    Device *device = cpu_open(threads);
    for (int64_t i = 0; i < f->n; i++)
        expect_update(&settings, 0.75, f->gradient[i], &wanted, i, ema);
    for (int shard = 0; shard < n_shards; shard++) {
        StatePlan *plan = plan_new(device, f, n_shards, shard, n_shards);
        void *data, *m = shard_new(f, before.m, bytes, n_shards, shard);
        void *v = shard_new(f, before.v, bytes, n_shards, shard);
        void *e = shard_new(f, before.ema, bytes, n_shards, shard);
        GradientSums sums = sums_of(f, type, is_shard, n_shards, shard, &data);
        state_update(plan, &settings, 0.75, &sums, before.w, m, v, ema ? e : NULL);
        void *const found[] = {m, v, e};
        const float *const flat[] = {wanted.m, wanted.v, wanted.ema};
        for (size_t k = 0; k < ELEMENTSOF(found); k++) {
            void *expected = shard_new(f, flat[k], bytes, n_shards, shard);
            assert_memory_equal(found[k], expected, (size_t)(slots(f, n_shards) * CHUNK) * bytes);
            free(expected);
            free(found[k]);
        }
        free(data);
        plan = state_plan_free(plan);
    }
    assert_memory_equal(before.w, wanted.w, n * bytes);
    moments_free(&wanted, n);
    moments_free(&before, n);
    device = device_free(device);
}

static void an_update_is_one_of_each_element(void **state)
{
    (void)state;
    Fixture f;
    fixture_open(&f);
    for (int threads = 1; threads <= 5; threads += 2)
        for (int n_shards = 1; n_shards <= 4; n_shards++)
            for (size_t type = 0; type < ELEMENTSOF(types); type++) {
                check_update(&f, threads, n_shards, types[type], false, true);
                check_update(&f, threads, n_shards, types[type], true, n_shards % 2 == 0);
            }
    fixture_close(&f);
}

/* A rank whose shard has no chunk, because there are more ranks than chunks, changes nothing. */
static void a_rank_without_a_chunk_does_nothing(void **state)
{
    (void)state;
    Fixture f;
    fixture_open(&f);
    const int world = (int)f.n_chunks + 2;
    Device *device = cpu_open(2);
    StatePlan *plan = plan_new(device, &f, world, world - 1, world);
    GradientSums sums = {.data = f.sums, .exponents = f.exponents, .scale = scale};
    double square = -1;
    state_squares(plan, &sums, &square);
    assert_true(square == -1);
    state_update(plan, &settings, 0.5, &sums, NULL, NULL, NULL, NULL);
    plan = state_plan_free(plan);
    device = device_free(device);
    fixture_close(&f);
}

/* Ten steps of AdamW from zero moments give nearly the values that float64 gives. */
static void test_adamw(void **state)
{
    (void)state;
    const size_t n = 70001;
    const TensorSpan span = {0, (int64_t)n};
    const StatePlanShape shape = {.tensors = &span,
                                  .n_tensors = 1,
                                  .n_elements = (int64_t)n,
                                  .chunk_elements = 1 << 14,
                                  .n_ranks = 1,
                                  .n_shards = 1};
    AdamW a = settings;
    a.gradient_scale = 0.5f;
    Device *device = cpu_open(2);
    StatePlan *plan;
    Error err = ERROR_INIT;
    float *w = random_new(n, 1), *m = floats_new(n), *v = floats_new(n);
    double *ew = doubles_new(n), *em = doubles_new(n), *ev = doubles_new(n);
    assert_int_equal(state_plan_new(device, &shape, &plan, &err), 0);
    memset(m, 0, n * sizeof(float));
    memset(v, 0, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        ew[i] = (double)w[i];
    for (int step = 1; step <= 10; step++) {
        float *g = random_new(n, 100 + (uint64_t)step);
        const GradientSums sums = {.data = g, .type = SUM_F32};
        a.correction1 = (float)(1 - pow(0.9, step));
        a.correction2 = (float)(1 - pow(0.999, step));
        state_update(plan, &a, 0, &sums, w, m, v, NULL);
        for (size_t i = 0; i < n; i++) {
            const double gradient = (double)g[i] * 0.5;
            ew[i] -= 1e-3 * 0.01 * ew[i];
            em[i] = 0.9 * em[i] + 0.1 * gradient;
            ev[i] = 0.999 * ev[i] + 0.001 * gradient * gradient;
            ew[i] -=
                1e-3 / (1 - pow(0.9, step)) * em[i] / (sqrt(ev[i] / (1 - pow(0.999, step))) + 1e-8);
        }
        floats_free(g, n);
    }
    assert_near("weights", w, ew, n, 1e-6);
    assert_near("first moments", m, em, n, 1e-6);
    assert_near("second moments", v, ev, n, 1e-6);
    floats_free(w, n);
    floats_free(m, n);
    floats_free(v, n);
    free(ew);
    free(em);
    free(ev);
    plan = state_plan_free(plan);
    device = device_free(device);
}

int main(void)
{
    /* if there are more threads than cores, they must not spin */
    (void)setenv("OMP_WAIT_POLICY", "passive", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_are_of_each_chunk_by_one_tree),
        cmocka_unit_test(squares_hold_for_any_length),
        cmocka_unit_test(an_update_is_one_of_each_element),
        cmocka_unit_test(a_rank_without_a_chunk_does_nothing),
        cmocka_unit_test(test_adamw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
