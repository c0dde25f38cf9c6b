/* memory.c - see memory.h. */
#include "trainer/memory.h"

MemoryNeed memory_need(const Job *job, const Network *network, int world_size)
{
    const uint64_t n = (uint64_t)network_parameters(network)->n_elements;
    const uint64_t parts = job->train.zero_stage == 0 ? 1 : (uint64_t)world_size;
    const uint64_t sum_bytes = job->train.reduction == REDUCTION_EXACT64 ? 8 : 4;
    MemoryNeed need = {
        .n_parameters = (int64_t)n,
        .weights = 4 * n,
        .gradients = 4 * n,
        .sums = sum_bytes * n / (job->train.zero_stage == 2 ? parts : 1),
        .moments = 8 * n / parts,
        .ema = job->train.ema.enabled ? 4 * n / parts : 0,
        .network = network_arena_bytes(network),
    };
    need.total = need.weights + need.gradients + need.sums + need.moments + need.ema + need.network;
    return need;
}

static double gib(uint64_t n_bytes) { return (double)n_bytes / 0x1p30; }

int memory_check(const MemoryNeed *need, uint64_t available, Error *err)
{
    if (need->total <= available)
        return 0;
    return error_set(
        err, -E2BIG,
        "train.grain, model.config: a rank needs at least %.2f GiB: of %lld parameters "
        "weights %.2f, gradients %.2f, their sums %.2f, moments %.2f, EMA %.2f; of the "
        "network %.2f; this machine has %.2f GiB, swap included",
        gib(need->total), (long long)need->n_parameters, gib(need->weights), gib(need->gradients),
        gib(need->sums), gib(need->moments), gib(need->ema), gib(need->network), gib(available));
}
