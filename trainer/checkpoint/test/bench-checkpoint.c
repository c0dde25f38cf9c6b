/* SPDX-License-Identifier: Apache-2.0 */
/* bench-checkpoint.c - measures how fast a state is saved to a store and restored from it, compared with plain writes
 * and reads of the same bytes:
 *
 *     bench-checkpoint STORE_URI [MIB [ROUNDS [LOCAL_DIR]]]
 *
 * There is one rank without an EMA: weights, m and v have MIB (default: 1024) together. At the end the saved objects
 * are removed. Prints one JSON line per figure. "raw" moves the same bytes in the same run and does nothing else with
 * them: objects of a chunk's size are put, and are read in pieces of 8 MiB, 16 at a time.
 *
 * "stall" is the time that a save costs the training thread: the call that begins the save, and the time that the
 * update waits for the copies after a grain that keeps one core busy for COMPUTE_MSEC. */

#include "base/clock.h"
#include "base/log.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/local.h"
#include "trainer/comm/test/testing-world.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { COMPUTE_MSEC = 2000, ROUNDS_MAX = 32, PIECE_BYTES = 8 << 20, SLOTS = 16, GENERATION = 1 };

typedef struct Bench {
    Store *store;
    Comm *comm;
    Device *device;
    CheckpointLocal *local;
    ParameterList *parameters;
    TrainState *saved, *restored;
    double mib;
    int rounds;
} Bench;

static int compare_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *figure, const char *unit, double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_double);
    printf("{\"figure\": \"%s\", \"unit\": \"%s\", \"value\": %.6g, \"min\": %.6g, \"max\": %.6g, "
           "\"runs\": %d}\n",
           figure, unit, values[n / 2], values[0], values[n - 1], n);
}

static double cpu_sec(void)
{
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use); /* cannot fail */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static double since(uint64_t begun_usec)
{
    return 1e-6 * (double)(clock_boottime_usec() - begun_usec);
}

/* Makes tensors of 4 million elements, like large layers. */
static ParameterList *parameters_of(int64_t n_elements)
{
    const int64_t most = INT64_C(1) << 22;
    ParameterList *list = calloc(1, sizeof(*list));
    world_check(list && n_elements > 0, "no parameters");
    list->items = calloc((size_t)DIV_ROUND_UP(n_elements, most), sizeof(*list->items));
    world_check(list->items, "out of memory");
    while (list->n_elements < n_elements) {
        Parameter *p = &list->items[list->n_items];
        p->offset = list->n_elements;
        p->n_elements = MIN(most, n_elements - list->n_elements);
        p->n_dims = 1;
        p->dims[0] = p->n_elements;
        (void)snprintf(p->name, sizeof(p->name), "layer.%zu.weight", list->n_items++);
        list->n_elements += p->n_elements;
    }
    return list;
}

static void fill(float *at, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        at[i] = (float)(int32_t)seed;
    }
}

static void open_state(Bench *b, TrainState **ret)
{
    Error err = ERROR_INIT;
    int r = train_state_new(b->device, b->parameters, 0, 1, 0, false, ret, &err);
    world_check(r == 0, "%s", err.text);
}

static void bench_open(Bench *b, const char *uri, double mib, int rounds, const char *local_dir)
{
    Error err = ERROR_INIT;
    *b = (Bench){.mib = mib, .rounds = rounds};
    int r = store_open(uri, &b->store, &err);
    if (r == 0)
        r = comm_open_self(&b->comm, &err);
    if (r == 0)
        r = device_open(&(DeviceOptions){.kind = DEVICE_CPU, .threads = 1}, &b->device, &err);
    if (r == 0 && local_dir)
        r = checkpoint_local_new(local_dir, UINT64_MAX, store_uri(b->store), &b->local, &err);
    world_check(r == 0, "%s", err.text);
    b->parameters = parameters_of((int64_t)(mib * 1048576 / 12));
    open_state(b, &b->saved);
    open_state(b, &b->restored);
    const int64_t n = b->parameters->n_elements;
    fill(b->saved->weights, n, 1);
    fill(b->saved->m, n, 2);
    fill(b->saved->v, n, 3);
}

static void bench_close(Bench *b)
{
    b->saved = train_state_free(b->saved);
    b->restored = train_state_free(b->restored);
    if (b->local)
        checkpoint_local_clear(b->local);
    b->local = checkpoint_local_free(b->local);
    b->device = device_free(b->device);
    b->comm = comm_free(b->comm);
    b->store = store_free(b->store);
    free(b->parameters->items);
    free(b->parameters);
}

/* ---- save ---- */

