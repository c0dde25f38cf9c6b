/* SPDX-License-Identifier: Apache-2.0 */
/* test-attention-tile.c - tests attention by tensor cores in the emulator: against float64 under each model of an mma,
 * within a bound that is derived here; the same bits in every order of threads; scores far below zero.
 *
 * ---- The bound ----
 *
 * Each element has a bound, computed from its own operands in float64. U = 2^-8 is the largest part of a value that
 * rounding to bf16 changes; F = 2^-23 is twice the largest part that rounding to fp32 changes, and also bounds a
 * rounding that cuts off.
 *
 * A step of an mma adds 16 products to the previous sum. Let T be the sum of the sizes of these 17 terms.
 *     card:   each term loses less than 2^-25 of a power of two that the largest term reaches, and the final rounding
 *             loses F of the sum: 17 * 2^-25 T + F T = 5.25 F T.
 *     fused:  F / 2 * T.
 *     single: 16 roundings, each of F / 2 * T.
 * All are at most E T with E = 8.1 F, and the error of a sum of n steps is at most n E of the sum of its terms' sizes.
 *
 * Scores s of a query: four steps, so the error is ds = 4 E scale sum |q||k|; the scale is a power of two. Exponentials
 * of s - m, where m is the computed maximum: the difference is rounded (F |s - m| / 2), vector_exp() has an error of
 * 1.3e-7. So each exponential has a factor between e^-D and e^D, D = max (ds + F |s - m|) + 1.3e-7, and so has their
 * sum, which adds 24 roundings. Probabilities p, computed from both, have an error of
 *     P p, P = e^(2 D) - 1 + 32 F, before they are rounded to bf16, and (P + 1.1 U) p afterwards.
 * TINY bounds the exponentials that vector_exp() cuts off below -87.
 *
 * Forward: n = keys / 16 steps of p v, then out is rounded:
 *     d out = e + U (|out| + e), e = (P + 1.1 U + n E) sum p |v|.
 * Backward: dp = sum dout v has four steps; delta = sum dout out uses the rounded out of forward:
 *     d dp = 4 E sum |dout||v|, d delta = sum |dout| d out + 64 F sum |dout| (|out| + d out),
 *     slope g = p (dp - delta): d g = p ((1 + P) (d dp + d delta) + (P + 2 F) |dp - delta|), and when g is rounded,
 *     U (|g| + d g) more,
 *     d dq = scale (sum d g |k| + n E sum (|g| + d g) |k|) + U |dq| (1 + U)
 *     d dk = the same over queries with |q|: n = queries / 16 steps, and 8 F of the cluster's blocks;
 *     d dv = sum (P + 1.1 U + n E + 8 F) (1 + U) p |dout|, + U |dv| (1 + U).
 */
#include "base/number/hash.h"
#include "kernels/test/emulator/emulated.h"
#include "kernels/test/testing-reference.h"

#include <inttypes.h>

static const double U = 0x1p-8, F = 0x1p-23, E = 8.1 * 0x1p-23, TINY = 1e-36;

enum { HEAD = 64, PAD = 64 }; /* PAD: elements around each tensor that must stay unchanged */

static const uint16_t guard = 0x4abc;

static float of_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* ---- operands ---- */

typedef enum Name { Q, K, V, DOUT, OUT, DQ, DK, DV, N_TENSORS } Name;

typedef struct Case {
    AttentionShape shape;
    double size; /* the elements of the queries are between -size and size */
    double bias; /* the number that is added to all scores */
    int offset;  /* where each tensor begins, in elements after a 16-byte boundary */
} Case;

typedef struct Run {
    Case c;
    uint16_t *memory[N_TENSORS], *of[N_TENSORS];
    size_t n[N_TENSORS];
    float *saved;
} Run;

static bool is_of_queries(Name name)
{
    return name == Q || name == DQ || name == OUT || name == DOUT;
}

static int64_t tokens_of(const AttentionShape *s, Name name)
{
    return is_of_queries(name) ? s->q_tokens : s->kv_tokens;
}

static int stride_of(const AttentionShape *s, Name name)
{
    if (name == OUT || name == DOUT)
        return s->heads * HEAD;
    return is_of_queries(name) ? s->q_stride : s->kv_stride;
}

