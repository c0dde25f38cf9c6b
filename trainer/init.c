/* init.c - see init.h. */
#include "trainer/init.h"

#include "trainer/data/half.h"
#include "trainer/state/safetensors.h"

#include <string.h>

/* A state that took over weights, or weights and moments, starts its own count of steps. */
static void restart_scalars(TrainState *state, bool keep_optimizer)
{
    TrainScalars *s = &state->scalars;
    s->step = 0;
    s->position = 0;
    s->n_maxima = 0;
    s->n_accepted = 0;
    if (!keep_optimizer)
        s->adam_t = 0;
    state->ema_active = false;
}

static int weights_to_device(TrainState *state, const float *host)
{
    device_upload(state->device, state->weights, host,
                  (size_t)state->parameters->n_elements * sizeof(float));
    return 0;
}

static int init_from_manifest(const Manifest *manifest, Store *store, bool optimizer,
                              TrainState *state, Error *err)
{
    int r;
    if (optimizer) {
        r = checkpoint_restore(store, NULL, manifest, state, err);
    } else {
        _cleanup_free_ float *host = malloc((size_t)state->parameters->n_elements * sizeof(float));
        if (!host)
            return error_set(err, -ENOMEM, "out of memory for the weights");
        r = checkpoint_restore_weights(store, manifest, manifest_has_ema(manifest),
                                       state->parameters, host, err);
        if (r == 0)
            r = weights_to_device(state, host);
    }
    if (r < 0)
        return r;
    restart_scalars(state, optimizer);
    return 0;
}

static int init_from_checkpoint_uri(const Job *job, TrainState *state, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    int r = manifest_read_uri(job->model.init_uri, NULL, &store, &manifest, err);
    if (r < 0)
        return error_prefix(err, exit_errno_of_named(r), "model.init");
    return init_from_manifest(manifest, store, job->model.init_optimizer, state, err);
}

static float widen(uint16_t h, bool bf16)
{
    if (!bf16)
        return half_to_float(h);
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static int copy_tensor(const char *source, const Parameter *p, const SafetensorsEntry *e,
                       const char *file, float *flat, Error *err)
{
    bool same = e->n_dims == p->n_dims;
    for (int i = 0; same && i < p->n_dims; i++)
        same = e->dims[i] == p->dims[i];
    if (!same)
        return error_set(err, -EINVAL, "%s: %s has another shape than the network's", source,
                         p->name);

    float *to = flat + p->offset;
    if (e->type == SAFETENSORS_F32) {
        memcpy(to, file + e->offset, e->n_bytes);
        return 0;
    }
    for (int64_t i = 0; i < p->n_elements; i++) {
        uint16_t h;
        memcpy(&h, file + e->offset + 2 * i, sizeof(h));
        to[i] = widen(h, e->type == SAFETENSORS_BF16);
    }
    return 0;
}

/* One .safetensors file that holds every parameter by name; tensors that the network does not have
 * are refused. */
static int init_from_safetensors(const char *uri, TrainState *state, Error *err)
{
    const char *slash = strrchr(uri, '/');
    _cleanup_free_ char *folder = slash ? strndup(uri, (size_t)(slash - uri)) : strdup(".");
    if (!folder)
        return error_set(err, -ENOMEM, "out of memory");
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_free_ char *file = NULL;
    size_t n_bytes;
    int r = store_open(folder, &store, err);
    if (r == 0)
        r = store_get(store, slash ? slash + 1 : uri, SIZE_MAX / 2, &file, &n_bytes, err);
    if (r < 0)
        return error_prefix(err, exit_errno_of_named(r), "model.init");

    _cleanup_(safetensors_freep) Safetensors *tensors = NULL;
    r = safetensors_open(uri, file, n_bytes, n_bytes, &tensors, err);
    if (r < 0)
        return r;
    const ParameterList *list = state->parameters;
    if (safetensors_count(tensors) != list->n_items)
        return error_set(err, -EINVAL, "%s: has %zu tensors, the network %zu", uri,
                         safetensors_count(tensors), list->n_items);
    _cleanup_free_ float *host = malloc((size_t)list->n_elements * sizeof(float));
    if (!host)
        return error_set(err, -ENOMEM, "out of memory for the weights");
    for (size_t i = 0; i < list->n_items; i++) {
        const SafetensorsEntry *e = safetensors_find(tensors, list->items[i].name);
        if (!e)
            return error_set(err, -EINVAL, "%s: %s is missing", uri, list->items[i].name);
        r = copy_tensor(uri, &list->items[i], e, file, host, err);
        if (r < 0)
            return r;
    }
    return weights_to_device(state, host);
}

int init_state(const Job *job, Store *store, const CheckpointLocal *local, const Manifest *resume,
               TrainState *state, ExitCode *ret_exit, Error *err)
{
    int r;
    if (resume) {
        r = checkpoint_restore(store, local, resume, state, err);
        *ret_exit = exit_code_of_store(r);
        return r;
    }

    *ret_exit = EXIT_NEVER_RETRY;
    switch (job->model.init) {
    case INIT_RANDOM:
        r = 0;
        break;
    case INIT_SAFETENSORS:
        r = init_from_safetensors(job->model.init_uri, state, err);
        break;
    case INIT_CHECKPOINT:
        r = init_from_checkpoint_uri(job, state, err);
        break;
    default:
        r = -EINVAL;
    }
    if (r < 0)
        *ret_exit = exit_code_of_store(r);
    return r;
}
