/* SPDX-License-Identifier: Apache-2.0 */
/* first-nccl.c - cases "nccl": one rank opens a communicator, and sums integers in place; and "nccl-two": how the
 * library responds to two ranks on one GPU, and whether a communicator that failed can be aborted. */
#include "kernels/test/first/first.h"

#ifndef FIRST_NCCL
int first_nccl(void)
{
    first_failed("nccl.h", -ENOENT, "there was none when this was built");
    return 0;
}

int first_nccl_two(void) { return first_nccl(); }
#else

#include "base/clock.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <nccl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 20, WAIT_USEC = 5 << 20, STEP_USEC = 20 };

static struct {
    __typeof__(&ncclGetVersion) get_version;
    __typeof__(&ncclGetUniqueId) get_unique_id;
    __typeof__(&ncclCommInitRankConfig) init;
    __typeof__(&ncclCommGetAsyncError) get_async_error;
    __typeof__(&ncclReduceScatter) reduce_scatter;
    __typeof__(&ncclAllGather) all_gather;
    __typeof__(&ncclCommAbort) abort;
    __typeof__(&ncclCommDestroy) destroy;
    __typeof__(&ncclCommFinalize) finalize;
    __typeof__(&ncclGetErrorString) text;
    __typeof__(&ncclGetLastError) last_error;
} nccl;

/* ---- the library ---- */

static void *open_in(const char *pattern)
{
    glob_t found = {0};
    void *handle = NULL;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; !handle && i < found.gl_pathc; i++)
            handle = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return handle;
}

static void *open_in_wheels(void)
{
    char folder[PATH_MAX];
    void *handle = NULL;
    FILE *told = popen("timeout -k 1 8 python3 -c 'import sys; "
                       "print(*[p for p in sys.path if p[:1] == \"/\"], sep=\"\\n\")' 2>/dev/null",
                       "r");
    for (int i = 0; told && !handle && i < 64 && fgets(folder, sizeof(folder), told); i++) {
        char pattern[PATH_MAX + 64];
        folder[strcspn(folder, "\n")] = '\0';
        (void)snprintf(pattern, sizeof(pattern), "%s/nvidia/nccl/lib/libnccl.so.2", folder);
        handle = open_in(pattern);
    }
    if (told)
        (void)pclose(told); /* ignored: without a Python there was no output */
    return handle;
}

/* Searches the places of libraries.h. */
static void *open_library(void)
{
    const char *named = getenv("SDTRAIN_CUDA_LIBRARIES");
    _cleanup_free_ char *folders = memory_text(named ? named : "");
    char *rest = folders;
    void *handle = NULL;
    for (char *folder; !handle && (folder = strsep(&rest, ":"));) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof(path), "%s/libnccl.so.2", folder);
        handle = *folder == '/' ? open_in(path) : NULL;
    }
    handle = handle ? handle : dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    handle = handle ? handle : open_in("/usr/local/cuda/lib64/libnccl.so.2");
    return handle ? handle : open_in_wheels();
}

static json_t *code_text(ncclResult_t code, ncclComm_t comm)
{
    const char *last = nccl.last_error(comm);
    return json_pack("{s:i,s:o,s:o}", "code", (int)code, "text", first_text(nccl.text(code)),
                     "last_error", code == ncclSuccess ? json_null() : first_text(last));
}

static bool fill(void)
{
    const struct {
        const char *name;
        void *to;
    } functions[] = {
        {"ncclGetVersion", &nccl.get_version},
        {"ncclGetUniqueId", &nccl.get_unique_id},
        {"ncclCommInitRankConfig", &nccl.init},
        {"ncclCommGetAsyncError", &nccl.get_async_error},
        {"ncclReduceScatter", &nccl.reduce_scatter},
        {"ncclAllGather", &nccl.all_gather},
        {"ncclCommAbort", &nccl.abort},
        {"ncclCommDestroy", &nccl.destroy},
        {"ncclCommFinalize", &nccl.finalize},
        {"ncclGetErrorString", &nccl.text},
        {"ncclGetLastError", &nccl.last_error},
    };
    first_log("NCCL_DEBUG", "WARN");
    const uint64_t began = clock_monotonic_usec();
    void *handle = open_library();
    int version = 0;
    if (!handle) {
        first_failed("dlopen libnccl.so.2", -ENOENT, "no place has it");
        return false;
    }
    for (size_t i = 0; i < ELEMENTSOF(functions); i++) {
        void *symbol = dlsym(handle, functions[i].name);
        if (!symbol) {
            first_failed(functions[i].name, -ENOENT, "libnccl.so.2 does not have it");
            return false;
        }
        memcpy(functions[i].to, &symbol, sizeof(symbol));
    }
    const ncclResult_t code = nccl.get_version(&version);
    first_line(json_pack("{s:s,s:o,s:i,s:i,s:f}", "api", "ncclGetVersion", "result",
                         code_text(code, NULL), "version", version, "compiled", NCCL_VERSION_CODE,
                         "seconds", (double)(clock_monotonic_usec() - began) * 1e-6));
    return code == ncclSuccess;
}

