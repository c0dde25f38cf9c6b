/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - opens a GPU; its memory, lanes and fences. */
#include "kernels/cuda/module/device.h"

#include "base/clock.h"
#include "kernels/cuda/kernels/operations.h"
#include "kernels/cuda/module/environment.h"
#include "kernels/cuda/module/errors.h"
#include "kernels/cuda/module/host-memory.h"
#include "kernels/cuda/module/module.h"
#include "kernels/cuda/module/numa.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* "1": the host waits for each kernel, so that the report of an error names the kernel that caused it. */
#define SYNC_VARIABLE "SDTRAIN_CUDA_SYNC"

enum { POLL_USEC = 20 }; /* the time between two queries of a fence that the host waits for */

DEFINE_CLEANUP(Device, cuda_device_free)

static CudaDevice *gpu(const Device *device) { return (CudaDevice *)(uintptr_t)device; }

/* Keeps the first failure. The caller holds the device's lock. */
static void fail(CudaDevice *d, int r, const char *text)
{
    if (d->failure.code == 0)
        (void)error_set(&d->failure, r, "%s", text);
}

bool cuda_check(CudaDevice *d, cudaError_t code, const char *what)
{
    int r = pthread_mutex_lock(&d->lock);
    assert(r == 0);
    if (code != cudaSuccess && d->failure.code == 0) {
        char text[sizeof(d->failure.text)], where[160];
        cuda_trace_describe(&d->trace, where, sizeof(where));
        (void)snprintf(text, sizeof(text), "GPU %s: %s: %s (%s); %s%s", d->properties.name, what,
                       cudaGetErrorName(code), cudaGetErrorString(code), where,
                       d->waits ? "" : "; " SYNC_VARIABLE "=1 names the one that fails");
        fail(d, cuda_errno_of_failure(code), text);
    }
    const bool well = d->failure.code == 0;
    r = pthread_mutex_unlock(&d->lock);
    assert(r == 0);
    return well;
}

void cuda_enter(CudaDevice *d) { (void)cuda_check(d, cudaSetDevice(d->ordinal), "cudaSetDevice"); }

cudaStream_t cuda_compute_stream(const Device *device)
{
    cuda_enter(gpu(device));
    /* Clears the error of a call that a library tried without success: it is not a failure of the kernel that is
     * launched next. A broken GPU reports its error again. */
    (void)cudaGetLastError();
    return gpu(device)->lanes[LANE_COMPUTE].stream;
}

CudaCompute *cuda_compute(const Device *device) { return gpu(device)->compute; }

void cuda_device_break(Device *device, const char *text)
{
    CudaDevice *d = gpu(device);
    int r = pthread_mutex_lock(&d->lock);
    assert(r == 0);
    fail(d, -EIO, text);
    r = pthread_mutex_unlock(&d->lock);
    assert(r == 0);
}

void cuda_launched(const Device *device, const CudaWork *work)
{
    CudaDevice *d = gpu(device);
    cuda_trace_put(&d->trace, work->name);
    cudaError_t code = cudaGetLastError(); /* an error means an impossible launch or a broken GPU */
    const size_t moment = cuda_times_put(&d->times, work);
    if (code == cudaSuccess && moment > 0)
        code = cudaEventRecord(d->moments[moment], d->lanes[LANE_COMPUTE].stream);
    if (code == cudaSuccess && d->waits)
        code = cudaStreamSynchronize(d->lanes[LANE_COMPUTE].stream);
    if (code != cudaSuccess)
        (void)cuda_check(d, code, work->name);
}

static void stop_timing(CudaDevice *d)
{
    for (size_t i = 0; d->moments && i <= d->times.n_max; i++)
        if (d->moments[i])
            (void)cudaEventDestroy(d->moments[i]); /* on a broken GPU nothing is left to free */
    free(d->moments);
    d->moments = NULL;
    (void)cuda_times_begin(&d->times, 0, NULL); /* a call with 0 cannot fail */
}

