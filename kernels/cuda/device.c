/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - opens a GPU; its memory, lanes and fences. */
#include "kernels/cuda/device.h"

#include "base/clock.h"
#include "kernels/cuda/module.h"
#include "kernels/cuda/operations.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POLL_USEC = 20 }; /* between two looks at a fence that the host waits for */

DEFINE_CLEANUP(Device, cuda_device_free)

static CudaDevice *gpu(const Device *device) { return (CudaDevice *)(uintptr_t)device; }

bool cuda_check(CudaDevice *d, cudaError_t code, const char *what)
{
    int r = pthread_mutex_lock(&d->lock);
    assert(r == 0);
    if (code != cudaSuccess && d->failure.code == 0)
        (void)error_set(&d->failure, -EIO, "GPU %s: %s: %s (%s)", d->properties.name, what,
                        cudaGetErrorName(code), cudaGetErrorString(code));
    const bool well = d->failure.code == 0;
    r = pthread_mutex_unlock(&d->lock);
    assert(r == 0);
    return well;
}

void cuda_enter(CudaDevice *d) { (void)cuda_check(d, cudaSetDevice(d->ordinal), "cudaSetDevice"); }

cudaStream_t cuda_compute_stream(const Device *device)
{
    cuda_enter(gpu(device));
    return gpu(device)->lanes[LANE_COMPUTE].stream;
}

/* What the runtime said last, and whatever a kernel did since; -EIO with the first failure. */
static int failure_of(CudaDevice *d, Error *err)
{
    (void)cuda_check(d, cudaGetLastError(), "a kernel");
    return d->failure.code < 0 ? error_set(err, -EIO, "%s", d->failure.text) : 0;
}

/* ---- open, free ---- */

/* The errno by which device_open()'s caller knows whose fault it is. */
static int errno_of_open(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return -EAGAIN; /* others hold it */
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNotSupported:
        return -ENOTSUP;
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
        return -EIO;
    default:
        return -ENODEV;
    }
}

static int open_streams(CudaDevice *d, Error *err)
{
    for (int lane = 0; lane < N_LANES; lane++) {
        CudaLane *l = &d->lanes[lane];
        cudaError_t code = cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking);
        for (int i = 0; code == cudaSuccess && i < EVENTS; i++)
            code = cudaEventCreateWithFlags(&l->events[i], cudaEventDisableTiming);
        if (code != cudaSuccess)
            return error_set(err, errno_of_open(code), "GPU %s: no stream: %s (%s)",
                             d->properties.name, cudaGetErrorName(code), cudaGetErrorString(code));
    }
    return 0;
}

int cuda_device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    int n = 0, ordinal = options->index;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code == cudaSuccess && options->pci_address)
        code = cudaDeviceGetByPCIBusId(&ordinal, options->pci_address);
    if (code != cudaSuccess || ordinal < 0 || ordinal >= n)
        return error_set(err, code == cudaSuccess ? -ENODEV : errno_of_open(code),
                         "no GPU %s among the %d of this machine: %s (%s)%s",
                         options->pci_address ? options->pci_address : "at all", n,
                         cudaGetErrorName(code), cudaGetErrorString(code),
                         code == cudaErrorUnknown || code == cudaErrorNoDevice
                             ? "; where the driver is there and /dev/nvidia-uvm is not: "
                               "nvidia-modprobe -u -c 0"
                             : "");
    if (options->type == DATA_F16)
        return error_set(err, -ENOTSUP, "no kernel computes in fp16");

    CudaDevice *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "no memory for a device");
    _cleanup_(cuda_device_freep) Device *device = &d->base;
    *device = (Device){.backend = &cuda_backend, .kind = DEVICE_CUDA, .type = options->type};
    d->ordinal = ordinal;
    (void)pthread_mutex_init(&d->lock, NULL); /* default attributes cannot fail */
    code = cudaSetDevice(ordinal);
    if (code == cudaSuccess)
        code = cudaGetDeviceProperties(&d->properties, ordinal);
    if (code != cudaSuccess)
        return error_set(err, errno_of_open(code), "GPU %d: %s (%s)", ordinal,
                         cudaGetErrorName(code), cudaGetErrorString(code));
    int r = open_streams(d, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(device);
    return 0;
}

