/* SPDX-License-Identifier: Apache-2.0 */
/* memory-plan.c - see memory-plan.h: counts what session.c, grain.c, update.c, gradient-sum.c, loader.c and writer.c
 * allocate, in the same order. test-memory compares the plan with ranks that ran. */
#include "trainer/plan/memory-plan.h"

#include "manifest/object.h"
#include "protocol/manifest-limits.h"

#include <string.h>

enum {
    /* memory of a rank with a tiny network: code, stacks, and slack of the heap */
    LIBRARIES_BYTES = 32 << 20,
    /* Scratch of each of three comms (gloo.c): the larger of EXCHANGE_BYTES and world_size * EXCHANGE_RANK_BYTES. */
    EXCHANGE_BYTES = 4 << 20,
    EXCHANGE_RANK_BYTES = 4 << 10,
    BUCKET_BYTES = 4 << 20, /* as in gradient-sum.c */
    EMA_AT_ONCE_BYTES = 64 << 20,
    AHEAD_BYTES = 256 << 20, /* limit that session.c gives the loader */
    AHEAD_STEPS = 64,        /* SLOTS_MAX of loader.c */
    SAMPLE_HASHES_BYTES = 256 << 20,
    STORE_BYTES = 256 << 20,      /* default of SDTRAIN_S3_MEMORY_BYTES */
    STORE_LEAST_BYTES = 16 << 20, /* memory of the connections, with TLS */
};
/* the most memory for whole shards of a stream that has no cache */
static const uint64_t SHARDS_BYTES = UINT64_C(1) << 30;

static const char *const name_of[MEMORY_USES] = {
    [MEMORY_WEIGHTS] = "master weights",
    [MEMORY_PACKED] = "weights packed for the kernels",
    [MEMORY_MOMENTS] = "moments",
    [MEMORY_EMA] = "EMA",
    [MEMORY_GRADIENTS] = "gradients of a grain",
    [MEMORY_SUMS] = "sums of gradients",
    [MEMORY_ACTIVATIONS] = "activations and workspace",
    [MEMORY_EXCHANGE] = "exchange with other ranks",
    [MEMORY_SNAPSHOT] = "copy that a save makes",
    [MEMORY_DATA] = "data: loader, read-ahead, cache",
    [MEMORY_LIBRARIES] = "libraries, code, stacks",
};

typedef struct Counting {
    const Job *job;
    const ParameterList *parameters;
    const Device *device;
    const DatasetShape *shape;
    ChunkLayout layout;
    int world_size, shards;
    /* bytes in fp32; n: of all parameters; chunk: of one chunk; shard: of a rank's part of m */
    uint64_t n, chunk, shard;
    int64_t share; /* grains of the rank with the most grains */
} Counting;

static bool is_remote(const char *uri)
{
    return strstr(uri, "://") && strncmp(uri, "file://", 7) != 0;
}

static uint64_t samples_bytes(const Counting *c, uint64_t n_samples)
{
    const DatasetShape *s = c->shape;
    const uint64_t floats = (uint64_t)s->channels * (uint64_t)s->height * (uint64_t)s->width +
                            (uint64_t)s->text_tokens * (uint64_t)s->text_dim;
    return n_samples * floats * sizeof(float);
}

static uint64_t sum_element_bytes(const Job *job)
{
    return job->train.reduction == REDUCTION_EXACT64 ? 8 : 4;
}

/* Returns the bytes of ZeRO 2's bucket, which has whole rows. A row has one chunk of each rank. Its elements have the
 * type of the sums. */
static uint64_t bucket_bytes(const Counting *c)
{
    const uint64_t row = c->chunk / 4 * (uint64_t)c->world_size * sum_element_bytes(c->job);
    const uint64_t all = ROUND_UP(c->n / 4 * sum_element_bytes(c->job), row);
    return MIN(MAX(BUCKET_BYTES / row, UINT64_C(1)) * row, all);
}

static void count_sums(const Counting *c, MemoryPlan *plan)
{
    const uint64_t element = sum_element_bytes(c->job);
    const bool bucketed = c->job->train.zero_stage == 2;
    plan->bytes[MEMORY_GRADIENTS] = bucketed ? c->n : 0;
    plan->bytes[MEMORY_SUMS] = (bucketed ? c->shard : c->n) / 4 * element +
                               (uint64_t)c->share * c->parameters->n_items * 2 * sizeof(uint32_t);
    plan->bytes[MEMORY_EXCHANGE] =
        c->world_size > 1
            ? 3 * MAX((uint64_t)EXCHANGE_BYTES, (uint64_t)c->world_size * EXCHANGE_RANK_BYTES)
            : 0;
    if (bucketed)
        plan->bytes[MEMORY_EXCHANGE] += bucket_bytes(c) + bucket_bytes(c) / (uint64_t)c->world_size;
}

