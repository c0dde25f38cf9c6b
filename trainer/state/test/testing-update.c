/* SPDX-License-Identifier: Apache-2.0 */
/* testing-update.c - see testing-update.h. */
#include "trainer/state/test/testing-update.h"

#include "base/number/philox.h"

#include <math.h>
#include <string.h>

/* Odd sizes: chunks of 4096 elements cut some tensors, and hold several others. */
static const int64_t tensor_elements[TENSORS] = {3,    5000, 17,   9001, 1,  4096,
                                                 8197, 31,   4095, 2,    123};

static void make_parameters(ParameterList *list, Parameter items[TENSORS])
{
    int64_t offset = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        items[i] = (Parameter){.n_dims = 1, .n_elements = tensor_elements[i], .offset = offset};
        items[i].dims[0] = tensor_elements[i];
        (void)snprintf(items[i].name, sizeof(items[i].name), "tensor.%zu", i);
        offset += tensor_elements[i];
    }
    *list = (ParameterList){.items = items, .n_items = TENSORS, .n_elements = offset};
}

static Job make_job(const Case *c)
{
    Job job = {0};
    job.train.n_grains = c->n_grains;
    job.train.grain = GRAIN_SAMPLES;
    job.train.global_batch = c->n_grains * GRAIN_SAMPLES;
    job.train.steps = STEPS;
    job.train.reduction = c->reduction;
    job.train.zero_stage = c->zero_stage;
    job.train.optimizer.lr = 1e-3;
    job.train.optimizer.beta1 = 0.9;
    job.train.optimizer.beta2 = 0.999;
    job.train.optimizer.eps = 1e-8;
    job.train.optimizer.weight_decay = 0.01;
    job.train.optimizer.warmup_steps = WARMUP;
    job.train.optimizer.clip_norm = c->clip_norm;
    job.train.ema.enabled = true;
    job.train.ema.decay = 0.99;
    job.train.ema.start_step = c->ema_start;
    return job;
}

/* Returns the scale of a tensor's gradients. Scales differ by orders of magnitude, and sometimes one grain's scale
 * jumps far beyond the headroom. */
static float scale_of(int64_t step, int64_t grain, int64_t n_grains, size_t tensor)
{
    float scale = ldexpf(1.0f, (int)(tensor * 5 % 23) - 20);
    if ((step == 8 && tensor == 3) || (step == 20 && tensor == 6))
        scale *= grain == n_grains - 1 ? 1000.0f : 3.0f;
    return scale;
}

/* Computes gradients that depend on the weights, so that an error in one step affects all later steps. */
void rank_fill_gradients(const ParameterList *list, const float *weights, int64_t step,
                         int64_t grain, int64_t n_grains, float *g)
{
    for (size_t t = 0; t < list->n_items; t++) {
        float scale = scale_of(step, grain, n_grains, t);
        int64_t offset = list->items[t].offset;
        for (int64_t i = 0; i < list->items[t].n_elements; i += 4) {
            Philox random = philox4x32((uint64_t)step << 32 | (uint64_t)grain, t, (uint64_t)i / 4);
            for (int64_t j = i; j < MIN(i + 4, list->items[t].n_elements); j++)
                g[offset + j] = scale * (philox_uniform(random.word[j - i]) - 0.4f +
                                         0.1f * weights[offset + j]);
        }
    }
}

static double loss_of(const float *weights, int64_t step, int64_t grain)
{
    return 1.0 / (double)(step + 3 * grain + 1) + (double)weights[(step * 7 + grain) % 1000];
}

void rank_open(Rank *rank, const Case *c, Comm *comm)
{
    Error err = ERROR_INIT;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    int r = device_open(&options, &rank->device, &err);
    world_check(r == 0, "%s", err.text);
    make_parameters(&rank->list, rank->items);
    rank->job = make_job(c);
    r = train_state_new(rank->device, &rank->list, comm_rank(comm), comm_size(comm), c->zero_stage,
                        true, &rank->state, &err);
    world_check(r == 0, "%s", err.text);
    r = update_new(rank->state, comm, rank->bulk, &rank->job, &rank->update, &err);
    world_check(r == 0, "%s", err.text);
    rank->gradients = malloc((size_t)rank->list.n_elements * sizeof(float));
    rank->weights = malloc((size_t)rank->list.n_elements * sizeof(float));
    for (int64_t i = 0; i < rank->list.n_elements; i++)
        rank->weights[i] = philox_uniform(philox4x32(1, 2, (uint64_t)i).word[0]) - 0.5f;
    device_upload(rank->device, rank->state->weights, rank->weights,
                  (size_t)rank->list.n_elements * sizeof(float));
    r = device_host_allocate(rank->device, (size_t)c->n_grains * sizeof(double),
                             (void **)&rank->losses, &err);
    world_check(r == 0, "%s", err.text);
    r = device_allocate(rank->device, (size_t)rank->list.n_elements * sizeof(float),
                        (void **)&rank->device_gradients, &err);
    if (r == 0)
        r = parameter_list_plan(&rank->list, rank->device,
                                (StatePlanShape){.n_ranks = 1, .n_shards = 1}, &rank->plan, &err);
    world_check(r == 0, "%s", err.text);
}

