/* SPDX-License-Identifier: Apache-2.0 */
/* matmul-tune.c - finds an algorithm for a product: the algorithms that the library offers are timed on the device.
 *
 * Only algorithms whose sums have a fixed order are candidates (tune.h). */
#include "base/log.h"
#include "base/memory.h"
#include "kernels/cuda/linear/matmul-internal.h"
#include "kernels/cuda/plans/plans.h"
#include "kernels/cuda/plans/tune.h"

#include <string.h>

enum {
    CANDIDATES = TUNE_CANDIDATES_MAX,
    WORKSPACE_MAX = 64 << 20 /* the largest workspace of a candidate, in bytes */
};

/* A candidate uses this reduction scheme, or has no reduction. */
static const uint64_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

typedef struct Candidate {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} Candidate;

/* The device memory that the candidates compute with. */
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

static cublasStatus_t query_algorithms(const CudaMatmul *m, cublasLtMatmulPreference_t preference,
                                       cublasLtMatmulHeuristicResult_t results[CANDIDATES], int *n)
{
    const uint64_t workspace = WORKSPACE_MAX;
    const uint32_t mask = (uint32_t)reductions, alignment = matmul_d_alignment(m);
    cublasStatus_t status =
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof(workspace));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &mask, sizeof(mask));
    /* Without this attribute the library expects an alignment of 256 bytes, which is DEVICE_ALIGNMENT. */
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                      &alignment, sizeof(alignment));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                                      &alignment, sizeof(alignment));
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

/* How many algorithms were offered, and how many of them are not candidates, for each reason. */
typedef struct Offers {
    int offered, varying, untold, refused, large;
    /* The status of the last refused algorithm; if no algorithm was refused, the status of the query. */
    cublasStatus_t status;
} Offers;

/* Returns NULL if the algorithm is a candidate, otherwise the reason why not. */
static const char *drop(const CudaMatmul *m, const cublasLtMatmulHeuristicResult_t *result,
                        Candidate *ret, Offers *offers)
{
    _cleanup_json_ json_t *entry = NULL;
    if (result->state == CUBLAS_STATUS_SUCCESS &&
        matmul_algorithm_entry(&result->algo, 0, &entry) < 0) {
        offers->untold++;
        return "its attributes cannot be told";
    }
    if (result->state == CUBLAS_STATUS_SUCCESS && !repeats(&result->algo)) {
        offers->varying++;
        return "its sums have an order that varies";
    }
    ret->algorithm = result->algo;
    const cublasStatus_t status = result->state == CUBLAS_STATUS_SUCCESS
                                      ? matmul_check(m, &ret->algorithm, &ret->workspace)
                                      : result->state;
    if (status != CUBLAS_STATUS_SUCCESS) {
        offers->refused++;
        offers->status = status;
        return cublasLtGetStatusName(status);
    }
    offers->large += ret->workspace > WORKSPACE_MAX;
    return ret->workspace > WORKSPACE_MAX ? "its workspace is too large" : NULL;
}

static int find_candidates(const CudaMatmul *m, Candidate *candidates, size_t *ret, Offers *offers,
                           Error *err)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int n = 0;
    memset(results, 0, sizeof(results)); /* an entry contains every byte, used or not */
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = query_algorithms(m, preference, results, &n);
        (void)cublasLtMatmulPreferenceDestroy(preference); /* freeing memory cannot fail */
    }
    offers->status = status;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
        n = 0;
    else if (status != CUBLAS_STATUS_SUCCESS)
        return matmul_refuse(m, status, "cuBLASLt offers no algorithm", err);
    for (int i = 0; i < n; i++) {
        const char *why = drop(m, &results[i], &candidates[*ret], offers);
        if (why)
            log_debug("%s: algorithm %d of %d is dropped: %s", m->operation, i + 1, n, why);
        else
            (*ret)++;
    }
    offers->offered = n;
    return 0;
}

/* Returns -EINVAL, with the reasons why no algorithm is a candidate. */
static int no_candidate(const CudaMatmul *m, const Offers *o, Error *err)
{
    const struct {
        int n;
        const char *what;
    } reasons[] = {{o->varying, "sum in an order that varies"},
                   {o->untold, "have attributes that cannot be told"},
                   {o->large, "want too large a workspace"},
                   {o->refused, "refused by AlgoCheck"}};
    char text[256] = "";
    for (size_t i = 0, used = 0; i < ELEMENTSOF(reasons); i++)
        if (reasons[i].n > 0)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s %d %s", used ? "," : ":",
                                     reasons[i].n, reasons[i].what);
    const bool status = o->refused > 0 || o->offered == 0;
    return error_set(err, -EINVAL,
                     "%s: no algorithm of cuBLASLt serves: %d algorithms offered%s%s%s",
                     m->operation, o->offered, text, status ? ": " : "",
                     status ? cublasLtGetStatusName(o->status) : "");
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

/* Returns the index of the best candidate, or -errno. */
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

static bool is_linear(const CudaMatmul *m)
{
    return strncmp(m->operation, "linear ", strlen("linear ")) == 0;
}

static int give_entry(const CudaMatmul *m, const Candidate *best, Error *err)
{
    json_t *entry;
    int r = matmul_algorithm_entry(&best->algorithm, best->workspace, &entry);
    if (r < 0)
        return error_set(err, r, "%s: cuBLASLt does not tell its algorithm", m->operation);
    if (is_linear(m)) {
        r = json_object_set_new(entry, "variant", json_string(CUDA_PLAN_VARIANT));
        if (r == 0 && m->shape.type == DATA_F32)
            r = json_object_set_new(entry, "dw", json_string("f32"));
        assert(r == 0);
    }
    cuda_plans_give(m->compute->plans, m->operation, entry);
    return 0;
}

int matmul_tune(CudaMatmul *m, Error *err)
{
    const json_t *known;
    Offers offers = {0};
    Error why = ERROR_INIT;
    size_t n = 0;
    if (cuda_plans_take(m->compute->plans, m->operation, &known, NULL) == 0)
        return 0; /* the plans have an entry for this operation */
    _cleanup_free_ MatmulTuning *t = memory_new(MatmulTuning);
    t->matmul = m;
    int r = find_candidates(m, t->found, &n, &offers, err);
    if (r < 0)
        return r;
    r = n == 0 ? no_candidate(m, &offers, &why) : choose(t, n, &why);
    if (r == -EINVAL && is_linear(m)) { /* without our own kernels no job could run */
        log_warning("our own kernels, which are slow, compute %s", why.text);
        cuda_plans_give(m->compute->plans, m->operation,
                        memory_given(json_pack("{s:b}", "own_kernels", 1)));
        return 0;
    }
    return r < 0 ? error_set(err, r, "%s", why.text) : give_entry(m, &t->found[r], err);
}
