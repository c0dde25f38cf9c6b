/* SPDX-License-Identifier: Apache-2.0 */
/* test-sink.c - tests gradient_take() and state_count() against a loop over elements in float64. */
#include "kernels/test/testing-reference.h"

enum { TENSORS_MAX = 8, EXPONENT_LOW = 20 };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* Returns rint(g * 2^exponent), saturated as SINK_COUNT saturates, or 0 if g is not finite. */
static int64_t counted(float g, int exponent, int bits)
{
    if (!isfinite(g))
        return 0;
    double v = nearbyint(ldexp((double)g, exponent));
    if (bits == 64)
        return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
    return (int64_t)fmax(-0x1p31, fmin(v, 2147483520.0));
}

/* A sink and its memory: elements [first, first + n) of the state, as bytes; exponents and maxima of all tensors. */
typedef struct Bowl {
    GradientSink sink;
    int64_t n;
    size_t element_bytes;
    char *to;
    int32_t exponents[TENSORS_MAX];
    uint32_t maxima[TENSORS_MAX], fresh;
} Bowl;

/* Fills a sink with old values, which also surround the range of the test. Some old values are near the limits of the
 * integers. */
static void bowl_fill(Bowl *bowl, SinkKind kind, int bits, bool fresh, int64_t first, int64_t n)
{
    *bowl =
        (Bowl){.n = n,
               .element_bytes = kind == SINK_COUNT && bits == 64 ? sizeof(int64_t) : sizeof(float),
               .fresh = fresh ? 7 : 0};
    bowl->to = calloc((size_t)n, bowl->element_bytes);
    assert_non_null(bowl->to);
    for (int64_t i = 0; i < n; i++) {
        const int32_t low = i % 7 == 0 ? INT32_MAX : (int32_t)(i * 1000003);
        const int64_t high = i % 7 == 0 ? INT64_MAX : i * INT64_C(1000003000007);
        const float old = (float)low * 0x1p-31f;
        memcpy(bowl->to + (size_t)i * bowl->element_bytes,
               kind != SINK_COUNT ? (const void *)&old
               : bits == 64       ? (const void *)&high
                                  : (const void *)&low,
               bowl->element_bytes);
    }
    for (int t = 0; t < TENSORS_MAX; t++) {
        bowl->exponents[t] = EXPONENT_LOW + t;
        bowl->maxima[t] = t % 2 ? bits_of(0.25f) : 0;
    }
    bowl->sink = (GradientSink){.kind = kind, .bits = bits, .first = first};
}

/* Returns the sink. Its pointers point into the Bowl, which must not be moved afterwards. */
static const GradientSink *bowl_sink(Bowl *bowl, bool with_fresh)
{
    bowl->sink.to = bowl->sink.kind == SINK_MAXIMA ? NULL : bowl->to;
    bowl->sink.exponents = bowl->exponents;
    bowl->sink.maxima = bowl->maxima;
    bowl->sink.fresh = with_fresh ? &bowl->fresh : NULL;
    return &bowl->sink;
}

/* Applies to a sink the effect that one element must have. */
static void expect_one(Bowl *bowl, float g, int64_t element, int tensor)
{
    const SinkKind kind = bowl->sink.kind;
    char *at = bowl->to + (size_t)(element - bowl->sink.first) * bowl->element_bytes;
    if (kind != SINK_PLAIN)
        bowl->maxima[tensor] = MAX(bowl->maxima[tensor], bits_of(g) & 0x7fffffffu);
    if (kind == SINK_MAXIMA)
        return;
    uint64_t old = 0;
    float sum = 0;
    if (!bowl->fresh) {
        memcpy(&old, at, bowl->element_bytes);
        memcpy(&sum, at, sizeof(sum));
    }
    if (kind == SINK_COUNT) {
        old += (uint64_t)counted(g, bowl->exponents[tensor], bowl->sink.bits);
        memcpy(at, &old, bowl->element_bytes);
        return;
    }
    sum = kind == SINK_PLAIN ? g : sum + g;
    memcpy(at, &sum, sizeof(sum));
}

static void assert_same(const Bowl *found, const Bowl *wanted)
{
    assert_memory_equal(found->maxima, wanted->maxima, sizeof(found->maxima));
    assert_memory_equal(found->to, wanted->to, (size_t)found->n * found->element_bytes);
}

