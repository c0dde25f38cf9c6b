/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the shadow device's copies and fences. */
#include "kernels/test/shadow/device.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number/hash.h"
#include "base/number/philox.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNFETCHED = 0xa5, DELAY_USEC = 300, EACH = 64, DELAY_MAX = 1000000 };

static const char *const lane_name[] = {"compute", "in", "out", "comm"};
static_assert(ELEMENTSOF(lane_name) == N_LANES, "each lane has a name");
static const char *const hang_point[] = {"shadow.hang.compute", "shadow.hang.in", "shadow.hang.out",
                                         "shadow.hang.comm"};
static_assert(ELEMENTSOF(hang_point) == N_LANES, "each lane has a point");

/* ---- open, free ---- */

/* Returns the value of the option at `p`, and the length of its text in *n. */
static ShadowDrop parse_drop(const char *p, int *n)
{
    static const char *const names[] = {
        [SHADOW_DROP_WAITS] = "drop=waits",
        [SHADOW_DROP_AWAITS] = "drop=awaits",
        [SHADOW_DROP_STAGING] = "drop=staging",
    };
    for (size_t i = SHADOW_DROP_WAITS; i < ELEMENTSOF(names); i++)
        if (strncmp(p, names[i], strlen(names[i])) == 0) {
            *n = (int)strlen(names[i]);
            return (ShadowDrop)i;
        }
    return SHADOW_DROP_NOTHING;
}

/* Returns the lane whose name is the n bytes at p, or N_LANES if there is no such lane. */
static int parse_lane(const char *p, size_t n)
{
    int i = 0;
    while (i < N_LANES && (n != strlen(lane_name[i]) || strncmp(p, lane_name[i], n) != 0))
        i++;
    return i;
}

/* Parses the lanes' names behind "late=", or "none". Returns the length of the text, or 0 if it is wrong. */
static int parse_lanes(const char *p, uint32_t *ret)
{
    const size_t length = strcspn(p, ",");
    *ret = 0;
    if (length == strlen("none") && strncmp(p, "none", length) == 0)
        return (int)length;
    for (const char *at = p;; at++) {
        const size_t n = strcspn(at, "/,");
        const int lane = parse_lane(at, n);
        if (lane == N_LANES)
            return 0;
        *ret |= 1U << lane;
        at += n;
        if (*at != '/')
            return (int)length;
    }
}

/* Parses a schedule at `p`. Returns the length of its text, or 0 if it is wrong. */
static int parse_schedule(const char *p, ShadowOptions *o)
{
    static const char drawn[] = "drawn", late[] = "late", some[] = "late=";
    int n = 0;
    if (strncmp(p, some, strlen(some)) == 0) {
        n = parse_lanes(p + strlen(some), &o->late);
        n += n > 0 ? (int)strlen(some) : 0;
    } else if (strncmp(p, late, strlen(late)) == 0) {
        o->late = (1U << N_LANES) - 1;
        n = (int)strlen(late);
    }
    if (n > 0)
        o->schedule = SHADOW_LATE;
    if (strncmp(p, drawn, strlen(drawn)) == 0) {
        o->schedule = SHADOW_DRAWN;
        n = (int)strlen(drawn);
    }
    return n;
}

int shadow_options_parse(const char *text, ShadowOptions *ret, Error *err)
{
    ShadowOptions o = {.delay_usec = DELAY_USEC, .each = EACH};
    for (const char *p = text ? text : ""; *p;) {
        uint64_t value;
        int n = 0;
        if (sscanf(p, "seed=%" SCNu64 "%n", &value, &n) == 1 && n > 0)
            o.seed = value;
        else if (sscanf(p, "delay=%" SCNu64 "%n", &value, &n) == 1 && value <= DELAY_MAX)
            o.delay_usec = value;
        else if (sscanf(p, "each=%" SCNu64 "%n", &value, &n) == 1 && value <= UINT32_MAX)
            o.each = (uint32_t)value;
        else if (sscanf(p, "plans=%63[a-z/]%n", o.plans, &n) == 1)
            ;
        else if (strncmp(p, "host", 4) == 0) {
            o.takes_host = true;
            n = 4;
        } else if ((n = parse_schedule(p, &o)) > 0)
            ;
        else if ((o.drop = parse_drop(p, &n)) == SHADOW_DROP_NOTHING)
            return error_set(err, -EINVAL, "a shadow device has no option %.100s", p);
        p += n;
        if (*p == ',')
            p++;
        else if (*p)
            return error_set(err, -EINVAL, "a shadow device has no option %.100s", p);
    }
    *ret = o;
    return 0;
}

