/* SPDX-License-Identifier: Apache-2.0 */
/* initial-state.c - see initial-state.h. */
#include "trainer/session/initial-state.h"

#include "base/number/half.h"
#include "nn/weights/weights-match.h"
#include "trainer/begin/begin.h"
#include "trainer/session/device-exit.h"
#include "trainer/session/start-times.h"
#include "trainer/state/device-staging.h"

#include <string.h>

enum { PIECE_ELEMENTS = 1 << 20 };

/* Restarts the count of steps of a state whose weights, or weights and moments, come from another source. */
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

int init_random(const Job *job, TrainState *state, Error *err)
{
    const int64_t n = state->parameters->n_elements;
    _cleanup_(device_staging_freep) DeviceStaging *staging = NULL;
    _cleanup_free_ float *piece = malloc(PIECE_ELEMENTS * sizeof(*piece));
    start_part("memory");
    int r = piece ? device_staging_new(state->device, &staging, err)
                  : error_set(err, -ENOMEM, "initial weights: out of memory");
    for (int64_t begin = 0; r == 0 && begin < n; begin += PIECE_ELEMENTS) {
        const int64_t end = MIN(begin + PIECE_ELEMENTS, n);
        parameters_initialise_range(state->parameters, job->train.seed, begin, end, piece);
        r = device_staging_upload(staging, state->weights + begin, piece,
                                  (size_t)(end - begin) * sizeof(*piece),
                                  "sending the initial weights", err);
    }
    start_part("weights");
    return error_set_exit(err, r, r == -ENOMEM ? EXIT_RETRY : device_exit_code(r));
}

static int init_from_manifest(const Manifest *manifest, Store *store, bool optimizer,
                              TrainState *state, Error *err)
{
    int r;
    if (optimizer) {
        r = checkpoint_restore(store, NULL, manifest, state, err);
    } else {
        r = checkpoint_restore_weights(store, manifest, manifest_has_ema(manifest),
                                       state->parameters, state->device, state->weights, err);
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
    int r = begin_read_init(job, state->parameters, &store, &manifest, err);
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

/* A file of weights. It is read in pieces, since the whole file would need as much memory again as the weights. */
typedef struct WeightsFile {
    const char *uri, *key;
    Store *store;
    Safetensors *tensors;
    char *piece;   /* PIECE_ELEMENTS of the widest type */
    float *floats; /* the piece, converted to floats */
    DeviceStaging *staging;
} WeightsFile;

static void weights_file_close(WeightsFile *f)
{
    (void)safetensors_free(f->tensors);
    (void)store_free(f->store);
    (void)device_staging_free(f->staging);
    free(f->piece);
    free(f->floats);
}

static int weights_file_open(const char *uri, const TrainState *state, WeightsFile *f, Error *err)
{
    *f = (WeightsFile){.uri = uri, .key = weights_key(uri)};
    f->piece = malloc(PIECE_ELEMENTS * sizeof(float));
    f->floats = malloc(PIECE_ELEMENTS * sizeof(float));
    if (!f->piece || !f->floats)
        return error_set(err, -ENOMEM, "out of memory");
    int r = device_staging_new(state->device, &f->staging, err);
    return r < 0 ? r : weights_open(uri, state->parameters, &f->store, &f->tensors, err);
}

static int read_tensor(const WeightsFile *f, const Parameter *p, TrainState *state, Error *err)
{
    /* the entry exists: weights_open() has checked all names */
    const SafetensorsEntry *e = safetensors_find(f->tensors, p->name);
    const bool wide = e->type == SAFETENSORS_F32;
    const size_t element = wide ? sizeof(float) : sizeof(uint16_t);
    for (int64_t at = 0; at < p->n_elements; at += PIECE_ELEMENTS) {
        const size_t n = (size_t)MIN(p->n_elements - at, (int64_t)PIECE_ELEMENTS);
        int r = store_get_range(f->store, f->key, e->offset + (uint64_t)at * element, n * element,
                                f->piece, err);
        if (r < 0)
            return r;
        for (size_t i = 0; !wide && i < n; i++) {
            uint16_t h;
            memcpy(&h, f->piece + i * sizeof(h), sizeof(h));
            f->floats[i] = widen(h, e->type == SAFETENSORS_BF16);
        }
        r = device_staging_upload(f->staging, state->weights + p->offset + at,
                                  wide ? (const void *)f->piece : f->floats, n * sizeof(float),
                                  "sending the initial weights", err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Reads one .safetensors file that holds every parameter by name, and nothing else. */
static int init_from_safetensors(const char *uri, TrainState *state, Error *err)
{
    _cleanup_(weights_file_close) WeightsFile file;
    int r = weights_file_open(uri, state, &file, err);
    const ParameterList *list = state->parameters;
    for (size_t i = 0; r == 0 && i < list->n_items; i++)
        r = read_tensor(&file, &list->items[i], state, err);
    return r < 0 ? error_prefix(err, exit_errno_of_named(r), "model.init") : 0;
}

int init_state(const Job *job, Store *store, const CheckpointLocal *local, const Manifest *resume,
               TrainState *state, Error *err)
{
    int r;
    if (resume) {
        r = checkpoint_restore(store, local, resume, state, err);
        return error_set_exit(err, r, exit_code_of_store(r));
    }

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
    return error_set_exit(err, r, exit_code_of_store(r));
}
