/* SPDX-License-Identifier: Apache-2.0 */
/* attention-check.c - see attention-check.h. */
#include "kernels/cuda/attention/attention-check.h"

#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float q_element = -128;

struct AttentionCheck {
    Device *device;
    AttentionShape shape;
    AttentionPass pass;
    AttentionTensors tensors;
};

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Returns the score of every query and key: q_element times the element of k, divided by the root of the head's length.
 * The element of k is this root, rounded to bf16. */
static float score_of(const AttentionShape *s)
{
    const float root = sqrtf((float)s->head_dim);
    const uint32_t bits = (uint32_t)bf16_of(root) << 16;
    float k_element;
    memcpy(&k_element, &bits, sizeof(k_element));
    return q_element * k_element / root;
}

static bool is_finite_bf16(uint16_t bits) { return (bits & 0x7f80u) != 0x7f80u; }

/* Reports whether the pass writes the tensor. */
static bool is_result(AttentionPass pass, AttentionTensor tensor)
{
    return pass == ATTENTION_FORWARD ? tensor == ATTENTION_OUT || tensor == ATTENTION_SUMS
                                     : tensor >= ATTENTION_DQ && tensor <= ATTENTION_DV;
}

/* ---- operands ---- */

/* Fills the rows of one image. The first elements of each head of q and of k make the score; the other elements of q
 * and k are 0. */
static void fill_rows(const AttentionShape *s, AttentionTensor tensor, uint16_t *image)
{
    const size_t bytes = attention_image_bytes(s, tensor);
    const bool of_keys = tensor == ATTENTION_K || tensor == ATTENTION_V;
    const int64_t rows = of_keys ? s->kv_tokens : s->q_tokens;
    const int64_t stride = (int64_t)(bytes / sizeof(*image)) / rows;
    const bool makes_score = tensor == ATTENTION_Q || tensor == ATTENTION_K;
    const float value = tensor == ATTENTION_Q   ? q_element
                        : tensor == ATTENTION_K ? sqrtf((float)s->head_dim)
                                                : 1;
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < s->heads * s->head_dim; i += makes_score ? s->head_dim : 1)
            image[row * stride + i] = bf16_of(value);
}

/* Fills in the logarithm of the sum of the exponentials of each row's scores, which are all equal. */
static void fill_sums(const AttentionShape *s, float *sums)
{
    for (int64_t i = 0; i < s->heads * s->q_tokens; i++) {
        const int64_t seen = s->causal ? i % s->q_tokens + 1 : s->kv_tokens;
        sums[i] = score_of(s) + logf((float)seen);
    }
}

static int make_tensor(AttentionCheck *c, AttentionTensor tensor, Error *err)
{
    const AttentionShape *s = &c->shape;
    const size_t bytes = attention_image_bytes(s, tensor);
    _cleanup_free_ void *image = memory_zeroed(bytes, 1);
    int r = device_allocate(c->device, (size_t)s->n * bytes, &c->tensors.of[tensor], err);
    if (r < 0 || is_result(c->pass, tensor))
        return r;
    if (tensor == ATTENTION_SUMS)
        fill_sums(s, image);
    else
        fill_rows(s, tensor, image);
    for (int i = 0; i < s->n; i++)
        device_upload(c->device, (char *)c->tensors.of[tensor] + (size_t)i * bytes, image, bytes);
    return 0;
}

int attention_check_new(Device *device, const AttentionShape *shape, AttentionPass pass,
                        AttentionCheck **ret, Error *err)
{
    _cleanup_(attention_check_freep) AttentionCheck *c = memory_new(AttentionCheck);
    const AttentionTensor last = pass == ATTENTION_FORWARD ? ATTENTION_SUMS : ATTENTION_DV;
    c->device = device;
    c->shape = *shape;
    c->pass = pass;
    int r = attention_lengths_new(device, shape, &c->tensors, err);
    for (AttentionTensor i = ATTENTION_Q; r == 0 && i <= last; i++)
        r = make_tensor(c, i, err);
    if (r == 0)
        *ret = TAKE_PTR(c);
    return r;
}

AttentionCheck *attention_check_free(AttentionCheck *check)
{
    if (!check)
        return NULL;
    for (AttentionTensor i = ATTENTION_Q; i <= ATTENTION_DV; i++)
        if (check->tensors.of[i])
            device_release(check->device, check->tensors.of[i]);
    attention_lengths_free(check->device, &check->tensors);
    free(check);
    return NULL;
}

/* ---- results ---- */

AttentionTensors attention_check_begin(AttentionCheck *c, int images)
{
    assert(images >= 1 && images <= c->shape.n);
    for (AttentionTensor i = ATTENTION_Q; i <= ATTENTION_DV; i++) {
        if (!is_result(c->pass, i))
            continue;
        const size_t bytes = attention_image_bytes(&c->shape, i);
        _cleanup_free_ void *poison = memory_zeroed(bytes, 1);
        memset(poison, 0xff, bytes); /* NaN, in bf16 and in fp32 */
        device_upload(c->device, c->tensors.of[i], poison, bytes);
        device_upload(c->device, (char *)c->tensors.of[i] + (size_t)(images - 1) * bytes, poison,
                      bytes);
    }
    return c->tensors;
}

/* Counts the values that are not finite. Behind the columns of this tensor a row of a gradient may contain columns of
 * other tensors, which are skipped. */
static int64_t count_bad(const AttentionShape *s, AttentionTensor tensor, const void *image)
{
    const int64_t rows =
        tensor == ATTENTION_DK || tensor == ATTENTION_DV ? s->kv_tokens : s->q_tokens;
    int64_t bad = 0;
    if (tensor == ATTENTION_SUMS) {
        const float *sums = image;
        for (int64_t i = 0; i < s->heads * rows; i++)
            bad += !isfinite(sums[i]);
        return bad;
    }
    const uint16_t *values = image;
    const int64_t stride = (int64_t)(attention_image_bytes(s, tensor) / sizeof(*values)) / rows;
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < s->heads * s->head_dim; i++)
            bad += !is_finite_bf16(values[row * stride + i]);
    return bad;
}

int attention_check_end(AttentionCheck *c, int images, char *text, size_t size, Error *err)
{
    static const char *const names[N_ATTENTION_TENSORS] = {[ATTENTION_OUT] = "out",
                                                           [ATTENTION_SUMS] = "the log-sum-exp",
                                                           [ATTENTION_DQ] = "dq",
                                                           [ATTENTION_DK] = "dk",
                                                           [ATTENTION_DV] = "dv"};
    int r = device_synchronise(c->device, err);
    if (r < 0)
        return r;
    for (AttentionTensor i = ATTENTION_Q; i <= ATTENTION_DV; i++) {
        if (!is_result(c->pass, i))
            continue;
        const size_t bytes = attention_image_bytes(&c->shape, i);
        _cleanup_free_ void *image = memory_zeroed(bytes, 1);
        int64_t bad = 0;
        for (int at = 0; at < images; at += MAX(images - 1, 1)) {
            device_download(c->device, image, (char *)c->tensors.of[i] + (size_t)at * bytes, bytes);
            bad += count_bad(&c->shape, i, image);
        }
        if (bad > 0) {
            (void)snprintf(text, size, "%" PRId64 " values of %s are not finite", bad, names[i]);
            return 0;
        }
    }
    return 1;
}