/* Puts as many bytes as a save, in objects as large as a save's objects of moments. Returns MiB/s. */
static double put_raw(Bench *b)
{
    Error err = ERROR_INIT;
    const ChunkLayout *layout = &b->saved->layout;
    const size_t n_bytes = (size_t)layout->n_elements * 3 * sizeof(float);
    const size_t object_bytes = 2 * (size_t)layout->chunk_elements * sizeof(float);
    char key[64];
    size_t n = 0;
    int r = 0;
    const uint64_t begun_usec = clock_boottime_usec();
    for (size_t at = 0; r == 0 && at < n_bytes; at += object_bytes) {
        /* Puts the state's bytes again and again: their values do not matter. */
        const size_t first = at % (n_bytes / 3), left = n_bytes / 3 - first;
        struct iovec parts[] = {{(char *)b->saved->m + first, MIN(left, object_bytes)},
                                {(char *)b->saved->v, object_bytes - MIN(left, object_bytes)}};
        (void)snprintf(key, sizeof(key), "raw/%06zu", n++);
        r = store_put(b->store, key, parts, ELEMENTSOF(parts), STORE_DEFER, &err);
    }
    if (r == 0)
        r = store_flush(b->store, &err);
    world_check(r == 0, "%s", err.text);
    const double mib_per_sec = (double)n * (double)object_bytes / 1048576 / since(begun_usec);
    while (n > 0) {
        (void)snprintf(key, sizeof(key), "raw/%06zu", --n);
        r = store_delete(b->store, key, &err);
        world_check(r == 0, "%s", err.text);
    }
    return mib_per_sec;
}

/* Keeps one core busy, as the computation of a grain does. */
static void compute(void)
{
    static char block[1 << 16];
    const uint64_t begun_usec = clock_boottime_usec();
    for (uint64_t seed = 0; since(begun_usec) < COMPUTE_MSEC / 1e3; seed++)
        block[seed % sizeof(block)] = (char)hash64_bytes(block, sizeof(block), seed);
}

static Manifest *measure_saves(Bench *b)
{
    Error err = ERROR_INIT;
    CheckpointWriter *writer = NULL;
    Manifest *m = NULL;
    double mib_per_sec[ROUNDS_MAX], blocked_msec[ROUNDS_MAX], cpu[ROUNDS_MAX];
    double raw[ROUNDS_MAX], ratio[ROUNDS_MAX], stall_msec[ROUNDS_MAX];
    int r = checkpoint_writer_new(&(CheckpointOptions){.store = b->store,
                                                       .reports = b->comm,
                                                       .parameters = b->parameters,
                                                       .unet_config = "{}\n",
                                                       .facts = {.job = "bench-checkpoint",
                                                                 .generation = GENERATION,
                                                                 .numerics = "{}"},
                                                       .keep_last = 2,
                                                       .local = b->local},
                                  &writer, &err);
    if (r == 0)
        r = checkpoint_prepare(writer, b->saved, &err);
    world_check(r == 0, "%s", err.text);
    for (int i = 0; i < b->rounds; i++) {
        CheckpointResult result;
        /* this loop also waits for the removal of old checkpoints, as a save would */
        while (checkpoint_busy(writer))
            (void)usleep(1000);
        b->saved->scalars.step = i;
        const uint64_t begun_usec = clock_boottime_usec();
        const double cpu_before = cpu_sec();
        r = checkpoint_begin(writer, b->saved, i == 0 ? "" : "{}\n", MAX(i, 1), i, &err);
        world_check(r == 0, "%s", err.text);
        compute();
        train_state_before_write(b->saved);
        r = checkpoint_wait(writer, 3600 * USEC_PER_SEC, &result);
        world_check(r == 0 && result.phase == CHECKPOINT_WRITTEN, "%s", result.error.text);
        mib_per_sec[i] = b->mib / since(begun_usec);
        cpu[i] = (cpu_sec() - cpu_before) * 1024 / b->mib;
        raw[i] = put_raw(b);
        ratio[i] = mib_per_sec[i] / raw[i];
        blocked_msec[i] = (double)result.blocked_usec / 1e3;
        stall_msec[i] = blocked_msec[i] + (double)train_state_waited_usec(b->saved) / 1e3;
        checkpoint_settle(writer, true);
        if (i + 1 < b->rounds)
            continue;
        Store *store = NULL;
        r = manifest_read_uri(result.uri, &result.hash, &store, &m, &err);
        world_check(r == 0, "%s", err.text);
        (void)store_free(store);
    }
    (void)checkpoint_writer_free(writer);
    print("checkpoint_raw_put", "MiB/s", raw, b->rounds);
    print("checkpoint_save", "MiB/s", mib_per_sec, b->rounds);
    print("checkpoint_save_to_raw", "ratio", ratio, b->rounds);
    print("checkpoint_save_begin", "ms", blocked_msec, b->rounds);
    print("checkpoint_save_stall", "ms", stall_msec, b->rounds);
    print("checkpoint_save_cpu", "core s/GiB", cpu, b->rounds);
    return m;
}

