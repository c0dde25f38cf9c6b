/* SPDX-License-Identifier: Apache-2.0 */
/* testing-state.c - see testing-state.h. */
#include "trainer/checkpoint/test/testing-state.h"

#include "kernels/test/testing-copy.h"

#include <stdlib.h>
#include <string.h>

const char testing_config[] = "{\"_class_name\": \"UNet2DConditionModel\"}\n";

static const struct {
    const char *name;
    int n_dims;
    int64_t dims[PARAMETER_DIMS_MAX];
} tensors[] = {
    {"conv_in.weight", 4, {16, 4, 3, 3}},
    {"conv_in.bias", 1, {16}},
    {"a.weight", 2, {100, 100}},
    {"a.bias", 1, {100}},
    {"b.weight", 2, {300, 100}},
    {"b.bias", 1, {300}},
    {"scale", 1, {1}},
    {"conv_out.weight", 2, {5, 10}},
};

void fixture_open(FixtureSize size, Fixture *ret)
{
    Error err = ERROR_INIT;
    *ret = (Fixture){0};
    const size_t n_tensors = size == FIXTURE_MEDIUM  ? ELEMENTSOF(tensors)
                             : size == FIXTURE_SMALL ? 4
                                                     : 2;
    int r = device_open(&(DeviceOptions){.kind = DEVICE_CPU, .threads = 1}, &ret->device, &err);
    world_check(r == 0, "%s", err.text);

    ret->parameters = calloc(1, sizeof(*ret->parameters));
    world_check(ret->parameters, "memory");
    ParameterList *list = ret->parameters;
    list->items = calloc(ELEMENTSOF(tensors), sizeof(*list->items));
    world_check(list->items, "memory");
    if (size == FIXTURE_LARGE) {
        list->items[list->n_items++] = (Parameter){.name = "large.weight",
                                                   .n_dims = 2,
                                                   .dims = {2700, 1000},
                                                   .n_elements = 2700000};
        list->n_elements = 2700000;
    }
    for (size_t i = 0; i < n_tensors; i++) {
        Parameter *p = &list->items[list->n_items++];
        (void)snprintf(p->name, sizeof(p->name), "%s", tensors[i].name);
        p->n_dims = tensors[i].n_dims;
        p->offset = list->n_elements;
        p->n_elements = 1;
        for (int k = 0; k < p->n_dims; k++) {
            p->dims[k] = tensors[i].dims[k];
            p->n_elements *= p->dims[k];
        }
        list->n_elements += p->n_elements;
    }
}

void fixture_close(Fixture *fixture)
{
    fixture->device = device_free(fixture->device);
    free(fixture->parameters->items);
    free(fixture->parameters);
    fixture->parameters = NULL;
}

typedef enum Kind { WEIGHTS, M, V, EMA } Kind;

/* Returns a number that is cheap to compute and differs for neighbours in each argument. */
static float value_of(int64_t step, Kind kind, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)step * 2246822519u ^ (uint32_t)kind << 29;
    return (float)(int32_t)(x ^ x >> 15);
}

static TrainScalars scalars_of(int64_t step, uint32_t *maxima, size_t n_tensors)
{
    for (size_t i = 0; i < n_tensors * MAXIMA_WINDOW; i++)
        maxima[i] = (uint32_t)hash64_bytes(&i, sizeof(i), (uint64_t)step);
    return (TrainScalars){.step = step,
                          .position = 64 * step,
                          .adam_t = step - step / 3,
                          .loss_scale = 65536.0 / 3,
                          .loss_scale_steps = step / 2,
                          .n_maxima = MIN(step, (int64_t)MAXIMA_WINDOW),
                          .n_accepted = step,
                          .maxima = maxima};
}

/* Fills or checks [first, first + n) of one buffer. */
static void visit(Device *device, float *at, int64_t step, Kind kind, int64_t first, int64_t n,
                  bool check)
{
    const size_t n_bytes = (size_t)n * sizeof(float);
    float *host = device_copy_of(device, at, n_bytes);
    for (int64_t i = 0; i < n; i++)
        if (!check)
            host[i] = value_of(step, kind, first + i);
        else
            world_check(host[i] == value_of(step, kind, first + i),
                        "step %lld, buffer %d, element %lld", (long long)step, (int)kind,
                        (long long)(first + i));
    if (!check)
        device_upload(device, at, host, n_bytes);
    free(host);
}

static void visit_all(const TrainState *state, int64_t step, bool ema_active, bool check)
{
    Device *device = state->device;
    visit(device, state->weights, step, WEIGHTS, 0, state->layout.n_elements, check);
    for (int64_t c = 0; c < state->layout.n_chunks; c++) {
        float *m = train_state_chunk(state, state->m, c);
        const int64_t first = chunk_begin(&state->layout, c), n = chunk_length(&state->layout, c);
        if (!m)
            continue;
        visit(device, m, step, M, first, n, check);
        visit(device, train_state_chunk(state, state->v, c), step, V, first, n, check);
        if (ema_active)
            visit(device, train_state_chunk(state, state->ema, c), step, EMA, first, n, check);
    }
}

