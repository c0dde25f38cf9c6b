/* SPDX-License-Identifier: Apache-2.0 */
/* attention-unfused.c - see attention-unfused.h. Products are column-major (matmul.h), so a row-major matrix appears as
 * its transpose:
 *     S^T[keys][queries] = K[keys][d] q^T[d][queries]    K is stored as [d][keys]
 *     out^T[d][queries]  = v^T[d][keys] P^T[keys][queries] */
#include "kernels/cuda/attention/attention-unfused.h"

#include "base/log.h"
#include "base/memory.h"
#include "kernels/cuda/linear/matmul.h"
#include "kernels/cuda/plans/plans.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEAD_MIN = 256, HEAD_MAX = 512, NAME_MAX_BYTES = 160 };

struct AttentionUnfused {
    Device *device;
    AttentionShape shape;
    CudaMatmul *scores, *values;
};

static void product_name(const AttentionShape *s, const char *product, char name[NAME_MAX_BYTES])
{
    (void)snprintf(name, NAME_MAX_BYTES,
                   "product bf16 attention n%d h%d d%d %" PRId64 "x%" PRId64 " s%d,%d %s", s->n,
                   s->heads, s->head_dim, s->q_tokens, s->kv_tokens, s->q_stride, s->kv_stride,
                   product);
}

/* Reports whether the rows of each head begin at cuBLASLt's alignment, for every image and head. */
bool attention_unfused_serves(const AttentionShape *s)
{
    const int whole = DEVICE_ALIGNMENT / 2;
    return s->forward_only && !s->causal && s->head_dim >= HEAD_MIN && s->head_dim <= HEAD_MAX &&
           s->head_dim % whole == 0 && s->q_stride % whole == 0 && s->kv_stride % whole == 0 &&
           s->kv_tokens % 8 == 0; /* rows of probabilities begin at multiples of 16 bytes */
}

static bool has_entry(const CudaCompute *compute, const char *name)
{
    Error why = ERROR_INIT;
    const json_t *entry;
    if (compute->tune || cuda_plans_take(compute->plans, name, &entry, &why) == 0)
        return true;
    log_warning("our own kernels, which are slow, compute an attention: %s", why.text);
    return false;
}

int attention_unfused_new(Device *device, const AttentionShape *s, AttentionUnfused **ret,
                          Error *err)
{
    char name[NAME_MAX_BYTES];
    *ret = NULL;
    product_name(s, "scores", name);
    assert(attention_unfused_serves(s));
    if (!has_entry(cuda_compute(device), name))
        return 0;
    AttentionUnfused *u = memory_new(AttentionUnfused);
    u->device = device;
    u->shape = *s;
    int r = cuda_matmul_new(device, name,
                            &(CudaMatmulShape){.m = s->kv_tokens,
                                               .n = s->q_tokens,
                                               .k = s->head_dim,
                                               .a_transposed = true,
                                               .type = DATA_F32,
                                               .a_stride = s->kv_stride,
                                               .b_stride = s->q_stride},
                            &u->scores, err);
    product_name(s, "values", name);
    if (r == 0)
        r = cuda_matmul_new(device, name,
                            &(CudaMatmulShape){.m = s->head_dim,
                                               .n = s->q_tokens,
                                               .k = s->kv_tokens,
                                               .type = DATA_BF16,
                                               .a_stride = s->kv_stride,
                                               .d_stride = (int64_t)s->heads * s->head_dim},
                            &u->values, err);
    if (r < 0) {
        (void)attention_unfused_free(u);
        return r;
    }
    *ret = u;
    return 0;
}

AttentionUnfused *attention_unfused_free(AttentionUnfused *u)
{
    if (!u)
        return NULL;
    (void)cuda_matmul_free(u->scores);
    (void)cuda_matmul_free(u->values);
    free(u);
    return NULL;
}

/* Offsets in the workspace: scores begin at 0, followed by the probabilities and the workspace of a product. */
typedef struct Parts {
    size_t probabilities, product, end;
} Parts;

static Parts parts_of(const AttentionUnfused *u)
{
    const size_t pairs = (size_t)u->shape.q_tokens * (size_t)u->shape.kv_tokens;
    const size_t alignment = DEVICE_ALIGNMENT;
    Parts p = {.probabilities = ROUND_UP(pairs * data_type_bytes(DATA_F32), alignment)};
    p.product = p.probabilities + ROUND_UP(pairs * data_type_bytes(DATA_BF16), alignment);
    p.end = p.product +
            MAX(cuda_matmul_workspace_bytes(u->scores), cuda_matmul_workspace_bytes(u->values));
    return p;
}

size_t attention_unfused_workspace_bytes(const AttentionUnfused *u) { return parts_of(u).end; }

/* Returns the address of the first element of a head of an image in bf16 rows. */
static char *rows_of(const void *base, int image, int64_t tokens, int64_t stride, int head, int d)
{
    const int64_t first = image * tokens * stride + (int64_t)head * d;
    return (char *)(uintptr_t)base + (size_t)first * data_type_bytes(DATA_BF16);
}

void attention_unfused_forward(AttentionUnfused *u, const void *q, const void *k, const void *v,
                               void *out, void *workspace)
{
    const AttentionShape *s = &u->shape;
    const Parts parts = parts_of(u);
    const float scale = (float)(1.0 / sqrt((double)s->head_dim));
    char *space = workspace;
    for (int image = 0; image < s->n; image++)
        for (int head = 0; head < s->heads; head++) {
            const int d = s->head_dim;
            cuda_matmul_run(u->scores, rows_of(k, image, s->kv_tokens, s->kv_stride, head, d),
                            rows_of(q, image, s->q_tokens, s->q_stride, head, d), NULL, NULL, space,
                            space + parts.product);
            cuda_attention_softmax(u->device, s->q_tokens, s->kv_tokens, scale,
                                   (const float *)(const void *)space, space + parts.probabilities);
            cuda_matmul_run(u->values, rows_of(v, image, s->kv_tokens, s->kv_stride, head, d),
                            space + parts.probabilities, NULL, NULL,
                            rows_of(out, image, s->q_tokens, (int64_t)s->heads * d, head, d),
                            space + parts.product);
        }
}