/* Makes gradients with each kind of special value, and others of all sizes. */
static float *gradient_new(size_t n, bool special)
{
    static const float odd[] = {0.0f,  -0.0f,     1e-42f, -1e-42f,  0x1.fffffep-1f,
                                40.0f, -0x1p-20f, 3e4f,   -0x1p10f, 0x1.8p-21f};
    float *g = random_new(n, n);
    for (size_t i = 0; i < n; i += 3)
        g[i] *= ldexpf(1, -(int)(i % 40));
    for (size_t i = 0; i < n; i += 5)
        g[i] = odd[i / 5 % ELEMENTSOF(odd)];
    if (special && n > 2) {
        g[n / 2] = -NAN;
        g[n - 1] = -INFINITY;
        g[n / 3] = INFINITY;
    }
    return g;
}

typedef struct Case {
    int out, in, taps, n_tensors;
} Case;

static const Case cases[] = {{1, 1, 1, 1},  {3, 7, 9, 1},     {50, 30, 9, 1},   {96, 41, 1, 3},
                             {2, 5, 9, 2},  {6, 2, 1, 3},     {300, 130, 9, 3}, {1, 40961, 1, 1},
                             {77, 1, 1, 1}, {130, 257, 9, 2}, {12, 64, 1, 3},   {6, 132, 9, 3},
                             {5, 8, 9, 1},  {70, 260, 9, 1}};

static const struct {
    SinkKind kind;
    int bits;
} kinds[] = {{SINK_PLAIN, 0}, {SINK_MAXIMA, 0}, {SINK_COUNT, 32}, {SINK_COUNT, 64}, {SINK_ADD, 0}};

/* to[out][taps][in] = from[out][in][taps] */
static float *channels_last(const Case *c, const float *from, size_t n)
{
    float *to = floats_new(n);
    for (int o = 0; o < c->out; o++)
        for (int i = 0; i < c->in; i++)
            for (int t = 0; t < c->taps; t++)
                to[((size_t)o * (size_t)c->taps + (size_t)t) * (size_t)c->in + (size_t)i] =
                    from[((size_t)o * (size_t)c->in + (size_t)i) * (size_t)c->taps + (size_t)t];
    return to;
}

/* Returns the upper halves of the values, which are exact in bf16. */
static uint16_t *as_bf16(const float *from, size_t n)
{
    uint16_t *to = calloc(n, sizeof(*to));
    assert_non_null(to);
    for (size_t i = 0; i < n; i++)
        to[i] = (uint16_t)(bits_of(from[i]) >> 16);
    return to;
}

static void clear_lower_halves(float *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of(g[i]) & 0xffff0000u;
        memcpy(&g[i], &bits, sizeof(bits));
    }
}

/* Checks whole rows of one weight, at some distance from the sink's first element, with neighbours on both sides. */
static void check_take(const Case *c, SinkKind kind, int bits, int how, int threads)
{
    const int64_t n = (int64_t)c->out * c->in * c->taps, each = n / c->n_tensors;
    const int64_t first = 1000,
                  offset = how == 0 ? 1013 : 1016; /* 1016 is aligned for packs of 16 bytes */
    const GradientPlace place = {.offset = offset, .n = n, .tensor = 2, .n_tensors = c->n_tensors};
    const bool fresh = how == 2;
    Device *device = cpu_open(threads);
    float *g = gradient_new((size_t)n, (n + threads) % 2 == 0);
    const char *which = getenv("SDTRAIN_TEST_DEVICE"); /* only CUDA's kernels accept bf16 */
    const bool is_bf16 = which && strncmp(which, "emulated", 8) == 0 && threads == 3;
    if (is_bf16)
        clear_lower_halves(g, (size_t)n);
    float *last = channels_last(c, g, (size_t)n);
    uint16_t *half = as_bf16(g, (size_t)n), *half_last = as_bf16(last, (size_t)n);
    Bowl found, permuted, wanted;
    bowl_fill(&found, kind, bits, fresh, first, n + 40);
    bowl_fill(&permuted, kind, bits, fresh, first, n + 40);
    bowl_fill(&wanted, kind, bits, fresh, first, n + 40);

    GradientForm form = {is_bf16 ? DATA_BF16 : DATA_F32, GRADIENT_AS_STATE, c->out, c->in, c->taps};
    assert_int_equal(gradient_form_bytes(&form), (size_t)n * (is_bf16 ? 2 : sizeof(float)));
    gradient_take(device, &form, is_bf16 ? (void *)half : g, &place, bowl_sink(&found, how != 0));
    form.order = GRADIENT_CHANNELS_LAST;
    gradient_take(device, &form, is_bf16 ? (void *)half_last : last, &place,
                  bowl_sink(&permuted, how != 0));
    (void)bowl_sink(&wanted, how != 0);
    for (int64_t i = 0; i < n; i++)
        expect_one(&wanted, g[i], offset + i, 2 + (int)(i / each));
    assert_same(&found, &wanted);
    assert_same(&permuted, &wanted);
    free(found.to);
    free(permuted.to);
    free(wanted.to);
    free(half);
    free(half_last);
    floats_free(g, (size_t)n);
    floats_free(last, (size_t)n);
    device = device_free(device);
}