static size_t at(const AttentionShape *s, Name name, int image, int head, int64_t token)
{
    return (size_t)(image * tokens_of(s, name) + token) * (size_t)stride_of(s, name) +
           (size_t)(head * HEAD);
}

static float draw(uint64_t seed, size_t i)
{
    return 2.0f * philox_uniform(philox4x32(seed, 0, i).word[0]) - 1.0f;
}

/* Fills the operands. The first elements of a head give each score the bias: the element is 1 in k, and 8 * bias in q,
 * because the scale is 1 / 8. */
static void fill(Run *r)
{
    const AttentionShape *s = &r->c.shape;
    for (Name name = Q; name <= DOUT; name++)
        for (size_t i = 0; i < r->n[name]; i++)
            r->of[name][i] = to_bf16(draw(name + 1, i) * (name == Q ? (float)r->c.size : 1.0f));
    for (int image = 0; r->c.bias != 0 && image < s->n; image++)
        for (int head = 0; head < s->heads; head++) {
            for (int64_t i = 0; i < s->q_tokens; i++)
                r->of[Q][at(s, Q, image, head, i)] = to_bf16((float)(8 * r->c.bias));
            for (int64_t i = 0; i < s->kv_tokens; i++)
                r->of[K][at(s, K, image, head, i)] = to_bf16(1);
        }
}

static Run run_new(const Case *c)
{
    Run r = {.c = *c};
    for (Name name = Q; name < N_TENSORS; name++) {
        const size_t rows = (size_t)(c->shape.n * tokens_of(&c->shape, name));
        r.n[name] = rows * (size_t)stride_of(&c->shape, name);
        const size_t all = r.n[name] + 2 * PAD;
        r.memory[name] = aligned_alloc(64, ROUND_UP(all * sizeof(uint16_t), (size_t)64));
        assert_non_null(r.memory[name]);
        for (size_t i = 0; i < all; i++)
            r.memory[name][i] = guard;
        r.of[name] = r.memory[name] + PAD / 2 + c->offset;
    }
    r.saved = floats_new((size_t)(2 * c->shape.n * c->shape.heads * c->shape.q_tokens));
    fill(&r);
    return r;
}

/* Frees the tensors, after a check that nothing beside the heads' results was written. */
static void run_free(Run *r)
{
    const AttentionShape *s = &r->c.shape;
    for (Name name = Q; name < N_TENSORS; name++) {
        const int width = s->heads * HEAD, stride = stride_of(s, name);
        for (size_t i = 0; name >= OUT && i < r->n[name]; i++)
            if ((int)(i % (size_t)stride) >= width)
                assert_int_equal(r->of[name][i], guard);
        for (int i = 0; i < PAD / 2 + r->c.offset; i++)
            assert_int_equal(r->memory[name][i], guard);
        for (int i = 0; i < PAD / 2 - r->c.offset; i++)
            assert_int_equal(r->of[name][r->n[name] + (size_t)i], guard);
        free(r->memory[name]);
    }
    floats_free(r->saved, (size_t)(2 * s->n * s->heads * s->q_tokens));
}