/* Returns the errno of the first failure, or 0. */
static int failure_of(CudaDevice *d, Error *err)
{
    int r = pthread_mutex_lock(&d->lock);
    assert(r == 0);
    const Error failure = d->failure;
    r = pthread_mutex_unlock(&d->lock);
    assert(r == 0);
    return failure.code < 0 ? error_set(err, failure.code, "%s", failure.text) : 0;
}

/* ---- open, free ---- */

static int open_streams(CudaDevice *d, Error *err)
{
    for (int lane = 0; lane < N_LANES; lane++) {
        CudaLane *l = &d->lanes[lane];
        cudaError_t code = cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking);
        for (int i = 0; code == cudaSuccess && i < EVENTS; i++)
            code = cudaEventCreateWithFlags(&l->events[i], cudaEventDisableTiming);
        if (code != cudaSuccess)
            return error_set(err, cuda_errno_of_open(code), "GPU %s: no stream: %s (%s)",
                             d->properties.name, cudaGetErrorName(code), cudaGetErrorString(code));
    }
    return 0;
}

/* Plan sets are in plans/ beside this module, or in the folder named by SDTRAIN_CUDA_PLANS. */
static int open_compute(CudaDevice *d, const DeviceOptions *asked, Error *err)
{
    char architecture[32], folder[PATH_MAX] = "";
    const char *named = getenv("SDTRAIN_CUDA_PLANS");
    Dl_info self;
    const char *slash =
        dladdr(&cuda_backend, &self) != 0 && self.dli_fname ? strrchr(self.dli_fname, '/') : NULL;
    if (slash)
        (void)snprintf(folder, sizeof(folder), "%.*s/plans", (int)(slash - self.dli_fname),
                       self.dli_fname);
    (void)snprintf(architecture, sizeof(architecture), "sm_%d%d", d->properties.major,
                   d->properties.minor);
    const CudaComputeOptions options = {.architecture = architecture,
                                        .device = d->properties.name,
                                        .sms = d->properties.multiProcessorCount,
                                        .folder = named && *named ? named
                                                  : *folder       ? folder
                                                                  : NULL,
                                        .asked = asked};
    return cuda_compute_new(&d->base, &options, &d->compute, err);
}

static bool waits_for_kernels(void)
{
    const char *value = getenv(SYNC_VARIABLE);
    if (!value || strcmp(value, "1") != 0)
        return false;
    log_warning("each kernel is waited for (" SYNC_VARIABLE "=1): this is slow");
    return true;
}

/* Reports why there is no GPU: no driver, missing device nodes, a driver of another version, or no GPU with the
 * requested address. */
static int no_gpu(cudaError_t code, int n, const char *pci_address, Error *err)
{
    char nodes[240];
    int driver = 0;
    (void)cudaDriverGetVersion(&driver); /* driver stays 0 if there is no driver */
    const int n_missing = cuda_nodes_missing("/dev", nodes, sizeof(nodes));
    if (driver == 0)
        return error_set(err, -ENODEV, "no NVIDIA driver: libcuda.so.1 does not load here%s",
                         nodes);
    if (code == cudaErrorInsufficientDriver)
        return error_set(err, cuda_errno_of_open(code),
                         "the NVIDIA driver is for CUDA %d.%d, this module needs one for %d.%d",
                         driver / 1000, driver / 10 % 100, CUDART_VERSION / 1000,
                         CUDART_VERSION / 10 % 100);
    return error_set(err, code == cudaSuccess ? -ENODEV : cuda_errno_of_open(code),
                     "no GPU %s among the %d of this machine: %s (%s)%s",
                     pci_address ? pci_address : "at all", n, cudaGetErrorName(code),
                     cudaGetErrorString(code), n_missing ? nodes : "");
}