/* Queries the communicator until it is no longer busy, for at most WAIT_USEC. */
static ncclResult_t settle(ncclComm_t comm, ncclResult_t code)
{
    const uint64_t began = clock_monotonic_usec();
    while (code == ncclInProgress && clock_monotonic_usec() - began < WAIT_USEC) {
        (void)usleep(STEP_USEC);
        ncclResult_t asked = nccl.get_async_error(comm, &code);
        code = asked == ncclSuccess ? code : asked;
    }
    return code;
}

static ncclResult_t open_comm(ncclUniqueId id, int n_ranks, int rank, ncclComm_t *ret)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    *ret = NULL;
    const ncclResult_t code = nccl.init(ret, n_ranks, id, rank, &config);
    return *ret ? settle(*ret, code) : code;
}

/* ---- one rank ---- */

typedef struct OneRank {
    Device *device;
    ncclComm_t comm;
    int32_t *data;
} OneRank;

static bool sum_again(void *userdata)
{
    const OneRank *o = userdata;
    return settle(o->comm, nccl.reduce_scatter(o->data, o->data, N, ncclInt32, ncclSum, o->comm,
                                               NULL)) == ncclSuccess;
}

static bool gather_again(void *userdata)
{
    const OneRank *o = userdata;
    return settle(o->comm, nccl.all_gather(o->data, o->data, N, ncclInt32, o->comm, NULL)) ==
           ncclSuccess;
}

static void look_at_sum(OneRank *o, const char *api, FirstCall call)
{
    _cleanup_free_ int32_t *values = memory_zeroed(N, sizeof(*values));
    for (int i = 0; i < N; i++)
        values[i] = (int32_t)((uint32_t)i * 2654435761u);
    device_upload(o->device, o->data, values, (size_t)N * 4);
    const uint64_t before = first_hash(o->device, o->data, (size_t)N * 4);
    const bool runs = call(o);
    const uint64_t after = first_hash(o->device, o->data, (size_t)N * 4);
    const double usec = runs ? first_usec(o->device, call, o) : -1;
    first_line(json_pack("{s:s,s:b,s:b,s:o}", "api", api, "runs", (int)runs, "equal",
                         (int)(before == after), "usec", first_number(usec)));
}

int first_nccl(void)
{
    OneRank o = {NULL};
    ncclUniqueId id;
    if (!fill())
        return 0;
    uint64_t began = clock_monotonic_usec();
    ncclResult_t code = nccl.get_unique_id(&id);
    first_line(json_pack("{s:s,s:o,s:f}", "api", "ncclGetUniqueId", "result", code_text(code, NULL),
                         "seconds", (double)(clock_monotonic_usec() - began) * 1e-6));
    if (code != ncclSuccess)
        return 0;
    o.device = first_device(DATA_F32);
    began = clock_monotonic_usec();
    code = open_comm(id, 1, 0, &o.comm);
    first_line(json_pack("{s:s,s:o,s:f}", "api", "ncclCommInitRankConfig", "result",
                         code_text(code, o.comm), "seconds",
                         (double)(clock_monotonic_usec() - began) * 1e-6));
    if (code != ncclSuccess)
        return 0;
    o.data = first_memory(o.device, (size_t)N * 4);
    look_at_sum(&o, "ncclReduceScatter", sum_again);
    look_at_sum(&o, "ncclAllGather", gather_again);
    began = clock_monotonic_usec();
    code = settle(o.comm, nccl.finalize(o.comm));
    const ncclResult_t ended = nccl.destroy(o.comm);
    first_line(json_pack("{s:s,s:o,s:o,s:f}", "api", "ncclCommDestroy", "finalize",
                         code_text(code, NULL), "result", code_text(ended, NULL), "seconds",
                         (double)(clock_monotonic_usec() - began) * 1e-6));
    return 0;
}

/* ---- two ranks ---- */

typedef struct Rank {
    ncclUniqueId id;
    int rank;
} Rank;

static void *open_and_abort(void *userdata)
{
    const Rank *rank = userdata;
    ncclComm_t comm;
    uint64_t began = clock_monotonic_usec();
    ncclResult_t code = open_comm(rank->id, 2, rank->rank, &comm);
    first_line(json_pack("{s:s,s:i,s:o,s:f}", "api", "ncclCommInitRankConfig of two", "rank",
                         rank->rank, "result", code_text(code, comm), "seconds",
                         (double)(clock_monotonic_usec() - began) * 1e-6));
    if (!comm)
        return NULL;
    began = clock_monotonic_usec();
    code = nccl.abort(comm);
    first_line(json_pack("{s:s,s:i,s:o,s:f}", "api", "ncclCommAbort", "rank", rank->rank, "result",
                         code_text(code, NULL), "seconds",
                         (double)(clock_monotonic_usec() - began) * 1e-6));
    return NULL;
}

int first_nccl_two(void)
{
    Rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    pthread_t threads[2];
    if (!fill())
        return 0;
    const ncclResult_t code = nccl.get_unique_id(&ranks[0].id);
    if (code != ncclSuccess) {
        first_failed("ncclGetUniqueId", (int)code, nccl.text(code));
        return 0;
    }
    ranks[1].id = ranks[0].id;
    for (int i = 0; i < 2; i++) {
        int r = -pthread_create(&threads[i], NULL, open_and_abort, &ranks[i]);
        if (r < 0)
            return r;
    }
    for (int i = 0; i < 2; i++)
        (void)pthread_join(threads[i], NULL); /* a thread that hangs is killed with its process */
    return 0;
}
#endif
