/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - opens the CPU as a device; its memory and the record of its numerics.
 *
 * The bits that an operation computes depend only on its inputs and its shape, not on the number of threads, the
 * compiler or the vector width. So the numerics record contains one number, NUMERICS_VERSION, and test-bits checks the
 * bits of that version. */
#include "kernels/cpu/device.h"

#include "base/memory.h"
#include "kernels/cpu/lane.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

enum { MAX_THREADS = 1024 };

static int check_cpu(Error *err)
{
    (void)err; /* unused where the build needs no AVX2 */
#ifdef __AVX2__
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return error_set(err, -ENOTSUP, "this CPU lacks AVX2 or FMA, which the kernels need");
#endif
    return 0;
}

int cpu_device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    int r;

    if (options->type != DATA_F32)
        return error_set(err, -ENOTSUP, "the CPU computes in fp32 only: set precision to fp32");
    if (options->threads < 1 || options->threads > MAX_THREADS)
        return error_set(err, -EINVAL, "device threads %d is not in 1..%d", options->threads,
                         MAX_THREADS);
    r = check_cpu(err);
    if (r < 0)
        return r;

    CpuDevice *device = memory_new(CpuDevice);
    *device = (CpuDevice){.base = {.backend = &cpu_backend, .kind = DEVICE_CPU, .type = DATA_F32},
                          .threads = options->threads,
                          .out = cpu_lane_new()};
    *ret = &device->base;
    return 0;
}

Device *cpu_device_free(Device *device)
{
    CpuDevice *cpu = (CpuDevice *)device;
    if (!cpu)
        return NULL;
    (void)cpu_lane_free(cpu->out);
    free(cpu);
    return NULL;
}

uint64_t cpu_device_memory_bytes(const Device *device)
{
    (void)device; /* the device's memory is the host's memory */
    struct sysinfo info;
    if (sysinfo(&info) < 0)
        return UINT64_MAX; /* unknown, so there is no limit */
    return ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
}

int cpu_device_numerics(const Device *device, char **ret)
{
    (void)device; /* the number of threads changes no bit */
    char *text;
    if (asprintf(&text, "{\"backend\":\"cpu\",\"numerics\":%d,\"type\":\"f32\"}",
                 NUMERICS_VERSION) < 0)
        return -ENOMEM;
    *ret = text;
    return 0;
}

int cpu_device_plans(const Device *device, char **ret)
{
    (void)device; /* each operation has only one algorithm */
    (void)ret;
    return -ENOENT;
}

int cpu_device_use_plans(Device *device, const char *text, Error *err)
{
    (void)device; /* each operation has only one algorithm */
    (void)text;
    return error_set(err, -ENOENT, "a CPU has no plans");
}

int cpu_device_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    (void)device;
    if (n_bytes > PTRDIFF_MAX - DEVICE_ALIGNMENT) /* more than any allocator can give */
        return error_set(err, -ENOMEM, "no memory for %zu bytes", n_bytes);

    size_t rounded = MAX(ROUND_UP(n_bytes, (size_t)DEVICE_ALIGNMENT), (size_t)DEVICE_ALIGNMENT);
    void *memory = aligned_alloc(DEVICE_ALIGNMENT, rounded);
    if (!memory)
        return error_set(err, -ENOMEM, "no memory for %zu bytes", n_bytes);
    memset(memory, 0, rounded);
    *ret = memory;
    return 0;
}

void cpu_device_release(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

void cpu_device_upload(Device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    memcpy(to, from, n_bytes);
}

void cpu_device_download(Device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    memcpy(to, from, n_bytes);
}

void cpu_device_copy(Device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    memcpy(to, from, n_bytes);
}

void cpu_device_clear(Device *device, void *memory, size_t n_bytes)
{
    (void)device;
    memset(memory, 0, n_bytes);
}

int cpu_device_synchronise(Device *device, Error *err)
{
    CpuLane *out = ((CpuDevice *)device)->out;
    return cpu_lane_await(out, cpu_lane_serial(out), USEC_INFINITY, err);
}

/* For a large size calloc() returns pages of zeros, which the kernel maps at the first access; a lane makes this
 * access. */
int cpu_device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    (void)device;
    void *memory = calloc(MAX(n_bytes, (size_t)1), 1);
    if (!memory)
        return error_set(err, -ENOMEM, "no host memory for %zu bytes", n_bytes);
    *ret = memory;
    return 0;
}

void cpu_device_host_release(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

const void *cpu_device_host_view(Device *device, const void *memory)
{
    (void)device;
    return memory;
}

/* ---- lanes: each lane except LANE_OUT is the calling thread, so its operation is complete when the call returns
 * ---- */

static void lane_copy(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    if (lane == LANE_OUT)
        cpu_lane_copy(((CpuDevice *)device)->out, to, from, n_bytes);
    else if (n_bytes > 0)
        memcpy(to, from, n_bytes);
}

void cpu_device_send(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    lane_copy(device, lane, to, from, n_bytes);
}

void cpu_device_fetch(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    lane_copy(device, lane, to, from, n_bytes);
}

Fence cpu_device_fence(Device *device, Lane lane)
{
    if (lane != LANE_OUT)
        return (Fence){0};
    return (Fence){.lane = lane, .serial = cpu_lane_serial(((CpuDevice *)device)->out)};
}

void cpu_device_wait(Device *device, Lane lane, Fence fence)
{
    /* A fence that is not yet reached is LANE_OUT's. LANE_OUT copies in order and need not wait for it; another lane
     * has no queue, so the calling thread waits. */
    if (lane != LANE_OUT)
        (void)cpu_device_await(device, fence, USEC_INFINITY,
                               NULL); /* the wait cannot fail: copies of memory do not fail */
}

bool cpu_device_reached(Device *device, Fence fence)
{
    return cpu_lane_reached(((CpuDevice *)device)->out, fence.serial);
}

int cpu_device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err)
{
    return cpu_lane_await(((CpuDevice *)device)->out, fence.serial, timeout_usec, err);
}

/* ---- launches: a CPU has no launches ---- */

int cpu_device_time_launches(Device *device, size_t n_max, Error *err)
{
    (void)device;
    return n_max == 0 ? 0 : error_set(err, -ENOTSUP, "a CPU has no launches to time");
}

size_t cpu_device_timed_launches(const Device *device)
{
    (void)device;
    return 0;
}

int cpu_device_read_launches(Device *device, const DeviceLaunch **ret, Error *err)
{
    (void)device, (void)ret;
    return error_set(err, -ENOTSUP, "a CPU has no launches to time");
}

int cpu_device_time_graph(Device *device, void (*put)(void *userdata), void *userdata, int times,
                          double *ret_usec, size_t *ret_nodes, Error *err)
{
    (void)device, (void)put, (void)userdata, (void)times, (void)ret_usec, (void)ret_nodes;
    return error_set(err, -ENOTSUP, "only a GPU has graphs");
}