int cuda_device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    int n = 0, ordinal = options->index;
    cuda_environment_clear();
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code == cudaSuccess && options->pci_address)
        code = cudaDeviceGetByPCIBusId(&ordinal, options->pci_address);
    if (code != cudaSuccess || ordinal < 0 || ordinal >= n)
        return no_gpu(code, n, options->pci_address, err);
    if (options->type == DATA_F16)
        return error_set(err, -ENOTSUP, "no kernel computes in fp16");

    CudaDevice *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "no memory for a device");
    _cleanup_(cuda_device_freep) Device *device = &d->base;
    *device = (Device){.backend = &cuda_backend, .kind = DEVICE_CUDA, .type = options->type};
    d->ordinal = ordinal;
    d->waits = waits_for_kernels();
    (void)pthread_mutex_init(&d->lock, NULL); /* default attributes cannot fail */
    char address[32];
    /* The thread is bound before the context is made, because the context allocates host memory. */
    if (cudaDeviceGetPCIBusId(address, sizeof(address), ordinal) == cudaSuccess)
        (void)cuda_numa_bind("/sys", address);
    code = cudaSetDevice(ordinal);
    if (code == cudaSuccess)
        code = cudaGetDeviceProperties(&d->properties, ordinal);
    if (code != cudaSuccess)
        return error_set(err, cuda_errno_of_open(code), "GPU %d: %s (%s)", ordinal,
                         cudaGetErrorName(code), cudaGetErrorString(code));
    for (char *c = d->properties.name; *c; c++) /* the name becomes part of JSON */
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            *c = '?';
    code = cuda_one_kernel();
    (void)cudaGetLastError(); /* cuda_gpu_check() reports the error */
    int r = cuda_gpu_check(d->properties.name, d->properties.major, d->properties.minor, code, err);
    if (r == 0)
        r = open_streams(d, err);
    if (r == 0)
        r = open_compute(d, options, err);
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
    stop_timing(d);
    (void)cuda_compute_free(d->compute);
    for (int lane = 0; lane < N_LANES; lane++) {
        CudaLane *l = &d->lanes[lane];
        for (int i = 0; i < EVENTS; i++)
            if (l->events[i])
                (void)cudaEventDestroy(l->events[i]); /* on a broken GPU nothing is left to free */
        if (l->stream)
            (void)cudaStreamDestroy(l->stream); /* on a broken GPU nothing is left to free */
    }
    for (int i = 0; i < 2; i++)
        if (d->marks[i])
            (void)cudaEventDestroy(d->marks[i]); /* on a broken GPU nothing is left to free */
    (void)pthread_mutex_destroy(&d->lock);       /* no thread holds the lock */
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
    _cleanup_free_ char *plans = NULL;
    int version = 0;
    (void)cudaRuntimeGetVersion(&version); /* cannot fail: the runtime is linked in */
    int r = cuda_compute_numerics(d->compute, &plans);
    if (r < 0)
        return r;
    if (asprintf(ret,
                 "{\"backend\":\"cuda\",\"device\":\"%s\",\"sms\":%d,\"runtime\":%d,"
                 "\"numerics\":%d,\"type\":\"%s\"%s}",
                 d->properties.name, d->properties.multiProcessorCount, version,
                 CUDA_NUMERICS_VERSION, device->type == DATA_BF16 ? "bf16" : "f32", plans) < 0)
        return -ENOMEM;
    return 0;
}

int cuda_device_plans(const Device *device, char **ret)
{
    return cuda_compute_plans(gpu(device)->compute, ret);
}

int cuda_device_use_plans(Device *device, const char *text, Error *err)
{
    return cuda_compute_use_plans(gpu(device)->compute, text, err);
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
        (void)cudaGetLastError();              /* clears the error, which is reported below */
        (void)cudaMemGetInfo(&unused, &total); /* if this fails, the text says "0 of 0" */
        return error_set(err, -ENOMEM, "GPU %s has no memory for %zu bytes: %zu of %zu are free",
                         d->properties.name, n_bytes, unused, total);
    }
    if (code == cudaSuccess)
        code = cudaMemsetAsync(memory, 0, MAX(n_bytes, (size_t)DEVICE_ALIGNMENT),
                               d->lanes[LANE_COMPUTE].stream);
    if (code == cudaSuccess) /* a wait, because other lanes may use the memory at once */
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
    void *memory = NULL;
    int r = host_memory_new(MAX(n_bytes, (size_t)1), &memory);
    if (r < 0)
        return error_errno(err, -ENOMEM, "no memory for %zu bytes that are to be page-locked",
                           n_bytes);
    cuda_enter(gpu(device));
    cudaError_t code = cudaHostRegister(memory, MAX(n_bytes, (size_t)1), cudaHostRegisterDefault);
    if (code != cudaSuccess) {
        (void)cudaGetLastError(); /* clears the error, which is reported below */
        host_memory_free(memory);
        return error_set(err, -ENOMEM, "no page-locked memory for %zu bytes: %s", n_bytes,
                         cudaGetErrorString(code));
    }
    *ret = memory;
    return 0;
}

