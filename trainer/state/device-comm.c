/* SPDX-License-Identifier: Apache-2.0 */
/* device-comm.c - see device-comm.h.
 *
 * Except on a CPU, a buffer is cut into parts. A row of pieces has one piece for each rank, and a part is the same
 * range of every piece of one row, so cutting does not change which elements a rank is dealt. While a part is on the
 * network, the next part is copied into the other piece of host memory. */

#include "trainer/state/device-comm.h"

#include "base/memory.h"
#include "trainer/state/device-patience.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

size_t device_comm_staging_bytes = 4 << 20;

/* The input and results of one run of a call, on any thread. */
typedef struct Run {
    Device *device;
    Comm *comm;
    uint8_t *const *staging;
    DeviceCommCall call;
    Fence before; /* fence of LANE_COMPUTE; once it is reached, the data are complete */
    Fence after;  /* fence of LANE_COMM; once it is reached, the result is complete */
    uint64_t usec;
    bool device_failed;
} Run;

struct DeviceCommThread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Comm *bulk;
    bool begun, done, quit; /* guarded by lock */
    Run run;                /* only the thread uses this field while begun && !done */
    int result;
    Error error;
};

/* ---- one collective ---- */

DeviceCommCall device_all_reduce(CommType type, void *data, size_t n)
{
    return (DeviceCommCall){.kind = DEVICE_ALL_REDUCE,
                            .type = type,
                            .element_bytes = comm_type_bytes(type),
                            .data = data,
                            .n = n,
                            .piece = MAX(n, (size_t)1)};
}

DeviceCommCall device_reduce_scatter_dealt(CommType type, void *data, size_t n, size_t piece,
                                           void *out)
{
    return (DeviceCommCall){.kind = DEVICE_REDUCE_SCATTER,
                            .type = type,
                            .element_bytes = comm_type_bytes(type),
                            .data = data,
                            .n = n,
                            .piece = piece,
                            .out = out};
}

DeviceCommCall device_all_gather_dealt(void *data, size_t n_bytes, size_t piece_bytes)
{
    return (DeviceCommCall){.kind = DEVICE_ALL_GATHER,
                            .element_bytes = 1,
                            .data = data,
                            .n = n_bytes,
                            .piece = piece_bytes};
}

/* Runs the collective on host memory. */
static int call_comm(Run *run, void *data, size_t n, size_t piece, void *out, Error *err)
{
    const uint64_t t = clock_boottime_usec();
    int r = 0;
    switch (run->call.kind) {
    case DEVICE_ALL_REDUCE:
        r = comm_all_reduce(run->comm, run->call.type, COMM_SUM, data, n, err);
        break;
    case DEVICE_REDUCE_SCATTER:
        r = comm_reduce_scatter_dealt(run->comm, run->call.type, data, n, piece, out, err);
        break;
    case DEVICE_ALL_GATHER:
        r = comm_all_gather_dealt(run->comm, data, n, piece, err);
        break;
    }
    run->usec += clock_boottime_usec() - t;
    return r;
}

/* A part of a call's elements: elements [begin, begin + width) of each piece of a row. All parts have as many elements,
 * but a part of the last row may have fewer. */
typedef struct Part {
    size_t ranks; /* number of pieces in a row; 1 for an all-reduce */
    size_t row, begin, width;
} Part;

static size_t part_elements(const Run *run, size_t ranks)
{
    return CLAMP(device_comm_staging_bytes / (ranks * run->call.element_bytes), (size_t)1,
                 run->call.piece);
}

static size_t dealt_ranks(const Run *run)
{
    return run->call.kind == DEVICE_ALL_REDUCE ? 1 : (size_t)comm_size(run->comm);
}

static size_t count_parts(const Run *run)
{
    const size_t ranks = dealt_ranks(run);
    return DIV_ROUND_UP(run->call.n, run->call.piece * ranks) *
           DIV_ROUND_UP(run->call.piece, part_elements(run, ranks));
}

static Part part_at(const Run *run, size_t i)
{
    const size_t ranks = dealt_ranks(run), elements = part_elements(run, ranks);
    const size_t each = DIV_ROUND_UP(run->call.piece, elements);
    const size_t begin = i % each * elements;
    return (Part){.ranks = ranks,
                  .row = i / each,
                  .begin = begin,
                  .width = MIN(elements, run->call.piece - begin)};
}

/* Returns where a rank's range of the part begins in the buffer. *ret_length is 0 beyond the buffer's end. */
static size_t part_range(const Run *run, const Part *part, size_t rank, size_t *ret_length)
{
    const size_t at = (part->row * part->ranks + rank) * run->call.piece + part->begin;
    *ret_length = at < run->call.n ? MIN(part->width, run->call.n - at) : 0;
    return at;
}