TrainState *testing_state(const Fixture *fixture, int64_t step, int rank, int world_size,
                          int zero_stage, bool ema_active)
{
    Error err = ERROR_INIT;
    TrainState *state = NULL;
    int r = train_state_new(fixture->device, fixture->parameters, rank, world_size, zero_stage,
                            true, &state, &err);
    world_check(r == 0, "%s", err.text);
    state->ema_active = ema_active;
    state->scalars = scalars_of(step, state->scalars.maxima, fixture->parameters->n_items);
    visit_all(state, step, ema_active, false);
    return state;
}

void testing_state_check(const TrainState *state, int64_t step, bool ema_active)
{
    uint32_t maxima[ELEMENTSOF(tensors) * MAXIMA_WINDOW];
    const size_t n_tensors = state->parameters->n_items;
    TrainScalars wanted = scalars_of(step, maxima, n_tensors);
    world_check(memcmp(maxima, state->scalars.maxima,
                       n_tensors * MAXIMA_WINDOW * sizeof(*maxima)) == 0,
                "maxima");
    wanted.maxima = state->scalars.maxima;
    world_check(memcmp(&wanted, &state->scalars, sizeof(wanted)) == 0, "scalars");
    world_check(state->ema_active == ema_active, "ema_active");
    visit_all(state, step, ema_active, true);
}

Hash testing_digest(const Fixture *fixture, int64_t step, bool ema_active)
{
    Error err = ERROR_INIT;
    /* The digest is computed on a separate device, whose lanes have ended when a test forks. */
    _cleanup_(device_freep) Device *device = NULL;
    int r = device_open(&(DeviceOptions){.kind = DEVICE_CPU, .threads = 1}, &device, &err);
    world_check(r == 0, "%s", err.text);
    const Fixture own = {.device = device, .parameters = fixture->parameters};
    _cleanup_(train_state_freep) TrainState *state = testing_state(&own, step, 0, 1, 0, ema_active);
    Hash chunks[64];
    world_check(state->layout.n_chunks <= (int64_t)ELEMENTSOF(chunks), "chunks");
    for (int64_t c = 0; c < state->layout.n_chunks; c++)
        world_check(train_state_chunk_hash(state, c, &chunks[c], &err) == 0, "%s", err.text);
    return state_digest(&state->scalars, state->parameters->n_items, &state->layout,
                        state->ema_active, chunks);
}

CheckpointFacts testing_facts(int64_t generation)
{
    return (CheckpointFacts){.job = "test",
                             .submission = "00112233445566778899aabbccddeeff",
                             .job_identity = {1, 2},
                             .dataset_digest = {3, 4},
                             .order_algorithm = 1,
                             .reduction_algorithm = 1,
                             .generation = generation,
                             .numerics = "{\"backend\":\"cpu\"}",
                             .canned_grain = {5, 6}};
}

char *testing_metrics(int64_t generation, int64_t first, int64_t last)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    world_check(f, "memory");
    for (int64_t step = first; step <= last; step++)
        (void)fprintf(f, "step %lld of generation %lld\n", (long long)step,
                      (long long)generation); /* fclose() reports errors */
    world_check(fclose(f) == 0, "memory");
    return text;
}

CheckpointWriter *testing_writer(const Fixture *fixture, Store *store, Comm *reports,
                                 int64_t generation, uint64_t weight_file_bytes)
{
    Error err = ERROR_INIT;
    CheckpointWriter *writer = NULL;
    int r = checkpoint_writer_new(&(CheckpointOptions){.store = store,
                                                       .reports = reports,
                                                       .parameters = fixture->parameters,
                                                       .unet_config = testing_config,
                                                       .plans = getenv("SDTRAIN_TEST_PLANS"),
                                                       .facts = testing_facts(generation),
                                                       .keep_last = 2,
                                                       .keep_every = 100,
                                                       .weight_file_bytes = weight_file_bytes},
                                  &writer, &err);
    world_check(r == 0, "%s", err.text);
    return writer;
}

CheckpointResult testing_save(CheckpointWriter *writer, const TrainState *state, int64_t generation,
                              int64_t metrics_first)
{
    Error err = ERROR_INIT;
    const int64_t step = state->scalars.step;
    _cleanup_free_ char *metrics = testing_metrics(generation, metrics_first, step);
    int r = checkpoint_begin(writer, state, state->rank == 0 ? metrics : NULL,
                             MIN(metrics_first, step + 1), step, &err);
    world_check(r == 0, "%s", err.text);
    CheckpointResult result;
    r = checkpoint_wait(writer, 60 * USEC_PER_SEC, &result);
    world_check(r == 0, "the save of step %lld hangs", (long long)step);
    return result;
}