/* ---- restore ---- */

/* Reads all objects of the checkpoint and discards them. Returns MiB/s. */
static double read_raw(Bench *b, const Manifest *m, char (*buffers)[PIECE_BYTES])
{
    Error err = ERROR_INIT;
    StoreRead reads[SLOTS] = {0};
    char keys[SLOTS][CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX], folder[CHECKPOINT_FOLDER_MAX];
    size_t begun = 0, ended = 0, object = 0;
    uint64_t at = 0;
    checkpoint_name_format(&m->name, folder);
    const uint64_t begun_usec = clock_boottime_usec();
    while (object < m->n_objects || ended < begun) {
        if (object < m->n_objects && begun - ended < SLOTS) {
            const ObjectRecord *o = &m->objects[object];
            StoreRead *read = &reads[begun % SLOTS];
            (void)snprintf(keys[begun % SLOTS], sizeof(keys[0]), "%s/%s", folder, o->key);
            *read = (StoreRead){.key = keys[begun % SLOTS],
                                .offset = at,
                                .n_bytes = (size_t)MIN(o->n_bytes - at, (uint64_t)PIECE_BYTES),
                                .buffer = buffers[begun % SLOTS]};
            int r = store_read_begin(b->store, read, &err);
            world_check(r == 0, "%s", err.text);
            begun++;
            at += read->n_bytes;
            object += at == o->n_bytes;
            at = at == o->n_bytes ? 0 : at;
            continue;
        }
        int r = store_read_wait(b->store, &reads[ended++ % SLOTS], &err);
        world_check(r == 0, "%s", err.text);
    }
    return b->mib / since(begun_usec);
}

static double restore(Bench *b, const Manifest *m, const CheckpointLocal *local)
{
    Error err = ERROR_INIT;
    const uint64_t begun_usec = clock_boottime_usec();
    int r = checkpoint_restore(b->store, local, m, b->restored, &err);
    world_check(r == 0, "%s", err.text);
    return b->mib / since(begun_usec);
}

/* Alternates raw reads and restores, so that both run under the same conditions. */
static void measure_restores(Bench *b, const Manifest *m)
{
    double raw[ROUNDS_MAX], restored[ROUNDS_MAX], cpu[ROUNDS_MAX], ratio[ROUNDS_MAX];
    double local[ROUNDS_MAX];
    char(*buffers)[PIECE_BYTES] = malloc(SLOTS * sizeof(*buffers));
    world_check(buffers, "out of memory");
    for (int i = 0; i < b->rounds; i++) {
        raw[i] = read_raw(b, m, buffers);
        const double cpu_before = cpu_sec();
        restored[i] = restore(b, m, NULL);
        cpu[i] = (cpu_sec() - cpu_before) * 1024 / b->mib;
        ratio[i] = restored[i] / raw[i];
        if (b->local)
            local[i] = restore(b, m, b->local);
    }
    free(buffers);
    print("checkpoint_raw", "MiB/s", raw, b->rounds);
    print("checkpoint_restore", "MiB/s", restored, b->rounds);
    print("checkpoint_restore_to_raw", "ratio", ratio, b->rounds);
    print("checkpoint_restore_cpu", "core s/GiB", cpu, b->rounds);
    if (b->local)
        print("checkpoint_restore_local", "MiB/s", local, b->rounds);
}

static void empty_store(Bench *b)
{
    Error err = ERROR_INIT;
    static const char *const prefixes[] = {"step-", "metrics/"};
    for (size_t k = 0; k < ELEMENTSOF(prefixes); k++) {
        StoreList list;
        int r = store_list(b->store, prefixes[k], 1 << 20, &list, &err);
        world_check(r == 0, "%s", err.text);
        for (size_t i = 0; i < list.n_objects; i++) {
            r = store_delete(b->store, list.objects[i].key, &err);
            world_check(r == 0, "%s", err.text);
        }
        store_list_clear(&list);
    }
}

int main(int argc, char **argv)
{
    const double mib = argc > 2 ? atof(argv[2]) : 1024;
    const int rounds = argc > 3 ? atoi(argv[3]) : 5;
    if (argc < 2 || argc > 5 || mib < 1 || rounds < 1 || rounds > ROUNDS_MAX) {
        (void)fprintf(stderr, "usage: bench-checkpoint STORE_URI [MIB [ROUNDS [LOCAL_DIR]]]\n");
        return 2;
    }
    Bench b;
    log_open("bench-checkpoint");
    log_set_level(LOG_LEVEL_WARNING);
    bench_open(&b, argv[1], mib, rounds, argc > 4 ? argv[4] : NULL);
    Manifest *m = measure_saves(&b);
    measure_restores(&b, m);
    (void)manifest_free(m);
    empty_store(&b);
    bench_close(&b);
    return 0;
}
