/* SPDX-License-Identifier: Apache-2.0 */
/* notes.c - see notes.h. Lines that begin with "note:" are about possible mistakes of the user; the other lines are
 * computed facts. */
#include "ctl/job/start/notes.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "cluster/cost.h"
#include "cluster/pace.h"
#include "report/times.h"
#include "store/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_TOLD = 4 };

/* ---- possible mistakes ---- */

static void note_warmup(const Job *job)
{
    const int64_t warmup = job->train.optimizer.warmup_steps, steps = job->train.steps;
    if (warmup > steps)
        printf("note: the warm-up of %lld steps is longer than the job: the learning rate ends at "
               "%.3g, %.3g %% of train.optimizer.lr\n",
               (long long)warmup, job->train.optimizer.lr * (double)steps / (double)warmup,
               100 * (double)steps / (double)warmup);
}

/* Returns the number of samples in all streams, or 0 if a stream's number is unknown. */
static uint64_t count_samples(const Job *job, const DatasetLook *look)
{
    uint64_t n = 0;
    for (size_t i = 0; i < job->data.n_streams; i++) {
        if (look->sizes[i].n_samples == 0)
            return 0;
        n += look->sizes[i].n_samples;
    }
    return n;
}

static void note_batch(const Job *job, const DatasetLook *look)
{
    const uint64_t n = count_samples(job, look);
    if (n > 0 && (uint64_t)job->train.global_batch > n)
        printf("note: train.global_batch %lld is more than the %llu samples of the data: a step "
               "trains some of them more than once\n",
               (long long)job->train.global_batch, (unsigned long long)n);
}

/* Normalises a URI through its store, so that file:///a/b/ and /a/b are equal. ret is empty if the URI cannot be
 * opened. */
static void place_of(const char *uri, char *ret, size_t size)
{
    _cleanup_(store_freep) Store *store = NULL;
    Error ignored = ERROR_INIT; /* the checks of `job start` report an error of the URI */
    *ret = '\0';
    if (store_open(uri, &store, &ignored) == 0)
        (void)snprintf(ret, size, "%s", store_uri(store));
}

static bool lies_in(const char *place, const char *folder)
{
    const size_t n = strlen(folder);
    return n > 0 && strncmp(place, folder, n) == 0 && (place[n] == '/' || place[n] == '\0');
}

static void note_places(const Job *job)
{
    static char places[JOB_STREAMS_MAX][600]; /* a URI has at most 500 bytes */
    char checkpoints[600];
    place_of(job->checkpoint.uri, checkpoints, sizeof(checkpoints));
    for (size_t i = 0; i < job->data.n_streams; i++) {
        place_of(job->data.streams[i].uri, places[i], sizeof(places[i]));
        if (lies_in(checkpoints, places[i]))
            printf("note: checkpoint.uri lies inside the dataset of data.streams[%zu], %s\n", i,
                   places[i]);
        for (size_t k = 0; k < i; k++)
            if (*places[i] && strcmp(places[i], places[k]) == 0) {
                printf("note: data.streams[%zu] and [%zu] are the same, %s\n", k, i, places[i]);
                break;
            }
    }
}

/* ---- the data ---- */

enum { NUMBER_BYTES = 32 };

static const char *number_text(double number, char text[NUMBER_BYTES])
{
    (void)snprintf(text, NUMBER_BYTES, number >= 100 ? "%.0f" : "%.3g", number);
    return text;
}

static double share_of(const Job *job, size_t stream)
{
    double sum = 0;
    for (size_t i = 0; i < job->data.n_streams; i++)
        sum += job->data.streams[i].proportion;
    return job->data.streams[stream].proportion / sum;
}