void cuda_device_host_release(Device *device, void *memory)
{
    cuda_enter(gpu(device));
    (void)cuda_check(gpu(device), cudaHostUnregister(memory), "releasing page-locked memory");
    host_memory_free(memory);
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
    l->places[fence.serial % EVENTS] = cuda_trace_place(&d->trace);
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

/* Records in the trace that the work before the fence has been done. */
static void reached(CudaDevice *d, Fence fence)
{
    if (fence.lane != LANE_COMPUTE)
        return;
    int r = pthread_mutex_lock(&d->lock);
    assert(r == 0);
    cuda_trace_reached(&d->trace, d->lanes[fence.lane].places[fence.serial % EVENTS]);
    r = pthread_mutex_unlock(&d->lock);
    assert(r == 0);
}

/* Returns 1 if the fence is reached, 0 if not yet, or the errno of a broken device. */
static int look(CudaDevice *d, Fence fence, Error *err)
{
    if (fence.serial == 0)
        return 1;
    cudaError_t code = cudaEventQuery(event_of(d, fence));
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* clears cudaErrorNotReady, which is not a failure */
        return 0;
    }
    if (!cuda_check(d, code, "a kernel or a copy"))
        return failure_of(d, err);
    reached(d, fence);
    return 1;
}

bool cuda_device_reached(Device *device, Fence fence)
{
    Error err = ERROR_INIT;
    cuda_enter(gpu(device));
    return look(gpu(device), fence, &err) != 0; /* device_await() reports a failure at once */
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
        if (clock_monotonic_usec() - began >= timeout_usec) {
            char where[160];
            cuda_trace_describe(&d->trace, where, sizeof(where));
            return error_set(err, -ETIMEDOUT, "GPU %s has not done its work after %.3f s: %s",
                             d->properties.name, (double)timeout_usec * 1e-6, where);
        }
        const struct timespec pause = {.tv_nsec = POLL_USEC * 1000};
        (void)nanosleep(&pause, NULL); /* a signal only shortens the pause */
    }
}

int cuda_device_synchronise(Device *device, Error *err)
{
    CudaDevice *d = gpu(device);
    cuda_enter(d);
    (void)cuda_check(d, cudaDeviceSynchronize(), "a kernel or a copy");
    return failure_of(d, err);
}

/* ---- launches ---- */

int cuda_device_time_launches(Device *device, size_t n_max, Error *err)
{
    CudaDevice *d = gpu(device);
    cuda_enter(d);
    stop_timing(d);
    int r = cuda_times_begin(&d->times, n_max, err);
    if (r < 0 || n_max == 0)
        return r;
    d->moments = calloc(n_max + 1, sizeof(*d->moments));
    if (!d->moments)
        r = error_set(err, -ENOMEM, "no memory for the times of %zu launches", n_max);
    cudaError_t code = cudaSuccess;
    for (size_t i = 0; r == 0 && code == cudaSuccess && i <= n_max; i++)
        code = cudaEventCreate(&d->moments[i]);
    if (r == 0 && code == cudaSuccess)
        code = cudaEventRecord(d->moments[0], d->lanes[LANE_COMPUTE].stream);
    if (r == 0 && !cuda_check(d, code, "timing launches"))
        r = failure_of(d, err);
    if (r < 0)
        stop_timing(d);
    return r;
}

