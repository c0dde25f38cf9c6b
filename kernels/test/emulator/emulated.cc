/* SPDX-License-Identifier: Apache-2.0 */
/* emulated.cc - see emulated.h. */
#include "kernels/test/emulator/emulated.h"

#include "base/fault.h"
#include "kernels/cuda/kernels/operations.h"
#include "kernels/cuda/module/compute.h"
#include "kernels/cuda/module/environment.h"
#include "kernels/cuda/module/launch-times.h"
#include "kernels/test/emulator/emulate.h"
#include "kernels/test/emulator/emulated-stream.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

extern "C" {
#include "base/clock.h"
}

/* The part of an emulated device besides the CPU's Device. It begins with a table of its own, through which it is
 * found. */
struct EmulatedDevice {
    KernelsBackend table;
    CudaCompute *compute;
    struct CUstream_st stream;
    double marks[2]; /* the marks that cuda_clock_mark() sets */
    std::mutex lock; /* guards `failure` */
    Error failure;   /* code 0: no failure */
    CudaTimes times;
    std::vector<uint64_t> moments; /* when each launch of `times` ended, by the host's clock */
};

static double launch_usec; /* the time that a launch takes by the stream's clock */

static EmulatedDevice *emulated(const Device *device)
{
    return (EmulatedDevice *)(uintptr_t)device->backend; /* the table is the first member */
}

extern "C" CudaCompute *cuda_compute(const Device *device) { return emulated(device)->compute; }

extern "C" struct CUstream_st *cuda_compute_stream(const Device *device)
{
    return &emulated(device)->stream;
}

extern "C" void cuda_clock_mark(Device *device, int mark)
{
    emulated(device)->marks[mark] = emulated(device)->stream.usec;
}

static void fail(EmulatedDevice *e, int r, const char *what, const char *why)
{
    std::lock_guard<std::mutex> guard(e->lock);
    if (e->failure.code == 0)
        (void)error_set(&e->failure, r, "%s%s", what, why);
}

extern "C" void cuda_device_break(Device *device, const char *text)
{
    fail(emulated(device), -EIO, text, "");
}

/* The fault point may make the kernel trap (efault), or break the GPU. */
extern "C" void cuda_launched(const Device *device, const CudaWork *work)
{
    EmulatedDevice *e = emulated(device);
    int r = fault("emulated.kernel");
    e->stream.usec += launch_usec;
    if (r < 0)
        fail(e, r, work->name, ": the emulated GPU is broken");
    if (cuda_times_put(&e->times, work) > 0)
        e->moments.push_back(clock_monotonic_usec());
}

static int emulated_time_launches(Device *device, size_t n_max, Error *err)
{
    EmulatedDevice *e = emulated(device);
    e->moments.assign(1, clock_monotonic_usec());
    return cuda_times_begin(&e->times, n_max, err);
}

static size_t emulated_timed_launches(const Device *device) { return emulated(device)->times.n; }

static int emulated_read_launches(Device *device, const DeviceLaunch **ret, Error *err)
{
    EmulatedDevice *e = emulated(device);
    int r = cuda_times_check(&e->times, err);
    for (size_t i = 0; r == 0 && i < e->times.n; i++)
        e->times.launches[i].usec = (double)(e->moments[i + 1] - e->moments[i]);
    if (r == 0)
        *ret = e->times.launches;
    return r;
}

static int failure_of(Device *device, Error *err)
{
    EmulatedDevice *e = emulated(device);
    std::lock_guard<std::mutex> guard(e->lock);
    return e->failure.code < 0 ? error_set(err, e->failure.code, "%s", e->failure.text) : 0;
}

extern "C" int cuda_clock_usec(Device *device, double *ret, Error *err)
{
    int r = failure_of(device, err);
    *ret = emulated(device)->marks[1] - emulated(device)->marks[0];
    return r;
}

static int emulated_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    int r = fault("emulated.allocate");
    if (r < 0)
        return error_set(err, r, "the emulated GPU has no memory for %zu bytes", n_bytes);
    return cpu_backend.device_allocate(device, n_bytes, ret, err);
}

static int emulated_synchronise(Device *device, Error *err)
{
    int r = failure_of(device, err);
    return r < 0 ? r : cpu_backend.device_synchronise(device, err);
}

static int emulated_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err)
{
    int r = failure_of(device, err);
    return r < 0 ? r : cpu_backend.device_await(device, fence, timeout_usec, err);
}

/* Returns the numerics of the emulated device, which depend on its type; the CPU's Device does not know this type. */
static int emulated_numerics(const Device *device, char **ret)
{
    char *plans;
    int r = cuda_compute_numerics(cuda_compute(device), &plans);
    if (r < 0)
        return r;
    int n = asprintf(ret, "{\"backend\":\"cuda-emulated\",\"numerics\":%d,\"type\":\"%s\"%s}",
                     CUDA_NUMERICS_VERSION, device->type == DATA_BF16 ? "bf16" : "f32", plans);
    free(plans);
    return n < 0 ? -ENOMEM : 0;
}

static int emulated_plans(const Device *device, char **ret)
{
    return cuda_compute_plans(cuda_compute(device), ret);
}

static int emulated_use_plans(Device *device, const char *text, Error *err)
{
    return cuda_compute_use_plans(cuda_compute(device), text, err);
}

static Device *emulated_free(Device *device)
{
    EmulatedDevice *e = emulated(device);
    (void)cuda_compute_free(e->compute);
    (void)cuda_times_begin(&e->times, 0, nullptr); /* a call with 0 cannot fail */
    device->backend = &cpu_backend;
    delete e;
    return cpu_backend.device_free(device);
}

static void fill_table(KernelsBackend *table)
{
    *table = cpu_backend;
    table->open = emulated_device_open;
    table->device_free = emulated_free;
    table->device_numerics = emulated_numerics;
    table->device_plans = emulated_plans;
    table->device_use_plans = emulated_use_plans;
    table->device_allocate = emulated_allocate;
    table->device_synchronise = emulated_synchronise;
    table->device_await = emulated_await;
    table->device_time_launches = emulated_time_launches;
    table->device_timed_launches = emulated_timed_launches;
    table->device_read_launches = emulated_read_launches;
#define EMULATED_MEMBER(name) table->name = cuda_##name;
    KERNELS_COMPUTE_OPERATIONS(EMULATED_MEMBER)
#undef EMULATED_MEMBER
}

extern "C" int emulated_device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    DeviceOptions cpu = *options;
    cuda_environment_clear();
    if (options->type == DATA_F16)
        return error_set(err, -ENOTSUP, "no kernel computes in fp16");
    cpu.kind = DEVICE_CPU;
    cpu.type = DATA_F32;
    Device *device;
    int r = cpu_backend.open(&cpu, &device, err);
    if (r < 0)
        return r;
    EmulatedDevice *e = new EmulatedDevice();
    fill_table(&e->table);
    device->backend = &e->table;
    device->kind = DEVICE_CUDA;
    device->type = options->type;
    const CudaComputeOptions compute = {"emulated", "emulator", 1, getenv("SDTRAIN_CUDA_PLANS"),
                                        options};
    r = cuda_compute_new(device, &compute, &e->compute, err);
    if (r < 0) {
        (void)emulated_free(device);
        return r;
    }
    *ret = device;
    return 0;
}

extern "C" const KernelsBackend *emulated_backend(void)
{
    static KernelsBackend table;
    fill_table(&table);
    return &table;
}

extern "C" void emulated_device_launch_usec(double usec) { launch_usec = usec; }

extern "C" void emulated_device_seed(uint64_t seed) { emulate::set_seed(seed); }