/* Returns the plan set for the algorithm whose name is the n bytes at `algorithm`. */
static char *plans_text(const char *algorithm, size_t n)
{
    return memory_format("{\"conv\":\"%.*s\"}", (int)n, algorithm);
}

int shadow_open(const DeviceOptions *options, const ShadowOptions *shadow, Device **ret, Error *err)
{
    const DeviceOptions cpu = {.kind = DEVICE_CPU,
                               .threads = options->threads,
                               .type = options->type};
    Device *inner;
    int r = cpu_backend.open(&cpu, &inner, err);
    if (r < 0)
        return r;
    ShadowDevice *device = memory_new(ShadowDevice);
    device->base = (Device){.backend = &shadow_backend, .kind = DEVICE_CUDA, .type = options->type};
    device->inner = inner;
    device->pid = getpid();
    device->lanes.options = *shadow;
    if (*shadow->plans)
        device->plans = plans_text(shadow->plans, strcspn(shadow->plans, "/"));
    (void)pthread_mutex_init(&device->lock, NULL); /* default attributes cannot fail */
    for (int i = 0; i < N_LANES; i++) {
        device->lane[i].lanes = &device->lanes;
        device->lane[i].number = i;
    }
    log_debug("a shadow device computes SHADOW_SEED=%" PRIu64, shadow->seed);
    *ret = &device->base;
    return 0;
}

/* After a fork the child has the device's memory, but none of its threads. Resets the lanes in the child. */
static void follow_fork(ShadowDevice *device)
{
    if (device->pid == getpid())
        return;
    device->pid = getpid();
    for (int i = 0; i < N_LANES; i++)
        shadow_lane_forked(&device->lane[i]);
}

Device *shadow_device_free(Device *base)
{
    ShadowDevice *device = shadow_of(base);
    follow_fork(device);
    atomic_store_explicit(&device->lanes.ending, true, memory_order_relaxed);
    for (int i = 0; i < N_LANES; i++)
        shadow_lane_end(&device->lane[i]);
    shadow_memory_end(device);
    device->inner = cpu_backend.device_free(device->inner);
    (void)pthread_mutex_destroy(&device->lock); /* no thread holds the lock */
    free(device->plans);
    free(device);
    return NULL;
}

/* Returns the numerics of the CPU's device, with the hash of the plans. */
int shadow_device_numerics(const Device *device, char **ret)
{
    const ShadowDevice *d = (const ShadowDevice *)device;
    _cleanup_free_ char *cpu = NULL;
    char hash[HASH_TEXT_BYTES];
    int r = cpu_backend.device_numerics(d->inner, &cpu);
    if (r < 0)
        return r;
    if (!d->plans) {
        *ret = TAKE_PTR(cpu);
        return 0;
    }
    cpu[strlen(cpu) - 1] = '\0'; /* removes the final brace */
    int n = asprintf(ret, "%s,\"plans\":\"%s\"}", cpu,
                     hash_format(hash_bytes(d->plans, strlen(d->plans)), hash));
    return n < 0 ? -ENOMEM : 0;
}

int shadow_device_plans(const Device *device, char **ret)
{
    const ShadowDevice *d = (const ShadowDevice *)device;
    if (!d->plans)
        return -ENOENT;
    char *text = strdup(d->plans);
    if (!text)
        return -ENOMEM;
    *ret = text;
    return 0;
}

int shadow_device_use_plans(Device *device, const char *text, Error *err)
{
    ShadowDevice *d = shadow_of(device);
    if (d->has_objects)
        shadow_fail("device_use_plans() after an object was made");
    if (!d->plans)
        return error_set(err, -ENOENT, "a shadow device without the option \"plans\" has no plans");
    for (const char *p = d->lanes.options.plans; *p; p += *p == '/') {
        const size_t n = strcspn(p, "/");
        _cleanup_free_ char *own = plans_text(p, n);
        if (strcmp(own, text) == 0) {
            free(d->plans);
            d->plans = TAKE_PTR(own);
            return 0;
        }
        p += n;
    }
    return error_set(err, -EINVAL, "conv: this device cannot replay the plan of %.100s", text);
}

void shadow_break(Device *device, int error)
{
    atomic_store_explicit(&shadow_of(device)->lanes.broken, error, memory_order_relaxed);
}