static void print_data(const Job *job, const DatasetLook *look)
{
    const double trained = (double)job->train.steps * (double)job->train.global_batch;
    const size_t n = job->data.n_streams;
    char passes[NUMBER_BYTES];
    if (n == 1) {
        if (look->sizes[0].n_samples > 0)
            printf("%s passes over the %llu samples of the data\n",
                   number_text(trained / (double)look->sizes[0].n_samples, passes),
                   (unsigned long long)look->sizes[0].n_samples);
        return;
    }
    for (size_t i = 0; i < MIN(n, (size_t)STREAMS_TOLD); i++) {
        const double share = share_of(job, i);
        printf("%sstream %zu %.3g %%", i ? ", " : "shares: ", i, 100 * share);
        if (look->sizes[i].n_samples > 0)
            printf(" (%s passes)",
                   number_text(share * trained / (double)look->sizes[i].n_samples, passes));
    }
    if (n > STREAMS_TOLD)
        printf(", and %zu more", n - STREAMS_TOLD);
    printf("\n");
}

/* ---- dollars ---- */

typedef struct Prices {
    int64_t *slots; /* price of each known slot, sorted upwards; micro-dollars an hour */
    size_t n;
} Prices;

static int compare_prices(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Reads the list of prices from the settings in the leader's record. */
static void read_prices(const Model *model, char list[PRICES_MAX + 1])
{
    const char *settings = model->n_candidates ? model->candidates[0].record.settings : "";
    _cleanup_json_ json_t *json = json_loads(settings, JSON_REJECT_DUPLICATES, NULL);
    const char *prices = json_string_value(json_object_get(json, "prices"));
    (void)snprintf(list, PRICES_MAX + 1, "%s", prices ?: "");
}

static void prices_clear(Prices *prices) { free(prices->slots); }

static Prices prices_of(const Model *model, const Job *job)
{
    Prices ret = {0};
    char list[PRICES_MAX + 1];
    size_t room = 0;
    read_prices(model, list);
    for (size_t i = 0; *list && i < model->n_nodes; i++) {
        const NodeRecord *node = &model->nodes[i];
        const int n =
            job->train.device == JOB_DEVICE_CUDA ? MIN(node->n_slots, node->n_gpus) : node->n_slots;
        const int64_t price = cost_find_price(list, node->price_class);
        for (int k = 0; k < n && model_is_admitted(model, node); k++) {
            ret.slots = memory_grow(ret.slots, ret.n, &room, sizeof(*ret.slots));
            ret.slots[ret.n++] = price;
        }
    }
    if (ret.n > 0)
        qsort(ret.slots, ret.n, sizeof(*ret.slots), compare_prices);
    return ret;
}

/* Computes the hourly cost of a world of this size, on the cheapest slots and on the most expensive slots. Returns
 * false if the cost is unknown. */
static bool rate_of(const Prices *prices, int size, int64_t *ret_low, int64_t *ret_high)
{
    if (prices->n < (size_t)size)
        return false;
    *ret_low = *ret_high = 0;
    for (int i = 0; i < size; i++) {
        *ret_low = cost_add(*ret_low, prices->slots[i]);
        *ret_high = cost_add(*ret_high, prices->slots[prices->n - 1 - (size_t)i]);
    }
    return *ret_high > 0;
}

static void print_money(int64_t low, int64_t high)
{
    char a[COST_TEXT_BYTES], b[COST_TEXT_BYTES];
    printf("%s", cost_text(low, a));
    if (high > low)
        printf(" to %s", cost_text(high, b));
}

static void print_rates(const Job *job, const Prices *prices)
{
    const int sizes[] = {job->world.min, job->world.max};
    int n = 0;
    for (size_t i = 0; i < (job->world.min < job->world.max ? 2 : 1); i++) {
        int64_t low, high;
        if (!rate_of(prices, sizes[i], &low, &high))
            continue;
        printf(n++ ? ", " : "costs ");
        print_money(low, high);
        printf(n == 1 ? " an hour on %d rank%s" : " on %d rank%s", sizes[i],
               sizes[i] == 1 ? "" : "s");
    }
    printf(n ? "\n" : "");
}

/* ---- estimates from a similar job ---- */

typedef struct Like {
    const ModelJob *job; /* NULL: no similar job */
    int size;            /* number of ranks with which step_sec was measured */
    double step_sec;
} Like;

static int size_of_generation(const ModelJob *job, int64_t generation)
{
    if (job->has_world && job->world.generation == generation)
        return job->world.size;
    for (size_t i = 0; i < job->phase.n_worlds; i++)
        if (job->phase.worlds[i].generation == generation)
            return job->phase.worlds[i].size;
    return 0;
}

static bool is_alike(const Job *a, const Job *b)
{
    return strcmp(a->model.config_uri, b->model.config_uri) == 0 &&
           a->train.global_batch == b->train.global_batch && a->train.grain == b->train.grain &&
           a->train.device == b->train.device && a->train.precision == b->train.precision;
}

/* Finds the similar job with the newest progress, among jobs whose world has a size that this job may have. */
static Like find_like(const Model *model, const Job *job)
{
    Like ret = {0};
    for (size_t i = 0; i < model->n_jobs; i++) {
        const ModelJob *other = &model->jobs[i];
        _cleanup_(job_freep) Job *spec = NULL;
        Error ignored = ERROR_INIT; /* the leader reports errors of that job */
        const int size = size_of_generation(other, other->progress.generation);
        const double step_sec = progress_pace_sec(&other->progress);
        if (!other->has_spec || !other->has_progress || !(step_sec > 0) || size < job->world.min ||
            size > job->world.max ||
            (ret.job && other->progress.at_usec <= ret.job->progress.at_usec) ||
            job_parse(other->name, other->spec.spec, strlen(other->spec.spec), &spec, &ignored) < 0)
            continue;
        if (is_alike(spec, job))
            ret = (Like){.job = other, .size = size, .step_sec = step_sec};
    }
    return ret;
}

static void print_whole(const Job *job, const Model *model, const Prices *prices)
{
    const Like like = find_like(model, job);
    char whole[SPAN_TEXT_BYTES], step[SPAN_TEXT_BYTES];
    int64_t low, high;
    if (!like.job)
        return;
    const double sec = like.step_sec * (double)job->train.steps;
    printf("takes about %s in all on %d rank%s, %s a step as job %s", span_text(sec, whole),
           like.size, like.size == 1 ? "" : "s", span_text(like.step_sec, step), like.job->name);
    if (rate_of(prices, like.size, &low, &high) && sec < 1e9) {
        printf(", for ");
        print_money(cost_of(low, (uint64_t)(sec * 1e6)), cost_of(high, (uint64_t)(sec * 1e6)));
    }
    printf("\n");
}

/* ---- memory ---- */

/* A note is printed if ranks in all slots of a node need more than this percentage of the node's memory. */
enum { TIGHT_PERCENT = 80 };

static bool is_tight(const JobMemory *memory, const Model *model)
{
    for (size_t i = 0; model && i < model->n_nodes * memory->n; i++) {
        const NodeRecord *node = &model->nodes[i / memory->n];
        const MemoryPlan *plan = &memory->plans[i % memory->n];
        const uint64_t ranks = (uint64_t)MIN(node->n_slots, plan->world_size);
        if (node->memory_bytes &&
            memory_total(plan) * ranks > node->memory_bytes / 100 * TIGHT_PERCENT)
            return true;
    }
    return false;
}

static void print_memory(const JobMemory *memory, const Model *model)
{
    if (memory->n == 0)
        return;
    const MemoryPlan *least = &memory->plans[0], *most = &memory->plans[memory->n - 1];
    if (is_tight(memory, model)) {
        printf("note: memory is tight\n");
        job_memory_print(memory);
        return;
    }
    printf("memory of a rank: %.1f MiB of %d rank%s", (double)memory_total(least) / 0x1p20,
           least->world_size, least->world_size == 1 ? "" : "s");
    if (memory->n > 1)
        printf(", %.1f MiB of %d", (double)memory_total(most) / 0x1p20, most->world_size);
    printf("\n");
}

void job_notes_print(const Job *job, const DatasetLook *look, const JobMemory *memory,
                     const Model *model)
{
    note_warmup(job);
    note_batch(job, look);
    note_places(job);
    print_data(job, look);
    if (model) {
        _cleanup_(prices_clear) Prices prices = prices_of(model, job);
        print_rates(job, &prices);
        print_whole(job, model, &prices);
    }
    print_memory(memory, model);
}