static Device *open_device(DataType type)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = type};
    Device *device;
    Error err = ERROR_INIT;
    if (emulated_device_open(&options, &device, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}

static void compute(Run *r, const MmaModel *model, uint64_t seed)
{
    Device *device = open_device(DATA_BF16);
    Attention *attention;
    Error err = ERROR_INIT;
    if (attention_new(device, &r->c.shape, &attention, &err) < 0)
        fail_msg("%s", err.text);
    /* The plain kernel would need a workspace. */
    assert_int_equal(attention_workspace_bytes(attention), 0);
    assert_int_equal(attention_saved_bytes(attention),
                     8 * r->c.shape.n * r->c.shape.heads * r->c.shape.q_tokens);
    emulated_device_seed(seed);
    emulated_mma_model(model);
    attention_forward(attention, r->of[Q], r->of[K], r->of[V], r->of[OUT], r->saved, NULL);
    attention_backward(attention, r->of[Q], r->of[K], r->of[V], r->of[OUT], r->saved, r->of[DOUT],
                       r->of[DQ], r->of[DK], r->of[DV], NULL);
    emulated_mma_model(&mma_model_card);
    emulated_device_seed(0);
    attention = attention_free(attention);
    device = device_free(device);
}

/* ---- results in float64, and the bounds of the errors ---- */

/* The tensors of one head of one image, and the bounds of their errors, each [tokens][HEAD]. */
typedef struct Head {
    int64_t queries, keys;
    bool causal;
    double *value[N_TENSORS], *bound[N_TENSORS];
} Head;

static Head head_new(const Run *r, int image, int head)
{
    const AttentionShape *s = &r->c.shape;
    Head h = {s->q_tokens, s->kv_tokens, s->causal, {NULL}, {NULL}};
    for (Name name = Q; name < N_TENSORS; name++) {
        const int64_t tokens = tokens_of(s, name);
        h.value[name] = doubles_new((size_t)(tokens * HEAD));
        h.bound[name] = doubles_new((size_t)(tokens * HEAD));
        for (int64_t i = 0; name <= DOUT && i < tokens; i++)
            for (int j = 0; j < HEAD; j++)
                h.value[name][i * HEAD + j] =
                    (double)of_bf16(r->of[name][at(s, name, image, head, i) + (size_t)j]);
    }
    return h;
}

static void head_free(Head *h)
{
    for (Name name = Q; name < N_TENSORS; name++) {
        free(h->value[name]);
        free(h->bound[name]);
    }
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < HEAD; i++)
        sum += a[i] * b[i];
    return sum;
}

static double dot_sizes(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < HEAD; i++)
        sum += fabs(a[i] * b[i]);
    return sum;
}

/* Returns P as defined in this file's first comment, and writes the probabilities to p. */
static double probabilities(const Head *h, int64_t query, double *p)
{
    const double *q = h->value[Q] + query * HEAD;
    const int64_t keys = h->causal ? query + 1 : h->keys;
    double most = -INFINITY, sum = 0, d = 0;
    for (int64_t i = 0; i < h->keys; i++)
        p[i] = 0;
    for (int64_t i = 0; i < keys; i++) {
        p[i] = dot(q, h->value[K] + i * HEAD) / 8;
        most = MAX(most, p[i]);
    }
    for (int64_t i = 0; i < keys; i++) {
        const double ds = 4 * E * dot_sizes(q, h->value[K] + i * HEAD) / 8;
        d = MAX(d, ds + F * MIN(most - p[i], 88.0));
        p[i] = exp(p[i] - most);
        sum += p[i];
    }
    for (int64_t i = 0; i < keys; i++)
        p[i] /= sum;
    return exp(2 * (d + 1.3e-7)) - 1 + 32 * F;
}

static double steps(int64_t tokens) { return (double)DIV_ROUND_UP(tokens, 16); }

static void forward(Head *h, int64_t query, const double *p, double P)
{
    for (int j = 0; j < HEAD; j++) {
        double *out = &h->value[OUT][query * HEAD + j], *bound = &h->bound[OUT][query * HEAD + j];
        double sizes = 0;
        for (int64_t i = 0; i < h->keys; i++) {
            *out += p[i] * h->value[V][i * HEAD + j];
            sizes += p[i] * fabs(h->value[V][i * HEAD + j]);
        }
        *bound = (P + 1.1 * U + steps(h->keys) * E) * sizes;
        *bound += U * (fabs(*out) + *bound) + TINY;
    }
}