/* Returns the bytes of a grain that grain.c keeps apart from the network: latents ten times, text five times. */
static uint64_t grain_bytes(const Counting *c)
{
    const DatasetShape *s = c->shape;
    const int64_t latents = c->job->train.grain * s->channels * s->height * s->width;
    const int64_t text = c->job->train.grain * s->text_tokens * s->text_dim;
    return (uint64_t)(10 * latents + 5 * text) * sizeof(float) +
           mse_loss_workspace_bytes(c->device, latents);
}

/* Returns the bytes of samples that a stream's reads ahead hold: at most the bytes of the requested samples. Each pass
 * reads the whole stream. The requested samples may begin in the middle of a pass, and so need one more pass. */
static uint64_t ahead_bytes(const Counting *c, const StreamSize *size)
{
    const Job *job = c->job;
    const uint64_t most = (uint64_t)job->data.read_ahead_bytes;
    const uint64_t a_step = (uint64_t)(c->share * job->train.grain);
    const uint64_t asked = MIN((uint64_t)job->data.read_ahead, (uint64_t)job->train.steps * a_step);
    if (!size || size->n_bytes == 0 || size->n_bytes >= most)
        return most;
    return MIN(most, (DIV_ROUND_UP(asked, MAX(size->n_samples, UINT64_C(1))) + 1) * size->n_bytes);
}

/* Returns the bytes of a stream's whole shards: each is in memory once, and once more while it arrives. */
static uint64_t shards_bytes(const StreamSize *size)
{
    const bool known = size && size->n_bytes > 0 && size->n_bytes < SHARDS_BYTES;
    return known ? MIN(2 * size->n_bytes, SHARDS_BYTES) : SHARDS_BYTES;
}

/* Returns the bytes that the store needs. The store may try each read a second time, and all second tries need as
 * many bytes as all reads in progress: the reads of data and of a checkpoint. */
static uint64_t store_bytes(const Counting *c, uint64_t ahead)
{
    uint64_t at_once = ahead;
    if (is_remote(c->job->checkpoint.uri))
        at_once += c->n + (c->job->train.ema.enabled ? 3 : 2) * c->shard;
    return MIN(STORE_LEAST_BYTES + at_once, (uint64_t)STORE_BYTES);
}

static void count_data(const Counting *c, const MemoryData *data, MemoryPlan *plan)
{
    const Job *job = c->job;
    bool remote = false;
    uint64_t ahead = 0, shards = 0;
    for (size_t i = 0; i < job->data.n_streams; i++) {
        const StreamSize *size = data && data->sizes ? &data->sizes[i] : NULL;
        const bool is_far = is_remote(job->data.streams[i].uri);
        remote |= is_far;
        if (is_far)
            ahead = MIN(ahead + ahead_bytes(c, size), (uint64_t)job->data.read_ahead_bytes);
        if (!job->data.cache_dir && (is_far || (data && data->compressed)))
            shards += shards_bytes(size);
    }
    const uint64_t step = MAX(samples_bytes(c, (uint64_t)(c->share * job->train.grain)), 1);
    const uint64_t slots = CLAMP((uint64_t)AHEAD_BYTES / step, UINT64_C(1), (uint64_t)AHEAD_STEPS);
    uint64_t *bytes = &plan->bytes[MEMORY_DATA];
    *bytes = MIN(slots, (uint64_t)job->train.steps) * step;
    *bytes += ahead + shards;
    if (data)
        *bytes += MIN(8 * data->n_samples, (uint64_t)SAMPLE_HASHES_BYTES);
    plan->bytes[MEMORY_LIBRARIES] =
        LIBRARIES_BYTES +
        (remote || is_remote(job->checkpoint.uri) ? store_bytes(c, ahead + shards) : 0);
}

/* Why a rank needs a chunk: for a file of weights, or of the EMA. */
enum { COPIES_WEIGHTS = 1, COPIES_EMA = 2 };

/* Marks the chunks that are part of the weight files that the rank writes. */
static void mark_files(const Counting *c, const ObjectTable *table, int rank, uint8_t *marks)
{
    memset(marks, 0, (size_t)c->layout.n_chunks);
    for (size_t i = 0; i < table->n_records; i++) {
        const ObjectRecord *o = &table->records[i];
        if (!object_has_header(o->kind) || object_owner(table, o, c->world_size) != rank)
            continue;
        for (int64_t k = o->first / c->layout.chunk_elements;
             k <= (o->first + o->count - 1) / c->layout.chunk_elements; k++)
            marks[k] |= o->kind == OBJECT_WEIGHTS ? COPIES_WEIGHTS : COPIES_EMA;
    }
}