size_t cuda_device_timed_launches(const Device *device) { return gpu(device)->times.n; }

int cuda_device_read_launches(Device *device, const DeviceLaunch **ret, Error *err)
{
    CudaDevice *d = gpu(device);
    int r = cuda_times_check(&d->times, err);
    if (r == 0)
        r = cuda_device_synchronise(device, err);
    for (size_t i = 0; r == 0 && i < d->times.n; i++) {
        float msec = 0;
        cudaError_t code = cudaEventElapsedTime(&msec, d->moments[i], d->moments[i + 1]);
        if (!cuda_check(d, code, "the time of a launch"))
            r = failure_of(d, err);
        d->times.launches[i].usec = 1000.0 * (double)msec;
    }
    if (r == 0)
        *ret = d->times.launches;
    return r;
}

/* ---- a graph ---- */

/* Records the work of put() as a graph. Always ends the recording, because a lane that records runs nothing. */
static int record(CudaDevice *d, void (*put)(void *userdata), void *userdata, cudaGraph_t *ret,
                  Error *err)
{
    cudaStream_t stream = d->lanes[LANE_COMPUTE].stream;
    cudaError_t code = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (!cuda_check(d, code, "cudaStreamBeginCapture"))
        return failure_of(d, err);
    put(userdata);
    code = cudaStreamEndCapture(stream, ret);
    (void)cuda_check(d, code, "cudaStreamEndCapture"); /* failure_of() returns the first failure */
    return failure_of(d, err);
}

int cuda_device_time_graph(Device *device, void (*put)(void *userdata), void *userdata, int times,
                           double *ret_usec, size_t *ret_nodes, Error *err)
{
    CudaDevice *d = gpu(device);
    cudaStream_t stream = d->lanes[LANE_COMPUTE].stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t runs = NULL;
    cuda_enter(d);
    int r = cuda_device_synchronise(device, err);
    if (r == 0)
        r = record(d, put, userdata, &graph, err);
    if (r == 0 && (!cuda_check(d, cudaGraphGetNodes(graph, NULL, ret_nodes), "cudaGraphGetNodes") ||
                   !cuda_check(d, cudaGraphInstantiate(&runs, graph, 0), "cudaGraphInstantiate") ||
                   !cuda_check(d, cudaGraphLaunch(runs, stream), "cudaGraphLaunch")))
        r = failure_of(d, err);
    if (r == 0)
        r = cuda_device_synchronise(device, err); /* the first launch loads the graph */
    const uint64_t began = clock_monotonic_usec();
    for (int i = 0; r == 0 && i < times; i++)
        if (!cuda_check(d, cudaGraphLaunch(runs, stream), "cudaGraphLaunch"))
            r = failure_of(d, err);
    if (r == 0)
        r = cuda_device_synchronise(device, err);
    *ret_usec = (double)(clock_monotonic_usec() - began) / times;
    if (runs)
        (void)cudaGraphExecDestroy(runs); /* on a broken GPU nothing is left to free */
    if (graph)
        (void)cudaGraphDestroy(graph);
    return r;
}

/* ---- the clock ---- */

void cuda_clock_mark(Device *device, int mark)
{
    CudaDevice *d = gpu(device);
    cudaError_t code = cudaSuccess;
    cuda_enter(d);
    if (!d->marks[mark])
        code = cudaEventCreate(&d->marks[mark]);
    if (code == cudaSuccess)
        code = cudaEventRecord(d->marks[mark], d->lanes[LANE_COMPUTE].stream);
    (void)cuda_check(d, code, "a mark of the clock");
}

int cuda_clock_usec(Device *device, double *ret, Error *err)
{
    CudaDevice *d = gpu(device);
    float msec = 0;
    int r = cuda_device_synchronise(device, err); /* fails on a broken device */
    if (r < 0)
        return r;
    (void)cuda_check(d, cudaEventElapsedTime(&msec, d->marks[0], d->marks[1]), "reading the clock");
    *ret = (double)msec * 1000;
    return failure_of(d, err);
}