/* Computes the bounds of dq, dk and dv. The rounding of these values is added later, by finish(). */
static void backward(Head *h, int64_t query, const double *p, double P)
{
    const double *q = h->value[Q] + query * HEAD, *dout = h->value[DOUT] + query * HEAD;
    const double *out = h->value[OUT] + query * HEAD, *d_out = h->bound[OUT] + query * HEAD;
    const double nq = steps(h->queries) * E + 8 * F, nk = steps(h->keys) * E;
    const double delta = dot(dout, out);
    const double d_delta =
        dot_sizes(dout, d_out) + 64 * F * (dot_sizes(dout, out) + dot_sizes(dout, d_out));
    for (int64_t i = 0; i < h->keys; i++) {
        const double *k = h->value[K] + i * HEAD, *v = h->value[V] + i * HEAD;
        const double dp = dot(dout, v), d_dp = 4 * E * dot_sizes(dout, v);
        const double g = p[i] * (dp - delta);
        double d_g = p[i] * ((1 + P) * (d_dp + d_delta) + (P + 2 * F) * fabs(dp - delta));
        d_g += U * (fabs(g) + d_g) + TINY;
        const double size = fabs(g) + d_g;
        for (int j = 0; j < HEAD; j++) {
            h->value[DQ][query * HEAD + j] += g * k[j] / 8;
            h->bound[DQ][query * HEAD + j] += (d_g + nk * size) * fabs(k[j]) / 8;
            h->value[DK][i * HEAD + j] += g * q[j] / 8;
            h->bound[DK][i * HEAD + j] += (d_g + nq * size) * fabs(q[j]) / 8;
            h->value[DV][i * HEAD + j] += p[i] * dout[j];
            h->bound[DV][i * HEAD + j] +=
                (P + 1.1 * U + nq) * (1 + U) * p[i] * fabs(dout[j]) + TINY;
        }
    }
}

static void finish(Head *h)
{
    for (Name name = DQ; name <= DV; name++)
        for (int64_t i = 0; i < (name == DQ ? h->queries : h->keys) * HEAD; i++)
            h->bound[name][i] += U * (fabs(h->value[name][i]) + h->bound[name][i]);
}

/* Returns the largest ratio of an error to its bound. */
static double compare_head(const Run *r, int image, int head)
{
    static const char *const names[] = {[OUT] = "out", [DQ] = "dq", [DK] = "dk", [DV] = "dv"};
    const AttentionShape *s = &r->c.shape;
    Head h = head_new(r, image, head);
    double *p = doubles_new((size_t)h.keys), most = 0;
    for (int64_t query = 0; query < h.queries; query++) {
        const double P = probabilities(&h, query, p);
        forward(&h, query, p, P);
        backward(&h, query, p, P);
    }
    finish(&h);
    for (Name name = OUT; name < N_TENSORS; name++)
        for (int64_t i = 0; i < tokens_of(s, name); i++)
            for (int j = 0; j < HEAD; j++) {
                const double want = h.value[name][i * HEAD + j];
                const double bound = h.bound[name][i * HEAD + j];
                const double got =
                    (double)of_bf16(r->of[name][at(s, name, image, head, i) + (size_t)j]);
                if (!(fabs(got - want) <= bound))
                    fail_msg("%s of %" PRId64 "x%" PRId64 ", token %" PRId64
                             ", element %d: %g, should be %g within %g",
                             names[name], h.queries, h.keys, i, j, got, want, bound);
                most = MAX(most, fabs(got - want) / bound);
            }
    free(p);
    head_free(&h);
    return most;
}

static const MmaModel *const models[] = {&mma_model_card, &mma_model_fused, &mma_model_single};

static void check(const Case *c)
{
    for (size_t m = 0; m < ELEMENTSOF(models); m++) {
        double most = 0;
        Run r = run_new(c);
        compute(&r, models[m], m + 1);
        for (int image = 0; image < c->shape.n; image++)
            for (int head = 0; head < c->shape.heads; head++)
                most = MAX(most, compare_head(&r, image, head));
        if (getenv("SDTRAIN_TEST_VERBOSE"))
            printf("%" PRId64 "x%" PRId64 ", model %zu: %.3f of the bound\n", c->shape.q_tokens,
                   c->shape.kv_tokens, m, most);
        if (c->shape.kv_tokens > 1 && fabs(c->bias) <= 300)
            assert_true(most > 0.05); /* the bound is not too large to be useful */
        run_free(&r);
    }
}

/* ---- tests ---- */

#define SHAPE(n, heads, queries, keys, q_stride, kv_stride)                                        \
    {                                                                                              \
        n, heads, HEAD, queries, keys, q_stride, kv_stride                                         \
    }

/* Results are right for the shapes of sd2-base, reduced to one head of one image, with strides as if k and v, or q, k
 * and v, shared rows. */