/* Returns the bytes that snapshot.c copies or gathers. A blocking save is written from the state itself if the host can
 * read it. */
static uint64_t copied_bytes(const Counting *c, int rank, const uint8_t *marks)
{
    const bool ema = c->job->train.ema.enabled;
    const bool lent = c->job->checkpoint.blocking && c->job->train.device == JOB_DEVICE_CPU;
    const bool complete = c->job->train.zero_stage == 0 || c->world_size == 1;
    const bool all_ema = !complete && c->n <= EMA_AT_ONCE_BYTES;
    uint64_t elements = 0;
    for (int64_t k = 0; k < c->layout.n_chunks; k++) {
        const bool owned = chunk_owner(k, c->world_size) == rank;
        uint64_t copies = 0;
        if (!lent)
            copies += 2 * (uint64_t)owned + (owned || (marks[k] & COPIES_WEIGHTS));
        if (ema && (!lent || !complete))
            copies += owned || all_ema || (marks[k] & COPIES_EMA);
        elements += copies * (uint64_t)chunk_length(&c->layout, k);
    }
    return elements * sizeof(float);
}

/* Only rank 0 and the ranks that write a weight file can have the most copies. If the model has more chunks than a
 * manifest may list, the checkpoint's writer refuses the model, and the model needs more memory than any machine
 * has. */
static int count_snapshot(const Counting *c, MemoryPlan *plan, Error *err)
{
    ObjectTable table;
    if (c->layout.n_chunks > MANIFEST_CHUNKS_MAX)
        return 0;
    _cleanup_free_ uint8_t *marks = calloc((size_t)c->layout.n_chunks, 1);
    int r = marks ? object_table_new(c->parameters, &c->layout, WEIGHT_FILE_BYTES,
                                     c->job->train.ema.enabled, &table)
                  : -ENOMEM;
    if (r < 0)
        return error_set(err, r, "memory plan: out of memory");
    uint64_t most = 0;
    for (int rank = 0; rank < c->world_size && rank <= 2 * table.n_files; rank++) {
        mark_files(c, &table, rank, marks);
        most = MAX(most, copied_bytes(c, rank, marks));
    }
    /* plus one chunk that is received but not kept */
    plan->bytes[MEMORY_SNAPSHOT] = most + c->chunk;
    object_table_clear(&table);
    return 0;
}

int memory_plan(const Job *job, const Network *network, const DatasetShape *shape,
                const MemoryData *data, int world_size, MemoryPlan *ret, Error *err)
{
    const ParameterList *parameters = network_parameters(network);
    Counting c = {.job = job,
                  .parameters = parameters,
                  .device = network_device(network),
                  .shape = shape,
                  .layout = chunk_layout(parameters->n_elements),
                  .world_size = world_size,
                  .shards = job->train.zero_stage == 0 ? 1 : world_size,
                  .n = (uint64_t)parameters->n_elements * sizeof(float),
                  .share = DIV_ROUND_UP(job->train.n_grains, world_size)};
    c.chunk = (uint64_t)c.layout.chunk_elements * sizeof(float);
    c.shard = (uint64_t)shard_slots(&c.layout, c.shards) * c.chunk;
    MemoryPlan plan = {.n_parameters = parameters->n_elements,
                       .world_size = world_size,
                       .grain = job->train.grain,
                       .workspace_bytes = network_workspace_bytes(network)};
    plan.bytes[MEMORY_WEIGHTS] = c.n;
    plan.bytes[MEMORY_PACKED] = network_packed_bytes(network);
    plan.bytes[MEMORY_MOMENTS] = 2 * c.shard;
    plan.bytes[MEMORY_EMA] = job->train.ema.enabled ? c.shard : 0;
    plan.bytes[MEMORY_ACTIVATIONS] =
        network_arena_bytes(network) - network_packed_bytes(network) + grain_bytes(&c);
    count_sums(&c, &plan);
    count_data(&c, data, &plan);
    int r = count_snapshot(&c, &plan, err);
    if (r == 0)
        *ret = plan;
    return r;
}

int memory_plan_worlds(const Job *job, const UnetConfig *config, const DatasetShape *shape,
                       const MemoryData *data, const int *world_sizes, size_t n, MemoryPlan *ret,
                       Error *err)
{
    _cleanup_(device_freep) Device *device = NULL;
    _cleanup_(network_freep) Network *network = NULL;
    const DeviceOptions options = {.kind = DEVICE_CPU,
                                   .threads = job->train.threads,
                                   .type = DATA_F32};
    const NetworkShape network_shape = {.grain = (int)job->train.grain,
                                        .height = shape->height,
                                        .width = shape->width,
                                        .text_tokens = shape->text_tokens,
                                        .backward = true};
    int r = device_open(&options, &device, err);
    if (r == 0)
        r = network_plan(device, config, &network_shape, &network, err);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = memory_plan(job, network, shape, data, world_sizes[i], &ret[i], err);
    return r;
}