Device *cuda_device_free(Device *device)
{
    CudaDevice *d = gpu(device);
    if (!d)
        return NULL;
    cuda_enter(d);
    for (int lane = 0; lane < N_LANES; lane++) {
        CudaLane *l = &d->lanes[lane];
        for (int i = 0; i < EVENTS; i++)
            if (l->events[i])
                (void)cudaEventDestroy(l->events[i]); /* a broken GPU keeps nothing anyhow */
        if (l->stream)
            (void)cudaStreamDestroy(l->stream); /* as above */
    }
    (void)pthread_mutex_destroy(&d->lock); /* nobody holds it */
    free(d);
    return NULL;
}

uint64_t cuda_device_memory_bytes(const Device *device)
{
    return gpu(device)->properties.totalGlobalMem;
}

int cuda_device_numerics(const Device *device, char **ret)
{
    const CudaDevice *d = gpu(device);
    int version = 0;
    (void)cudaRuntimeGetVersion(&version); /* it is linked in: it cannot fail */
    if (asprintf(ret,
                 "{\"backend\":\"cuda\",\"device\":\"%s\",\"sms\":%d,\"runtime\":%d,"
                 "\"numerics\":%d,\"type\":\"%s\"}",
                 d->properties.name, d->properties.multiProcessorCount, version,
                 CUDA_NUMERICS_VERSION, device->type == DATA_BF16 ? "bf16" : "f32") < 0)
        return -ENOMEM;
    return 0;
}

int cuda_device_plans(const Device *device, char **ret)
{
    (void)device; /* all its kernels are this project's: one algorithm for each operation */
    (void)ret;
    return -ENOENT;
}

int cuda_device_use_plans(Device *device, const char *text, Error *err)
{
    (void)text; /* as above */
    return error_set(err, -ENOENT, "GPU %s has no plans: no library computes for it",
                     gpu(device)->properties.name);
}

/* ---- memory ---- */

int cuda_device_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    CudaDevice *d = gpu(device);
    void *memory = NULL;
    cuda_enter(d);
    cudaError_t code = cudaMalloc(&memory, MAX(n_bytes, (size_t)DEVICE_ALIGNMENT));
    if (code == cudaErrorMemoryAllocation) {
        size_t unused = 0, total = 0;
        (void)cudaGetLastError();              /* it is told here, and breaks nothing */
        (void)cudaMemGetInfo(&unused, &total); /* 0 of 0: not known */
        return error_set(err, -ENOMEM, "GPU %s has no memory for %zu bytes: %zu of %zu are free",
                         d->properties.name, n_bytes, unused, total);
    }
    if (code == cudaSuccess)
        code = cudaMemsetAsync(memory, 0, MAX(n_bytes, (size_t)DEVICE_ALIGNMENT),
                               d->lanes[LANE_COMPUTE].stream);
    if (code == cudaSuccess) /* other lanes may use it at once */
        code = cudaStreamSynchronize(d->lanes[LANE_COMPUTE].stream);
    if (!cuda_check(d, code, "allocating memory"))
        return failure_of(d, err);
    *ret = memory;
    return 0;
}

void cuda_device_release(Device *device, void *memory)
{
    cuda_enter(gpu(device));
    (void)cuda_check(gpu(device), cudaFree(memory), "releasing memory");
}

int cuda_device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    CudaDevice *d = gpu(device);
    void *memory = NULL;
    cuda_enter(d);
    cudaError_t code = cudaMallocHost(&memory, MAX(n_bytes, (size_t)1));
    if (code != cudaSuccess) {
        (void)cudaGetLastError(); /* it is told here, and breaks nothing */
        return error_set(err, -ENOMEM, "no page-locked memory for %zu bytes: %s", n_bytes,
                         cudaGetErrorString(code));
    }
    memset(memory, 0, n_bytes);
    *ret = memory;
    return 0;
}

void cuda_device_host_release(Device *device, void *memory)
{
    cuda_enter(gpu(device));
    (void)cuda_check(gpu(device), cudaFreeHost(memory), "releasing page-locked memory");
}

const void *cuda_device_host_view(Device *device, const void *memory)
{
    (void)device;
    (void)memory;
    return NULL;
}

static void lane_copy(Device *device, Lane lane, void *to, const void *from, size_t n_bytes,
                      enum cudaMemcpyKind kind, const char *what)
{
    CudaDevice *d = gpu(device);
    if (n_bytes == 0)
        return;
    cuda_enter(d);
    (void)cuda_check(d, cudaMemcpyAsync(to, from, n_bytes, kind, d->lanes[lane].stream), what);
}