static void the_shapes_of_sd2_base(void **state)
{
    (void)state;
    static const int64_t queries[] = {16, 64, 256, 1024, 4096};
    for (size_t i = 0; i < ELEMENTSOF(queries); i++)
        check(&(Case){.shape = SHAPE(1, 1, queries[i], 77, 64, 128), .size = 2});
    check(&(Case){.shape = SHAPE(1, 1, 64, 64, 192, 192), .size = 2});
    check(&(Case){.shape = SHAPE(1, 1, 16, 16, 192, 192), .size = 2});
}

static void other_shapes(void **state)
{
    (void)state;
    static const Case cases[] = {
        {SHAPE(2, 3, 16, 77, 192, 384), 1, 0, 0},  {SHAPE(1, 1, 1, 1, 64, 64), 1, 0, 0},
        {SHAPE(2, 2, 130, 80, 136, 144), 3, 0, 0}, {SHAPE(1, 2, 17, 33, 131, 129), 1, 0, 0},
        {SHAPE(1, 1, 127, 65, 64, 64), 1, 0, 3},   {SHAPE(1, 1, 600, 17, 72, 64), 8, 0, 0},
        {SHAPE(3, 1, 515, 7, 64, 64), 1, 0, 0},    {SHAPE(1, 1, 2100, 48, 64, 128), 4, 0, 1},
        {SHAPE(1, 1, 64, 77, 64, 128), 100, 0, 0}, /* nearly all of a query's weight is on one key */
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        check(&cases[i]);
}

/* Causal attention, as in a text encoder, is right. */
static void causal_attention(void **state)
{
    (void)state;
    static const Case cases[] = {
        {{2, 2, HEAD, 77, 77, 384, 384, true}, 2, 0, 0},
        {{1, 1, HEAD, 16, 16, 64, 64, true}, 2, -128, 0},
        {{1, 1, HEAD, 50, 50, 64, 64, true}, 8, 0, 1},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        check(&cases[i]);
}

/* A token's result has the same bits whatever follows: later tokens add exactly 0. */
static void later_tokens_change_nothing(void **state)
{
    (void)state;
    enum { TOKENS = 77, FIRST = 33 };
    const Case c = {{1, 1, HEAD, TOKENS, TOKENS, HEAD, HEAD, true}, 2, 0, 0};
    Run a = run_new(&c), b = run_new(&c);
    for (Name name = Q; name <= V; name++)
        for (size_t i = FIRST * HEAD; i < TOKENS * HEAD; i++)
            b.of[name][i] = to_bf16(1e4f * of_bf16(b.of[name][i]) + 3);
    compute(&a, &mma_model_card, 1);
    compute(&b, &mma_model_card, 2);
    assert_memory_equal(a.of[OUT], b.of[OUT], FIRST * HEAD * sizeof(uint16_t));
    assert_memory_equal(a.of[DQ], b.of[DQ], FIRST * HEAD * sizeof(uint16_t));
    assert_memory_not_equal(a.of[OUT] + FIRST * HEAD, b.of[OUT] + FIRST * HEAD, HEAD);
    run_free(&a);
    run_free(&b);
}

/* Results are right where all scores are far below zero. There a place behind the last key, whose score would be 0,
 * must not count. */
static void scores_far_below_zero(void **state)
{
    (void)state;
    static const double biases[] = {-88, -128, -1000, -20000, 300};
    for (size_t i = 0; i < ELEMENTSOF(biases); i++) {
        check(&(Case){SHAPE(1, 1, 64, 77, 64, 128), 1, biases[i], 0});
        check(&(Case){SHAPE(1, 1, 64, 64, 192, 192), 1, biases[i], 0});
        check(&(Case){SHAPE(1, 1, 16, 16, 192, 192), 1, biases[i], 0});
        check(&(Case){SHAPE(1, 1, 19, 13, 64, 64), 1, biases[i], 0});
    }
    /* One key has all weight, so the weight of a place with score 0 would be beyond any bound in bf16. */
    check(&(Case){SHAPE(1, 1, 64, 77, 64, 128), 30, -400, 0});
    check(&(Case){SHAPE(1, 1, 19, 13, 64, 64), 30, -400, 0});
}

static void hash_of(const Run *r, Name name, char text[HASH_TEXT_BYTES])
{
    hash_format(hash_bytes(r->of[name], r->n[name] * sizeof(uint16_t)), text);
}

/* A shape gives the same bits in several orders of threads, twice in one order, and with unaligned tensors. One shape
 * has one block, one has clusters of two blocks and one has clusters of eight. The bits are those of the model of an
 * H100's mma; tests/golden/kernels-cuda.txt contains more of them. */
static void one_result(void **state)
{
    (void)state;
    enum { ORDERS = 6 };
    static const struct {
        AttentionShape shape;
        const char *golden[N_TENSORS];
    } cases[] = {
        {SHAPE(1, 2, 70, 77, 128, 256),
         {[OUT] = "496d679be562d5e653d64ff040a6bd30",
          [DQ] = "61feab198483095df6b1a3cb50437e3c",
          [DK] = "4b8669b99cba49a71d1d83d1353762e6",
          [DV] = "580cec2014305ee589f1f3a632244263"}},
        {SHAPE(1, 1, 600, 77, 64, 128),
         {[OUT] = "55fc4985c094c46a6838033586898fd0",
          [DQ] = "3420698d5ed2413e39513df3d1bddb10",
          [DK] = "344c8fbc70e691f91c5a19fa5a2275fb",
          [DV] = "6295cec44aac4dfadce2a8ca1d02dfc1"}},
        {SHAPE(1, 1, 2100, 80, 64, 128),
         {[OUT] = "ae6850ae2aa36f11891ca3ba5a6ae1f2",
          [DQ] = "797790e18360eb32a255701d6563dfa2",
          [DK] = "ef1b98ee171c1764d0c42ddb96b51321",
          [DV] = "9caee7baacada708e4581dcf64b27d56"}},
    };
    int wrong = 0;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        for (int order = 0; order < ORDERS; order++) {
            const Case c = {cases[i].shape, 2, 0, order == 4 ? 3 : 0};
            Run r = run_new(&c);
            compute(&r, &mma_model_card, order == 5 ? 1 : (uint64_t)order);
            for (Name name = OUT; name < N_TENSORS; name++) {
                char text[HASH_TEXT_BYTES];
                hash_of(&r, name, text);
                if (strcmp(text, cases[i].golden[name]) != 0) {
                    print_error("shape %zu, order %d, tensor %d: %s\n", i, order, (int)name, text);
                    wrong++;
                }
            }
            run_free(&r);
        }
    assert_int_equal(wrong, 0);
}

/* The tile kernel does not serve an attention with more than 80 keys, with heads of another length than 64, or in fp32.
 * The plain kernels compute such an attention. The test recognises them by their workspace: the tile
 * kernel needs none. */
static void what_it_does_not_serve(void **state)
{
    (void)state;
    static const struct {
        DataType type;
        AttentionShape shape;
        bool served;
    } cases[] = {{DATA_BF16, SHAPE(1, 1, 8, 80, 64, 64), true},
                 {DATA_BF16, SHAPE(1, 1, 8, 81, 64, 64), false},
                 {DATA_BF16, {1, 1, 32, 8, 8, 32, 32}, false},
                 {DATA_BF16, {1, 1, 64, 8, 8, 64, 64, true}, true},
                 {DATA_F32, SHAPE(1, 1, 8, 16, 64, 64), false}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Device *device = open_device(cases[i].type);
        Attention *attention;
        Error err = ERROR_INIT;
        assert_int_equal(attention_new(device, &cases[i].shape, &attention, &err), 0);
        assert_int_equal(attention_workspace_bytes(attention) == 0, cases[i].served);
        attention = attention_free(attention);
        device = device_free(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shapes_of_sd2_base), cmocka_unit_test(other_shapes),
        cmocka_unit_test(causal_attention),       cmocka_unit_test(later_tokens_change_nothing),
        cmocka_unit_test(scores_far_below_zero),  cmocka_unit_test(one_result),
        cmocka_unit_test(what_it_does_not_serve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