uint64_t memory_total(const MemoryPlan *plan)
{
    uint64_t total = 0;
    for (int i = 0; i < MEMORY_USES; i++)
        total += plan->bytes[i];
    return total;
}

uint64_t memory_least(const MemoryPlan *plan)
{
    return memory_total(plan) - plan->bytes[MEMORY_DATA] - plan->bytes[MEMORY_LIBRARIES];
}

static double gib(uint64_t n_bytes) { return (double)n_bytes / 0x1p30; }

static uint64_t least_of(const MemoryPlan *plan, bool gpu)
{
    return memory_least(plan) - (gpu ? plan->bytes[MEMORY_SNAPSHOT] : 0);
}

/* Lists settings that a job may change. A grain of half the size has half the activations; its workspace may stay as
 * large. */
static void advise(const MemoryPlan *plan, char *ret, size_t size)
{
    const uint64_t grown = plan->bytes[MEMORY_ACTIVATIONS] - plan->workspace_bytes;
    const uint64_t freed = grown - grown / (uint64_t)plan->grain * (uint64_t)(plan->grain / 2);
    int n = 0;
    *ret = '\0';
    if (plan->grain > 1)
        n = snprintf(ret, size, "; train.grain %lld frees %.2f", (long long)(plan->grain / 2),
                     gib(freed));
    if (plan->bytes[MEMORY_EMA] > 0 && n < (int)size)
        n += snprintf(ret + n, size - (size_t)n, "; no train.ema frees %.2f",
                      gib(plan->bytes[MEMORY_EMA]));
    if (n < (int)size)
        (void)snprintf(ret + n, size - (size_t)n, "; %.2f are workspace",
                       gib(plan->workspace_bytes));
}

int memory_check(const MemoryPlan *plan, uint64_t available, bool gpu, Error *err)
{
    char text[512] = "", advice[128];
    size_t used = 0;
    if (least_of(plan, gpu) <= available)
        return 0;
    for (int i = 0; i < MEMORY_DATA; i++)
        if (plan->bytes[i] > 0 && used < sizeof(text) && !(gpu && i == MEMORY_SNAPSHOT))
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %.2f",
                                     used ? ", " : "", name_of[i], gib(plan->bytes[i]));
    advise(plan, advice, sizeof(advice));
    return error_set(err, -E2BIG,
                     "train.grain, model.config: one of %d ranks needs at least %.2f GiB for %lld "
                     "parameters: %s; %s %.2f GiB%s%s",
                     plan->world_size, gib(least_of(plan, gpu)), (long long)plan->n_parameters,
                     text, gpu ? "this GPU has" : "this machine has", gib(available),
                     gpu ? "" : ", swap included", advice);
}

int memory_short(const MemoryPlan *plan, bool gpu, int r, Error *err)
{
    char advice[128];
    Error said = err ? *err : ERROR_INIT;
    advise(plan, advice, sizeof(advice));
    return error_set(err, r, "%.280s; one of %d ranks needs %.2f GiB in all%s", said.text,
                     plan->world_size, gib(least_of(plan, gpu)), advice);
}

uint64_t memory_peak(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && kib == 0 && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmHWM: %llu kB", &kib) != 1)
            kib = 0;
    if (file)
        (void)fclose(file); /* the file was only read */
    return kib * 1024;
}

void memory_print(FILE *to, const MemoryPlan *plans, size_t n)
{
    fprintf(to, "%-34s", "memory of a rank, MiB");
    for (size_t k = 0; k < n; k++)
        fprintf(to, "%6d rank%s", plans[k].world_size, plans[k].world_size == 1 ? " " : "s");
    for (int i = 0; i < MEMORY_USES; i++) {
        fprintf(to, "\n  %-32s", name_of[i]);
        for (size_t k = 0; k < n; k++)
            fprintf(to, "%12.1f", (double)plans[k].bytes[i] / 0x1p20);
    }
    fprintf(to, "\n%-34s", "sum");
    for (size_t k = 0; k < n; k++)
        fprintf(to, "%12.1f", (double)memory_total(&plans[k]) / 0x1p20);
    fprintf(to, "\n%-34s", "bytes a parameter, without grain");
    for (size_t k = 0; k < n; k++)
        fprintf(to, "%12.2f",
                (double)(memory_least(&plans[k]) - plans[k].bytes[MEMORY_ACTIVATIONS]) /
                    (double)plans[k].n_parameters);
    fprintf(to, "\n");
}