static void lane_finish(Device *device, Lane lane)
{
    CudaDevice *d = gpu(device);
    (void)cuda_check(d, cudaStreamSynchronize(d->lanes[lane].stream), "waiting for a copy");
}

void cuda_device_upload(Device *device, void *to, const void *from, size_t n_bytes)
{
    lane_copy(device, LANE_COMPUTE, to, from, n_bytes, cudaMemcpyHostToDevice, "upload");
    lane_finish(device, LANE_COMPUTE);
}

void cuda_device_download(Device *device, void *to, const void *from, size_t n_bytes)
{
    lane_copy(device, LANE_COMPUTE, to, from, n_bytes, cudaMemcpyDeviceToHost, "download");
    lane_finish(device, LANE_COMPUTE);
}

void cuda_device_copy(Device *device, void *to, const void *from, size_t n_bytes)
{
    lane_copy(device, LANE_COMPUTE, to, from, n_bytes, cudaMemcpyDeviceToDevice, "copy");
}

void cuda_device_clear(Device *device, void *memory, size_t n_bytes)
{
    CudaDevice *d = gpu(device);
    if (n_bytes == 0)
        return;
    cuda_enter(d);
    (void)cuda_check(d, cudaMemsetAsync(memory, 0, n_bytes, d->lanes[LANE_COMPUTE].stream),
                     "clearing memory");
}

/* ---- lanes ---- */

void cuda_device_send(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    lane_copy(device, lane, to, from, n_bytes, cudaMemcpyHostToDevice, "sending");
}

void cuda_device_fetch(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    lane_copy(device, lane, to, from, n_bytes, cudaMemcpyDeviceToHost, "fetching");
}

Fence cuda_device_fence(Device *device, Lane lane)
{
    CudaDevice *d = gpu(device);
    CudaLane *l = &d->lanes[lane];
    cuda_enter(d);
    int r = pthread_mutex_lock(&d->lock);
    assert(r == 0);
    const Fence fence = {.lane = lane, .serial = ++l->serial};
    cudaError_t code = cudaEventRecord(l->events[fence.serial % EVENTS], l->stream);
    r = pthread_mutex_unlock(&d->lock);
    assert(r == 0);
    (void)cuda_check(d, code, "making a fence");
    return fence;
}

static cudaEvent_t event_of(CudaDevice *d, Fence fence)
{
    return d->lanes[fence.lane].events[fence.serial % EVENTS];
}

void cuda_device_wait(Device *device, Lane lane, Fence fence)
{
    CudaDevice *d = gpu(device);
    if (fence.serial == 0 || fence.lane == lane)
        return;
    cuda_enter(d);
    (void)cuda_check(d, cudaStreamWaitEvent(d->lanes[lane].stream, event_of(d, fence), 0),
                     "a lane that waits");
}

/* 1: reached; 0: not yet; -EIO. */
static int look(CudaDevice *d, Fence fence, Error *err)
{
    if (fence.serial == 0)
        return 1;
    cudaError_t code = cudaEventQuery(event_of(d, fence));
    if (code == cudaErrorNotReady)
        return 0;
    if (!cuda_check(d, code, "a kernel or a copy"))
        return failure_of(d, err);
    return 1;
}

bool cuda_device_reached(Device *device, Fence fence)
{
    Error err = ERROR_INIT;
    cuda_enter(gpu(device));
    return look(gpu(device), fence, &err) != 0; /* broken: device_await() says so at once */
}

int cuda_device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err)
{
    CudaDevice *d = gpu(device);
    const uint64_t began = clock_monotonic_usec();
    cuda_enter(d);
    for (;;) {
        int r = look(d, fence, err);
        if (r != 0)
            return MIN(r, 0);
        if (clock_monotonic_usec() - began >= timeout_usec)
            return error_set(err, -ETIMEDOUT, "GPU %s has not done its work after %.3f s",
                             d->properties.name, (double)timeout_usec * 1e-6);
        const struct timespec pause = {.tv_nsec = POLL_USEC * 1000};
        (void)nanosleep(&pause, NULL); /* a signal only makes it shorter */
    }
}

int cuda_device_synchronise(Device *device, Error *err)
{
    CudaDevice *d = gpu(device);
    cuda_enter(d);
    (void)cuda_check(d, cudaDeviceSynchronize(), "a kernel or a copy");
    return failure_of(d, err);
}
