/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.c - see parameters.h. unet_parameters() is in unet.c, since the list consists of the parameters that the
 * network's operations declare. */
#include "nn/parameters.h"

#include "base/number/hash.h"
#include "base/number/philox.h"

#include <math.h>
#include <string.h>

int parameter_list_new(ParameterList **ret)
{
    ParameterList *list = calloc(1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    *ret = list;
    return 0;
}

ParameterList *parameter_list_free(ParameterList *list)
{
    if (!list)
        return NULL;
    free(list->items);
    free(list);
    return NULL;
}

/* Makes room for one more item if the array is full: whenever the count is 0 or a power of two of at least 64. The
 * array's size then doubles. */
static int make_room(ParameterList *list)
{
    size_t n = list->n_items;
    if (n != 0 && (n < 64 || (n & (n - 1)) != 0))
        return 0;
    size_t wanted = n == 0 ? 64 : n * 2;
    Parameter *items = realloc(list->items, wanted * sizeof(*items));
    if (!items)
        return -ENOMEM;
    list->items = items;
    return 0;
}

int parameter_list_add(ParameterList *list, ParameterKind kind, const char *prefix,
                       const char *suffix, const int64_t dims[PARAMETER_DIMS_MAX], int64_t fan_in)
{
    int r = make_room(list);
    if (r < 0)
        return r;

    Parameter p = {.kind = kind, .fan_in = fan_in, .offset = list->n_elements, .n_elements = 1};
    int length = snprintf(p.name, sizeof(p.name), "%s%s", prefix, suffix);
    if (length < 0 || (size_t)length >= sizeof(p.name))
        return -ENAMETOOLONG;
    while (p.n_dims < PARAMETER_DIMS_MAX && dims[p.n_dims] > 0) {
        p.dims[p.n_dims] = dims[p.n_dims];
        p.n_elements *= dims[p.n_dims];
        p.n_dims++;
    }
    assert(p.n_dims > 0);
    list->items[list->n_items++] = p;
    list->n_elements += p.n_elements;
    return 0;
}

static void fill(float *to, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

/* Fills elements [begin, end) of a tensor with draws from [-bound, bound). Element j is (2u - 1) * bound; u is made
 * from word j % 4 of block j / 4. 2u - 1 is exact in fp32, and the product is rounded once. */
static void fill_uniform(float *to, int64_t begin, int64_t end, uint64_t key, uint64_t tensor,
                         float bound)
{
    const int64_t blocks = DIV_ROUND_UP(end, (int64_t)4);
#pragma omp parallel for schedule(static) if (end - begin >= 1 << 16)
    for (int64_t block = begin / 4; block < blocks; block++) {
        Philox draw = philox4x32(key, tensor, (uint64_t)block);
        for (int64_t j = MAX(block * 4, begin); j < MIN(block * 4 + 4, end); j++)
            to[j - begin] = (2.0f * philox_uniform(draw.word[j % 4]) - 1.0f) * bound;
    }
}

void parameters_initialise_range(const ParameterList *list, uint64_t seed, int64_t begin,
                                 int64_t end, float *to)
{
    static const char purpose[] = "initial weights";
    uint64_t key = hash64_bytes(purpose, strlen(purpose), seed);

    for (size_t i = 0; i < list->n_items; i++) {
        const Parameter *p = &list->items[i];
        const int64_t first = MAX(begin - p->offset, INT64_C(0));
        const int64_t last = MIN(end - p->offset, p->n_elements);
        float *at = to + (p->offset + first - begin);
        if (first >= last)
            continue;
        switch (p->kind) {
        case PARAMETER_NORM_WEIGHT:
            fill(at, last - first, 1.0f);
            break;
        case PARAMETER_NORM_BIAS:
            fill(at, last - first, 0.0f);
            break;
        case PARAMETER_WEIGHT:
        case PARAMETER_BIAS:
            fill_uniform(at, first, last, key, i, (float)(1.0 / sqrt((double)p->fan_in)));
            break;
        }
    }
}

int parameter_list_plan(const ParameterList *list, Device *device, StatePlanShape cut,
                        StatePlan **ret, Error *err)
{
    _cleanup_free_ TensorSpan *tensors = calloc(list->n_items, sizeof(*tensors));
    if (!tensors)
        return error_set(err, -ENOMEM, "out of memory for %zu tensors", list->n_items);
    for (size_t i = 0; i < list->n_items; i++)
        tensors[i] = (TensorSpan){list->items[i].offset, list->items[i].n_elements};
    cut.tensors = tensors;
    cut.n_tensors = (int)list->n_items;
    cut.n_elements = list->n_elements;
    if (cut.chunk_elements == 0)
        cut.chunk_elements = list->n_elements;
    return state_plan_new(device, &cut, ret, err);
}