static void a_weight_of_any_form_reaches_each_sink(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        for (size_t k = 0; k < ELEMENTSOF(kinds); k++)
            for (int how = 0; how < 3; how++) /* `fresh` is: NULL; 0; not 0 */
                for (int threads = 1; threads <= 3; threads += 2)
                    check_take(&cases[i], kinds[k].kind, kinds[k].bits, how, threads);
}

/* A gradient of -0 gives +0 in fresh sums, just as if it were added to a 0 in memory. */
static void minus_zero_is_added_to_zero(void **state)
{
    (void)state;
    const GradientForm form = {DATA_F32, GRADIENT_AS_STATE, 1, 1, 1};
    const GradientPlace place = {.offset = 0, .n = 1, .tensor = 0, .n_tensors = 1};
    const float g = -0.0f;
    float to = 5;
    uint32_t maximum = 0, fresh = 1;
    GradientSink sink = {.kind = SINK_ADD, .to = &to, .maxima = &maximum, .fresh = &fresh};
    Device *device = cpu_open(1);
    gradient_take(device, &form, &g, &place, &sink);
    assert_int_equal(bits_of(to), 0);
    sink.kind = SINK_PLAIN;
    gradient_take(device, &form, &g, &place, &sink);
    assert_int_equal(bits_of(to), bits_of(-0.0f));
    device = device_free(device);
}

/* A range of the state is counted rightly wherever it begins and ends, with tensors of any length. */
static void a_range_of_the_state_is_counted_wherever_it_is_cut(void **state)
{
    (void)state;
    static const int64_t lengths[TENSORS_MAX] = {1, 70001, 5, 4096, 33, 20000, 1, 7};
    static const int64_t cuts[] = {0, 1, 2, 70000, 70003, 74103, 74104, 94130, 94144};
    TensorSpan spans[TENSORS_MAX];
    int64_t n = 0;
    for (int t = 0; t < TENSORS_MAX; n += lengths[t++])
        spans[t] = (TensorSpan){.offset = n, .n = lengths[t]};
    float *g = gradient_new((size_t)n, true);
    assert_int_equal(n, cuts[ELEMENTSOF(cuts) - 1]);
    for (size_t k = 0; k < ELEMENTSOF(kinds); k++)
        for (int threads = 1; threads <= 3; threads++) {
            const StatePlanShape shape = {.tensors = spans,
                                          .n_tensors = TENSORS_MAX,
                                          .n_elements = n,
                                          .chunk_elements = 4096,
                                          .n_ranks = 1,
                                          .n_shards = 1};
            Device *device = cpu_open(threads);
            StatePlan *plan;
            Error err = ERROR_INIT;
            Bowl found, wanted;
            assert_int_equal(state_plan_new(device, &shape, &plan, &err), 0);
            bowl_fill(&found, kinds[k].kind, kinds[k].bits, threads == 3, 0, n);
            bowl_fill(&wanted, kinds[k].kind, kinds[k].bits, threads == 3, 0, n);
            for (size_t i = 0; i + 1 < ELEMENTSOF(cuts); i++)
                state_count(plan, g + cuts[i], cuts[i], cuts[i + 1], bowl_sink(&found, true));
            (void)bowl_sink(&wanted, true);
            for (int t = 0; t < TENSORS_MAX; t++)
                for (int64_t i = spans[t].offset; i < spans[t].offset + spans[t].n; i++)
                    expect_one(&wanted, g[i], i, t);
            assert_same(&found, &wanted);
            free(found.to);
            free(wanted.to);
            plan = state_plan_free(plan);
            device = device_free(device);
        }
    floats_free(g, (size_t)n);
}