/* Copies this rank's range (own), the ranges of the other ranks (others), or all ranges. The other ranges need no fetch
 * before an all-gather, and no send after a reduce-scatter. */
static void copy_part(Run *run, size_t i, uint8_t *host, bool own, bool others, bool fetch)
{
    const Part part = part_at(run, i);
    const size_t bytes = run->call.element_bytes;
    const size_t mine = part.ranks == 1 ? 0 : (size_t)comm_rank(run->comm);
    for (size_t rank = 0; rank < part.ranks; rank++) {
        size_t length;
        const size_t at = part_range(run, &part, rank, &length);
        if (rank == mine ? !own : !others)
            continue;
        uint8_t *there = (uint8_t *)run->call.data + at * bytes,
                *here = host + rank * part.width * bytes;
        if (fetch)
            device_fetch(run->device, LANE_COMM, here, there, length * bytes);
        else
            device_send(run->device, LANE_COMM, there, here, length * bytes);
    }
}

static int exchange_part(Run *run, size_t i, uint8_t *host, Error *err)
{
    const Part part = part_at(run, i);
    const size_t bytes = run->call.element_bytes;
    const size_t mine = part.ranks == 1 ? 0 : (size_t)comm_rank(run->comm);
    size_t n = 0;
    for (size_t rank = 0; rank < part.ranks; rank++) {
        size_t length;
        (void)part_range(run, &part, rank, &length); /* only the length is needed */
        n += length;
    }
    int r = call_comm(run, host, n, part.width, NULL, err);
    if (r == 0 && run->call.out) {
        size_t length;
        (void)part_range(run, &part, mine, &length); /* only the length is needed */
        memcpy((uint8_t *)run->call.out + (part.row * run->call.piece + part.begin) * bytes,
               host + mine * part.width * bytes, length * bytes);
    }
    return r;
}

static int await(Run *run, Fence fence, Error *err)
{
    int r = device_await(run->device, fence, DEVICE_TIMEOUT_USEC, err);
    run->device_failed = run->device_failed || r < 0;
    return r;
}

/* Fetches part i into its piece of host memory. The lane runs in order, so the sends of part i - 2 from this memory end
 * before the fetch begins. Therefore the host must only wait for the fence after the fetch before it writes to the
 * memory. */
static void fetch_part(Run *run, size_t i)
{
    copy_part(run, i, run->staging[i % 2], true, run->call.kind != DEVICE_ALL_GATHER, true);
}

static void send_part(Run *run, size_t i)
{
    copy_part(run, i, run->staging[i % 2], run->call.kind != DEVICE_ALL_GATHER,
              run->call.kind != DEVICE_REDUCE_SCATTER, false);
}

static int run_staged(Run *run, Error *err)
{
    const size_t n_parts = count_parts(run);
    int r = 0;
    device_wait(run->device, LANE_COMM, run->before);
    if (n_parts > 0)
        fetch_part(run, 0);
    for (size_t i = 0; i < n_parts && r == 0; i++) {
        const Fence fetched = device_fence(run->device, LANE_COMM);
        if (i + 1 < n_parts)
            fetch_part(run, i + 1);
        r = await(run, fetched, err);
        if (r == 0)
            r = exchange_part(run, i, run->staging[i % 2], err);
        if (r == 0 && !run->call.out)
            send_part(run, i);
    }
    run->after = device_fence(run->device, LANE_COMM);
    return r;
}

static int run_call(Run *run, Error *err)
{
    const DeviceCommCall *call = &run->call;
    if (!run->staging[0])
        return call_comm(run, call->data, call->n, call->piece, call->out, err);
    if (comm_size(run->comm) == 1 && !call->out)
        return 0; /* the data are the result already */
    return run_staged(run, err);
}

/* ---- the thread ---- */

static void thread_lock(DeviceCommThread *t)
{
    int r = pthread_mutex_lock(&t->lock);
    assert(r == 0);
}

static void thread_unlock(DeviceCommThread *t)
{
    int r = pthread_mutex_unlock(&t->lock);
    assert(r == 0);
}

static void thread_change(DeviceCommThread *t)
{
    int r = pthread_cond_broadcast(&t->changed);
    assert(r == 0);
}

static void thread_sleep(DeviceCommThread *t)
{
    int r = pthread_cond_wait(&t->changed, &t->lock);
    assert(r == 0);
}

