/* SPDX-License-Identifier: Apache-2.0 */
/* attention-choice.c - see attention-choice.h. */
#include "kernels/cuda/attention/attention-choice.h"

#include "base/memory.h"
#include "kernels/cuda/convolution/conv-entry.h"

#include <inttypes.h>

/* ---- entries ---- */

/* Reads an entry: a convolution's entry with two more keys, "images" and "padding_mask". */
int attention_choice_read(const char *operation, int n, const json_t *entry, AttentionChoice *ret,
                          Error *err)
{
    _cleanup_json_ json_t *engine = json_copy((json_t *)(uintptr_t)entry);
    const json_t *images = json_object_get(entry, "images");
    const json_t *mask = json_object_get(entry, "padding_mask");
    const json_int_t value = json_integer_value(images);
    AttentionChoice choice;
    if (mask && !json_is_true(mask))
        return error_set(err, -EINVAL, "%s: padding_mask: must be true or left out", operation);
    choice.padding_mask = mask != NULL;
    if (images && (!json_is_integer(images) || value < 1 || value > n || n % value))
        return error_set(err, -EINVAL, "%s: images: must be a divisor of %d", operation, n);
    choice.images = images ? (int)value : n;
    if (images)
        (void)json_object_del(engine, "images"); /* cannot fail: the key exists */
    if (mask)
        (void)json_object_del(engine, "padding_mask"); /* cannot fail: the key exists */
    int r = conv_entry_read(operation, engine, &choice.engine, err);
    if (r == 0)
        *ret = choice;
    return r;
}

json_t *attention_choice_entry(const AttentionChoice *choice, int64_t workspace_bytes)
{
    json_t *entry = conv_entry_new(&choice->engine, workspace_bytes);
    int r = json_object_set_new(entry, "images", json_integer(choice->images));
    if (r == 0 && choice->padding_mask)
        r = json_object_set_new(entry, "padding_mask", json_true());
    assert(r == 0);
    return entry;
}

json_t *attention_own_entry(void) { return memory_given(json_pack("{s:b}", "own_kernels", 1)); }

bool attention_entry_is_own(const json_t *entry)
{
    return json_is_true(json_object_get(entry, "own_kernels"));
}

/* ---- images at once ---- */

int attention_choice_graph(const AttentionTarget *target, const AttentionShape *shape,
                           AttentionPass pass, const AttentionChoice *choice, AttentionGraph **ret,
                           Error *err)
{
    AttentionShape part = *shape;
    part.n = choice->images;
    return attention_graph_new(target, &part, pass, choice->padding_mask, &choice->engine, ret,
                               err);
}

bool attention_has_tail(const AttentionShape *shape)
{
    enum { TILE = 128 }; /* tokens of a tile */
    return shape->q_tokens % TILE != 0 || shape->kv_tokens % TILE != 0;
}

static int choose(const AttentionTarget *target, const AttentionShape *shape, AttentionPass pass,
                  bool padding_mask, int64_t workspace_max_bytes, AttentionChoice *ret,
                  AttentionGraph **ret_graph, Error *err)
{
    int64_t bytes_of_image = 0; /* the workspace of one image; 0: not yet known */
    for (int images = shape->n; images >= 1; images--) {
        _cleanup_(attention_graph_freep) AttentionGraph *graph = NULL;
        AttentionShape part = *shape;
        part.n = images;
        if (shape->n % images || bytes_of_image * images > workspace_max_bytes)
            continue;
        int r = attention_graph_new(target, &part, pass, padding_mask, NULL, &graph, err);
        if (r < 0)
            return r;
        const int64_t wanted = attention_graph_workspace_bytes(graph);
        if (wanted > workspace_max_bytes) {
            bytes_of_image = wanted / images;
            continue;
        }
        AttentionChoice choice = {.images = images, .padding_mask = padding_mask};
        r = attention_graph_choice(graph, &choice.engine, err);
        if (r < 0)
            return r;
        *ret = choice;
        *ret_graph = TAKE_PTR(graph);
        return 0;
    }
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(shape, pass, name);
    return error_set(err, -ENOENT, "%s: one image needs more than %" PRId64 " bytes of workspace",
                     name, workspace_max_bytes);
}

int attention_choose(const AttentionTarget *target, const AttentionShape *shape, AttentionPass pass,
                     int64_t workspace_max_bytes, AttentionChoice *ret, AttentionGraph **ret_graph,
                     Error *err)
{
    int r = -ENOENT;
    if (attention_has_tail(shape))
        r = choose(target, shape, pass, true, workspace_max_bytes, ret, ret_graph, err);
    if (r == -ENOENT || r == -EINVAL)
        r = choose(target, shape, pass, false, workspace_max_bytes, ret, ret_graph, err);
    return r;
}

/* ---- tensors ---- */

size_t attention_image_bytes(const AttentionShape *s, AttentionTensor tensor)
{
    const size_t queries = (size_t)s->q_tokens, keys = (size_t)s->kv_tokens;
    switch (tensor) {
    case ATTENTION_Q:
    case ATTENTION_DQ:
        return queries * (size_t)s->q_stride * data_type_bytes(DATA_BF16);
    case ATTENTION_K:
    case ATTENTION_V:
    case ATTENTION_DK:
    case ATTENTION_DV:
        return keys * (size_t)s->kv_stride * data_type_bytes(DATA_BF16);
    case ATTENTION_OUT:
    case ATTENTION_DOUT:
        return queries * (size_t)s->heads * (size_t)s->head_dim * data_type_bytes(DATA_BF16);
    case ATTENTION_SUMS:
        return queries * (size_t)s->heads * data_type_bytes(DATA_F32);
    case ATTENTION_Q_LENGTHS:
    case ATTENTION_KV_LENGTHS:
        return 0;
    case N_ATTENTION_TENSORS:
        break;
    }
    assert(false);
}

AttentionTensors attention_images(const AttentionShape *shape, const AttentionTensors *tensors,
                                  int64_t first)
{
    AttentionTensors part = {{NULL}};
    for (AttentionTensor i = 0; i < N_ATTENTION_TENSORS; i++)
        if (tensors->of[i])
            part.of[i] = (char *)tensors->of[i] + (size_t)first * attention_image_bytes(shape, i);
    return part;
}

static int lengths_new(Device *device, int n, int64_t tokens, void **ret, Error *err)
{
    _cleanup_free_ int32_t *lengths = memory_zeroed((size_t)n, sizeof(*lengths));
    for (int i = 0; i < n; i++)
        lengths[i] = (int32_t)tokens;
    int r = device_allocate(device, (size_t)n * sizeof(*lengths), ret, err);
    if (r == 0)
        device_upload(device, *ret, lengths, (size_t)n * sizeof(*lengths));
    return r;
}

int attention_lengths_new(Device *device, const AttentionShape *shape, AttentionTensors *to,
                          Error *err)
{
    int r = lengths_new(device, shape->n, shape->q_tokens, &to->of[ATTENTION_Q_LENGTHS], err);
    if (r == 0)
        r = lengths_new(device, shape->n, shape->kv_tokens, &to->of[ATTENTION_KV_LENGTHS], err);
    return r;
}

void attention_lengths_free(Device *device, AttentionTensors *to)
{
    for (AttentionTensor i = ATTENTION_Q_LENGTHS; i <= ATTENTION_KV_LENGTHS; i++) {
        if (to->of[i])
            device_release(device, to->of[i]);
        to->of[i] = NULL;
    }
}