/* The cases below are ties, signs, both ends of the range, values that saturate, and values that count as 0. */
enum { SATURATED = 2147483520 }; /* the largest float below 2^31 */

static void test_corners(void **state)
{
    (void)state;
    static const struct {
        float g;
        int64_t expected32, expected64;
    } corners[] = {
        {0.5f, 0, 0},
        {1.5f, 2, 2},
        {2.5f, 2, 2},
        {-0.5f, 0, 0},
        {-1.5f, -2, -2},
        {-2.5f, -2, -2},
        {0.49999997f, 0, 0},
        {8388607.5f, 8388608, 8388608},
        {0x1.fffffep30f, 2147483520, 2147483520},
        {-0x1p31f, INT32_MIN, INT32_MIN},
        {0x1p31f, SATURATED, INT64_C(1) << 31},
        {-0x1.8p31f, INT32_MIN, -(INT64_C(3) << 30)},
        {0x1.000002p51f, SATURATED, (INT64_C(1) << 51) + (INT64_C(1) << 28)},
        {0x1.fffffep61f, SATURATED, (INT64_C(1) << 62) - (INT64_C(1) << 38)},
        {0x1p63f, SATURATED, INT64_MAX},
        {-0x1p70f, INT32_MIN, INT64_MIN},
        {INFINITY, 0, 0},
        {-INFINITY, 0, 0},
        {NAN, 0, 0},
    };
    const GradientForm form = {DATA_F32, GRADIENT_AS_STATE, 1, 1, 1};
    const GradientPlace place = {.n = 1, .n_tensors = 1};
    Device *device = cpu_open(1);
    for (size_t i = 0; i < ELEMENTSOF(corners); i++)
        for (int32_t exponent = -40; exponent <= 40; exponent += 40) {
            const float g = corners[i].g * (float)ldexp(1, -exponent);
            int32_t sum = 0;
            int64_t sum64 = 0;
            uint32_t maximum = 0;
            GradientSink sink = {SINK_COUNT, .bits = 32, .to = &sum, .exponents = &exponent,
                                 .maxima = &maximum};
            gradient_take(device, &form, &g, &place, &sink);
            sink.bits = 64;
            sink.to = &sum64;
            gradient_take(device, &form, &g, &place, &sink);
            assert_int_equal(sum, (int32_t)corners[i].expected32);
            assert_true(sum64 == corners[i].expected64);
            assert_int_equal(maximum, bits_of(g) & 0x7fffffffu);
        }
    device = device_free(device);
}

/* The largest value is found, whichever thread of a block has it. In each round the largest value is the next float
 * above that of the round before. */
static void the_largest_is_found_wherever_it_lies(void **state)
{
    (void)state;
    enum { OUT = 9, IN = 64, N = OUT * IN * 9 };
    static const GradientForm forms[] = {{DATA_F32, GRADIENT_AS_STATE, OUT, IN, 9},
                                         {DATA_F32, GRADIENT_CHANNELS_LAST, OUT, IN, 9}};
    const GradientPlace place = {.n = N, .n_tensors = 1};
    Device *device = cpu_open(1);
    float *g = floats_new(N);
    memset(g, 0, N * sizeof(float));
    for (size_t i = 0; i < ELEMENTSOF(forms); i++) {
        float largest = 1;
        uint32_t maximum = bits_of(largest);
        for (size_t at = i; at < N; at += 61) {
            largest = g[at] = nextafterf(largest, 2);
            gradient_take(device, &forms[i], g, &place,
                          &(GradientSink){.kind = SINK_MAXIMA, .maxima = &maximum});
            assert_int_equal(maximum, bits_of(largest));
            g[at] = 0;
        }
    }
    floats_free(g, N);
    device = device_free(device);
}

int main(void)
{
    /* if there are more threads than cores, they must not spin */
    (void)setenv("OMP_WAIT_POLICY", "passive", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_of_any_form_reaches_each_sink),
        cmocka_unit_test(minus_zero_is_added_to_zero),
        cmocka_unit_test(a_range_of_the_state_is_counted_wherever_it_is_cut),
        cmocka_unit_test(test_corners),
        cmocka_unit_test(the_largest_is_found_wherever_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