static void hang(const void *arguments)
{
    const ShadowDevice *device = *(ShadowDevice *const *)arguments;
    while (!atomic_load_explicit(&device->lanes.ending, memory_order_relaxed))
        (void)usleep(1000); /* no signal ends the sleep: signals are blocked */
}

void shadow_hang(Device *device, Lane lane)
{
    ShadowCall *call = shadow_call_new(device, "shadow_hang", hang);
    atomic_store_explicit(&shadow_of(device)->lanes.hung, true, memory_order_relaxed);
    memcpy(call->arguments, &device, sizeof(device));
    shadow_call_put(device, lane, call);
}

/* ---- calls ---- */

ShadowCall *shadow_call_new(Device *device, const char *name, void (*run)(const void *arguments))
{
    follow_fork(shadow_of(device));
    ShadowCall *call = memory_new(ShadowCall);
    call->name = name;
    call->run = run;
    return call;
}

/* Checks the fault points of a call that is queued on the lane. Returns whether the lane must hang. */
static bool hangs(const ShadowCall *call, Lane lane)
{
    char point[64];
    if (call->is_copy)
        return fault(hang_point[lane]) < 0;
    if (!call->is_operation)
        return false;
    (void)snprintf(point, sizeof(point), "shadow.hang.%s", call->name);
    return fault("shadow.hang") < 0 || fault(point) < 0;
}

/* Lets a lane run a random number of its queued calls. */
static void go_on(ShadowLane *lane, uint32_t random)
{
    const uint64_t put = atomic_load_explicit(&lane->put, memory_order_relaxed);
    const uint64_t done = atomic_load_explicit(&lane->done, memory_order_relaxed);
    if (random % 4 == 0 && put > done) /* a wait without a deadline cannot fail */
        (void)shadow_lane_await(lane, done + 1 + random / 4 % (put - done), USEC_INFINITY);
}

/* Runs the calls that the schedule requires after a call was queued on the lane. A device that hangs follows no
 * schedule. */
static void follow_schedule(ShadowDevice *device, ShadowLane *lane)
{
    const ShadowOptions *o = &device->lanes.options;
    if (o->schedule == SHADOW_TIMED || device->lanes.hung)
        return;
    if (o->schedule == SHADOW_LATE) {
        if (!(o->late & 1U << lane->number)) /* a wait without a deadline cannot fail */
            (void)shadow_lane_await(lane, lane->put, USEC_INFINITY);
        return;
    }
    const Philox random = philox4x32(o->seed, (uint64_t)lane->number, lane->put);
    static_assert(ELEMENTSOF(random.word) >= N_LANES, "each lane has a word");
    for (int i = 0; i < N_LANES; i++)
        go_on(&device->lane[i], random.word[i]);
}

void shadow_call_put(Device *base, Lane lane, ShadowCall *call)
{
    ShadowDevice *device = shadow_of(base);
    ShadowLane *to = &device->lane[lane];
    if (hangs(call, lane))
        shadow_hang(base, lane);
    shadow_lane_put(to, call);
    if (device->lanes.options.takes_host)
        (void)shadow_lane_await(to, to->put, USEC_INFINITY); /* cannot fail: has no deadline */
    else
        follow_schedule(device, to);
}

/* ---- copies ---- */

typedef struct CopyCall {
    void *to;
    const void *from;
    size_t n_bytes;
    uint64_t hash; /* the hash of a send's source when the send was queued */
    Lane lane;
} CopyCall;

static void send_run(const void *arguments)
{
    const CopyCall *c = arguments;
    memcpy(c->to, c->from, c->n_bytes);
    if (hash64_bytes(c->from, c->n_bytes, 0) != c->hash)
        shadow_fail("lane %s: %p, %zu bytes, was written between device_send() and its copy",
                    lane_name[c->lane], c->from, c->n_bytes);
}

static void fetch_begin(const void *arguments)
{
    const CopyCall *c = arguments;
    memset(c->to, UNFETCHED, c->n_bytes);
}

static void fetch_run(const void *arguments)
{
    const CopyCall *c = arguments;
    memcpy(c->to, c->from, c->n_bytes);
}

void shadow_device_send(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    ShadowCall *call = shadow_call_new(device, "device_send", send_run);
    *(CopyCall *)call->arguments = (CopyCall){.to = shadow_call_memory(device, call, to, n_bytes),
                                              .from = from,
                                              .n_bytes = n_bytes,
                                              .hash = hash64_bytes(from, n_bytes, 0),
                                              .lane = lane};
    call->is_copy = true;
    shadow_call_host(device, call, from);
    shadow_call_put(device, lane, call);
}