/* Adds a grain as a backward does, but with all tensors at once. */
int rank_add_grain(Rank *rank, int64_t grain, bool has_grain, double loss, Error *err)
{
    if (has_grain) {
        GradientSink sink;
        update_sink(rank->update, grain, &sink);
        device_upload(rank->device, rank->device_gradients, rank->gradients,
                      (size_t)rank->list.n_elements * sizeof(float));
        state_count(rank->plan, rank->device_gradients, 0, rank->list.n_elements, &sink);
        /* host memory that does not change until the pass is collected */
        rank->losses[grain] = loss;
        device_send(rank->device, LANE_COMPUTE, update_loss(rank->update), &rank->losses[grain],
                    sizeof(loss));
    }
    return update_add_grain(rank->update, grain, has_grain, err);
}

void rank_close(Rank *rank)
{
    Error err = ERROR_INIT;
    int r = device_synchronise(rank->device, &err);
    world_check(r == 0, "%s", err.text);
    rank->update = update_free(rank->update);
    rank->state = train_state_free(rank->state);
    rank->bulk = comm_free(rank->bulk);
    rank->plan = state_plan_free(rank->plan);
    device_release(rank->device, rank->device_gradients);
    device_host_release(rank->device, rank->losses);
    rank->device = device_free(rank->device);
    free(rank->gradients);
    free(rank->weights);
}

/* Makes one pass over this rank's grains. poisoned: grain 2 has a NaN, grain 3 an infinity. */
void rank_compute_grains(Rank *rank, bool poisoned)
{
    Error err = ERROR_INIT;
    int64_t first, n, share, step = rank->state->scalars.step + 1;
    int64_t n_grains = rank->job.train.n_grains;
    grain_share(n_grains, rank->state->rank, rank->state->world_size, &first, &n, &share);
    device_download(rank->device, rank->weights, rank->state->weights,
                    (size_t)rank->list.n_elements * sizeof(float));
    for (int64_t i = 0; i < share; i++) {
        int64_t grain = first + i;
        if (i < n)
            rank_fill_gradients(&rank->list, rank->weights, step, grain, n_grains, rank->gradients);
        if (poisoned && grain == 2)
            rank->gradients[rank->items[6].offset + 8000] = NAN;
        if (poisoned && grain == 3)
            rank->gradients[rank->items[1].offset] = INFINITY;
        int r = rank_add_grain(rank, grain, i < n, i < n ? loss_of(rank->weights, step, grain) : 0,
                               &err);
        world_check(r == 0, "%s", err.text);
    }
}

UpdateVerdict rank_decide(Rank *rank, UpdateResult *result)
{
    Error err = ERROR_INIT;
    UpdateVerdict verdict;
    int r = update_collect(rank->update, &err);
    world_check(r == 0, "%s", err.text);
    r = update_decide(rank->update, &verdict, result, &err);
    world_check(r == 0, "%s", err.text);
    return verdict;
}

void small_open(Small *small, const Case *c)
{
    Error err = ERROR_INIT;
    *small = (Small){0};
    world_check(comm_open_self(&small->comm, &err) == 0, "%s", err.text);
    rank_open(&small->rank, c, small->comm);
    small->rank.job.train.optimizer.beta1 = 0; /* so that m is the gradient */
}

void small_close(Small *small)
{
    rank_close(&small->rank);
    small->comm = comm_free(small->comm);
}

UpdateVerdict small_pass(Small *small, float g, UpdateResult *result)
{
    Error err = ERROR_INIT;
    Rank *rank = &small->rank;
    for (int64_t i = 0; i < rank->list.n_elements; i++)
        rank->gradients[i] = g;
    for (int64_t grain = 0; grain < rank->job.train.n_grains; grain++)
        world_check(rank_add_grain(rank, grain, true, 1, &err) == 0, "%s", err.text);
    return rank_decide(rank, result);
}

void small_apply(Small *small, UpdateResult *result)
{
    Error err = ERROR_INIT;
    uint32_t word;
    world_check(update_apply(small->rank.update, 0, &word, result, &err) == 0, "%s", err.text);
}
