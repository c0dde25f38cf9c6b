/* SPDX-License-Identifier: Apache-2.0 */
/* matmul-tune.c - finds an algorithm for a product: those that the library offers are timed on the device.
 *
 * Only algorithms whose sums have a fixed order are candidates (tune.h). */
#include "base/memory.h"
#include "kernels/cuda/linear/matmul-internal.h"
#include "kernels/cuda/plans.h"
#include "kernels/cuda/tune/tune.h"

#include <string.h>

enum {
    CANDIDATES = TUNE_CANDIDATES_MAX,
    WORKSPACE_MAX = 64 << 20 /* of a candidate */
};

static const uint64_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* and none */

typedef struct Candidate {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} Candidate;

/* What the candidates compute with. */
typedef struct Operands {
    Device *device;
    void *a, *b, *bias, *c, *d, *workspace;
} Operands;

static void operands_free(Operands *o)
{
    void *all[] = {o->a, o->b, o->bias, o->c, o->d, o->workspace};
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        device_release(o->device, all[i]);
}

static int operands_new(const CudaMatmul *m, Operands *o, Error *err)
{
    const CudaMatmulShape *s = &m->shape;
    const size_t d_bytes = (size_t)(MAX(s->d_stride, s->m) * s->n) * data_type_bytes(s->type);
    const int64_t a_rows = s->a_transposed ? s->k : s->m, b_rows = s->b_transposed ? s->n : s->k;
    const int64_t a_columns = s->a_transposed ? s->m : s->k;
    const int64_t b_columns = s->b_transposed ? s->k : s->n;
    int r = tune_operand(o->device, (size_t)(MAX(s->a_stride, a_rows) * a_columns) * 2, &o->a, err);
    if (r == 0)
        r = tune_operand(o->device, (size_t)(MAX(s->b_stride, b_rows) * b_columns) * 2, &o->b, err);
    if (r == 0 && s->biased)
        r = tune_operand(o->device, (size_t)s->m * 2, &o->bias, err);
    if (r == 0 && s->type == DATA_BF16)
        r = tune_operand(o->device, d_bytes, &o->c, err);
    if (r == 0)
        r = device_allocate(o->device, d_bytes, &o->d, err);
    return r < 0 ? r : device_allocate(o->device, WORKSPACE_MAX, &o->workspace, err);
}

/* ---- candidates ---- */

static cublasStatus_t ask(const CudaMatmul *m, cublasLtMatmulPreference_t preference,
                          cublasLtMatmulHeuristicResult_t results[CANDIDATES], int *n)
{
    const uint64_t workspace = WORKSPACE_MAX;
    const uint32_t mask = (uint32_t)reductions;
    cublasStatus_t status =
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof(workspace));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &mask, sizeof(mask));
    /* The alignments that it expects are 256 bytes, which DEVICE_ALIGNMENT is. */
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(m->compute->cublaslt,
                                                m->biased ? m->biased : m->bare, m->a, m->b, m->d,
                                                m->d, preference, CANDIDATES, results, n);
    return status;
}

static bool repeats(const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
    size_t written;
    return cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                &reduction, sizeof(reduction),
                                                &written) == CUBLAS_STATUS_SUCCESS &&
           (reduction & ~(uint32_t)reductions) == 0;
}

static int find_candidates(const CudaMatmul *m, Candidate *candidates, size_t *ret, Error *err)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int n = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = ask(m, preference, results, &n);
        (void)cublasLtMatmulPreferenceDestroy(preference); /* plain memory: it cannot fail */
    }
    if (status != CUBLAS_STATUS_SUCCESS)
        return matmul_refuse(m, status, "cuBLASLt offers no algorithm", err);
    for (int i = 0; i < n; i++) {
        Candidate *c = &candidates[*ret];
        if (results[i].state == CUBLAS_STATUS_SUCCESS && repeats(&results[i].algo) &&
            matmul_replay(m, &results[i].algo, &c->algorithm) &&
            matmul_check(m, &c->algorithm, &c->workspace) == CUBLAS_STATUS_SUCCESS &&
            c->workspace <= WORKSPACE_MAX)
            (*ret)++;
    }
    return 0;
}

/* ---- time ---- */

typedef struct MatmulTuning {
    CudaMatmul *matmul;
    Candidate found[CANDIDATES];
    Operands operands;
} MatmulTuning;

static bool start(void *userdata, int candidate)
{
    const MatmulTuning *t = userdata;
    const Candidate *c = &t->found[candidate];
    const Operands *o = &t->operands;
    return matmul_start(t->matmul, &c->algorithm, o->a, o->b, o->bias, o->c, o->d, o->workspace,
                        c->workspace) == CUBLAS_STATUS_SUCCESS;
}

/* The index of the best. */
static int choose(MatmulTuning *t, size_t n, Error *err)
{
    CudaMatmul *m = t->matmul;
    TuneCandidate candidates[CANDIDATES] = {{0}};
    const Tuning tuning = {m->compute, m->operation, candidates, (int)n, start, t};
    for (size_t i = 0; i < n; i++)
        candidates[i].workspace_bytes = (int64_t)t->found[i].workspace;
    t->operands = (Operands){.device = m->compute->device};
    int r = operands_new(m, &t->operands, err);
    r = r < 0 ? error_prefix(err, r, "%s", m->operation) : tune_choose(&tuning, err);
    operands_free(&t->operands);
    return r;
}

int matmul_tune(CudaMatmul *m, Error *err)
{
    const json_t *known;
    size_t n = 0;
    json_t *entry;
    if (cuda_plans_take(m->compute->plans, m->operation, &known, NULL) == 0)
        return 0; /* another object has this operation */
    _cleanup_free_ MatmulTuning *t = memory_new(MatmulTuning);
    t->matmul = m;
    int r = find_candidates(m, t->found, &n, err);
    if (r == 0 && n == 0)
        r = error_set(err, -EINVAL, "%s: no algorithm of cuBLASLt repeats its bits and can be told",
                      m->operation);
    if (r == 0)
        r = choose(t, n, err);
    if (r < 0)
        return r;
    const Candidate *best = &t->found[r];
    r = matmul_algorithm_entry(&best->algorithm, best->workspace, &entry);
    if (r < 0)
        return error_set(err, r, "%s: cuBLASLt does not tell its algorithm", m->operation);
    if (strncmp(m->operation, "linear ", strlen("linear ")) == 0) {
        r = json_object_set_new(entry, "variant", json_string(CUDA_PLAN_VARIANT));
        if (r == 0 && m->shape.type == DATA_F32)
            r = json_object_set_new(entry, "dw", json_string("f32"));
        assert(r == 0);
    }
    cuda_plans_give(m->compute->plans, m->operation, entry);
    return 0;
}