static void *thread_main(void *argument)
{
    DeviceCommThread *t = argument;
    thread_lock(t);
    for (;;) {
        while (!t->quit && (!t->begun || t->done))
            thread_sleep(t);
        if (t->quit)
            break;
        thread_unlock(t);
        t->error = (Error)ERROR_INIT;
        t->result = run_call(&t->run, &t->error);
        thread_lock(t);
        t->done = true;
        thread_change(t);
    }
    thread_unlock(t);
    return NULL;
}

/* Starts the thread with all signals blocked, since the main thread handles them. */
static int thread_new(Comm *bulk, DeviceCommThread **ret, Error *err)
{
    DeviceCommThread *t = memory_new(DeviceCommThread);
    sigset_t all, before;
    t->bulk = bulk;
    (void)pthread_mutex_init(&t->lock, NULL);   /* default attributes cannot fail */
    (void)pthread_cond_init(&t->changed, NULL); /* default attributes cannot fail */
    (void)sigfillset(&all);                     /* cannot fail */
    int r = -pthread_sigmask(SIG_SETMASK, &all, &before);
    if (r == 0) {
        r = -pthread_create(&t->thread, NULL, thread_main, t);
        /* cannot fail: the mask was valid before */
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (r < 0) {
        free(t);
        return error_errno(err, r, "cannot start the thread of the bulk comm");
    }
    *ret = t;
    return 0;
}

static DeviceCommThread *thread_free(DeviceCommThread *t)
{
    if (!t)
        return NULL;
    thread_lock(t);
    if (t->begun && !t->done)
        comm_abort(t->bulk);
    t->quit = true;
    thread_change(t);
    thread_unlock(t);
    int r = pthread_join(t->thread, NULL);
    assert(r == 0);
    (void)pthread_cond_destroy(&t->changed); /* no thread waits */
    (void)pthread_mutex_destroy(&t->lock);   /* no thread holds the lock */
    free(t);
    return NULL;
}

/* ---- begin, finish ---- */

int device_comm_open(Device *device, Comm *comm, Comm *bulk, DeviceComm *ret, Error *err)
{
    *ret = (DeviceComm){.device = device, .comm = comm};
    int r = 0;
    for (int i = 0; i < 2 && r == 0 && device_kind(device) != DEVICE_CPU; i++)
        r = device_host_allocate(device, device_comm_staging_bytes, (void **)&ret->staging[i], err);
    if (r == 0 && bulk)
        r = thread_new(bulk, &ret->thread, err);
    if (r < 0)
        device_comm_close(ret);
    return r;
}

void device_comm_close(DeviceComm *dc)
{
    dc->thread = thread_free(dc->thread);
    const bool idle = dc->device && device_is_idle(dc->device);
    for (int i = 0; i < 2; i++) {
        if (dc->staging[i] && idle)
            device_host_release(dc->device, dc->staging[i]);
        dc->staging[i] = NULL;
    }
}

static Run run_of(DeviceComm *dc, const DeviceCommCall *call, Comm *comm)
{
    return (Run){.device = dc->device,
                 .comm = comm,
                 .staging = dc->staging,
                 .call = *call,
                 .before = device_fence(dc->device, LANE_COMPUTE)};
}

void device_comm_begin(DeviceComm *dc, const DeviceCommCall *call)
{
    assert(!dc->begun && call->piece > 0);
    dc->begun = true;
    dc->call = *call;
    DeviceCommThread *t = dc->thread;
    if (!t)
        return;
    thread_lock(t);
    assert(!t->begun);
    t->run = run_of(dc, call, t->bulk);
    t->begun = true;
    t->done = false;
    thread_change(t);
    thread_unlock(t);
}

int device_comm_finish(DeviceComm *dc, Error *err)
{
    if (!dc->begun)
        return 0;
    dc->begun = false;
    DeviceCommThread *t = dc->thread;
    Error error = ERROR_INIT;
    Run run;
    int r;
    if (t) {
        thread_lock(t);
        while (!t->done)
            thread_sleep(t);
        t->begun = false;
        run = t->run;
        r = t->result;
        error = t->error;
        thread_unlock(t);
    } else {
        run = run_of(dc, &dc->call, dc->comm);
        r = run_call(&run, &error);
    }
    dc->usec += run.usec;
    dc->device_failed = dc->device_failed || run.device_failed;
    if (r < 0)
        return error_set(err, r, "%s", error.text);
    device_wait(dc->device, LANE_COMPUTE, run.after);
    return 0;
}

int device_comm_drop(DeviceComm *dc, Error *err)
{
    if (dc->thread)
        return device_comm_finish(dc, err);
    dc->begun = false;
    return 0;
}

int device_comm_run(DeviceComm *dc, const DeviceCommCall *call, Error *err)
{
    device_comm_begin(dc, call);
    return device_comm_finish(dc, err);
}