void shadow_device_fetch(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    ShadowCall *call = shadow_call_new(device, "device_fetch", fetch_run);
    *(CopyCall *)call->arguments =
        (CopyCall){.to = to,
                   .from = shadow_call_memory(device, call, from, n_bytes),
                   .n_bytes = n_bytes,
                   .lane = lane};
    call->is_copy = true;
    if (!shadow_call_host(device, call, to)) /* no earlier call uses `to` */
        memset(to, UNFETCHED, n_bytes);
    call->begin = fetch_begin;
    shadow_call_put(device, lane, call);
}

static void await_compute(Device *device)
{
    ShadowLane *lane = &shadow_of(device)->lane[LANE_COMPUTE];
    (void)shadow_lane_await(lane, lane->put, USEC_INFINITY); /* cannot fail: has no deadline */
}

void shadow_device_upload(Device *device, void *to, const void *from, size_t n_bytes)
{
    shadow_device_send(device, LANE_COMPUTE, to, from, n_bytes);
    await_compute(device);
}

void shadow_device_download(Device *device, void *to, const void *from, size_t n_bytes)
{
    shadow_device_fetch(device, LANE_COMPUTE, to, from, n_bytes);
    await_compute(device);
}

/* ---- fences ---- */

typedef struct WaitCall {
    ShadowLane *on;
    uint64_t serial;
} WaitCall;

static void wait_run(const void *arguments)
{
    const WaitCall *c = arguments;
    (void)shadow_lane_await(c->on, c->serial,
                            USEC_INFINITY); /* a wait without a deadline cannot fail */
}

Fence shadow_device_fence(Device *device, Lane lane)
{
    return (Fence){.lane = lane, .serial = shadow_of(device)->lane[lane].put};
}

void shadow_device_wait(Device *device, Lane lane, Fence fence)
{
    if (fence.serial == 0 || shadow_of(device)->lanes.options.drop == SHADOW_DROP_WAITS)
        return;
    ShadowCall *call = shadow_call_new(device, "device_wait", wait_run);
    *(WaitCall *)call->arguments =
        (WaitCall){.on = &shadow_of(device)->lane[fence.lane], .serial = fence.serial};
    call->runs_broken = true;
    shadow_call_put(device, lane, call);
}

bool shadow_device_reached(Device *device, Fence fence)
{
    return shadow_lane_reached(&shadow_of(device)->lane[fence.lane], fence.serial);
}

int shadow_device_await(Device *base, Fence fence, uint64_t timeout_usec, Error *err)
{
    ShadowDevice *device = shadow_of(base);
    const ShadowDrop drop = device->lanes.options.drop;
    follow_fork(device);
    if (drop == SHADOW_DROP_AWAITS || (drop == SHADOW_DROP_STAGING && fence.lane == LANE_IN))
        return 0;
    int r = shadow_lane_await(&device->lane[fence.lane], fence.serial, timeout_usec);
    const int broken = atomic_load_explicit(&device->lanes.broken, memory_order_relaxed);
    if (broken < 0)
        return error_errno(err, broken, "the shadow device is broken");
    if (r < 0)
        return error_set(err, r, "lane %s of the shadow device is not done after %.3f s",
                         lane_name[fence.lane], (double)timeout_usec * 1e-6);
    return 0;
}

int shadow_device_synchronise(Device *device, Error *err)
{
    int r = 0;
    for (int lane = 0; lane < N_LANES && r == 0; lane++)
        r = shadow_device_await(device, shadow_device_fence(device, (Lane)lane), USEC_INFINITY,
                                err);
    return r;
}

/* ---- launches: a CPU has no launches ---- */

int shadow_device_time_launches(Device *device, size_t n_max, Error *err)
{
    (void)device;
    return n_max == 0 ? 0 : error_set(err, -ENOTSUP, "the shadow device has no launches to time");
}

size_t shadow_device_timed_launches(const Device *device)
{
    (void)device;
    return 0;
}

int shadow_device_read_launches(Device *device, const DeviceLaunch **ret, Error *err)
{
    (void)device, (void)ret;
    return error_set(err, -ENOTSUP, "the shadow device has no launches to time");
}

int shadow_device_time_graph(Device *device, void (*put)(void *userdata), void *userdata, int times,
                             double *ret_usec, size_t *ret_nodes, Error *err)
{
    (void)device, (void)put, (void)userdata, (void)times, (void)ret_usec, (void)ret_nodes;
    return error_set(err, -ENOTSUP, "only a GPU has graphs");
}
