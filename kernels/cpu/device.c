/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - opens the CPU as a device; memory and the record of its numerics.
 *
 * Every operation here gives bits that depend on its inputs and its shape alone: not on the number
 * of threads, the compiler or the vector width. So the numerics record holds one number,
 * NUMERICS_VERSION, and test-bits holds the bits that belong to it. */
#include "kernels/cpu/device.h"
#include "kernels/kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

enum { MAX_THREADS = 1024 };

size_t data_type_bytes(DataType type) { return type == DATA_F32 ? 4 : 2; }

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

int device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    int r;

    if (options->kind == DEVICE_CUDA)
        return error_set(err, -ENODEV, "cannot open CUDA device %d: this build has no CUDA backend",
                         options->index);
    if (options->type != DATA_F32)
        return error_set(err, -ENOTSUP, "the CPU computes in fp32 only: set precision to fp32");
    if (options->threads < 1 || options->threads > MAX_THREADS)
        return error_set(err, -EINVAL, "device threads %d is not in 1..%d", options->threads,
                         MAX_THREADS);
    r = check_cpu(err);
    if (r < 0)
        return r;

    Device *device = malloc(sizeof(*device));
    if (!device)
        return error_set(err, -ENOMEM, "no memory for a device");
    *device = (Device){.threads = options->threads};
    *ret = device;
    return 0;
}

Device *device_free(Device *device)
{
    free(device);
    return NULL;
}

uint64_t device_memory_bytes(const Device *device)
{
    (void)device; /* host memory is what it has */
    struct sysinfo info;
    if (sysinfo(&info) < 0)
        return UINT64_MAX; /* not known: no limit */
    return ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
}

DeviceKind device_kind(const Device *device)
{
    (void)device; /* the only one here */
    return DEVICE_CPU;
}

DataType device_type(const Device *device)
{
    (void)device; /* the only one here */
    return DATA_F32;
}

int device_numerics(const Device *device, char **ret)
{
    (void)device; /* its threads change no bit */
    char *text;
    if (asprintf(&text, "{\"backend\":\"cpu\",\"numerics\":%d,\"type\":\"f32\"}",
                 NUMERICS_VERSION) < 0)
        return -ENOMEM;
    *ret = text;
    return 0;
}

int device_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    (void)device;
    if (n_bytes > PTRDIFF_MAX - WORKSPACE_ALIGNMENT) /* beyond what any allocator gives */
        return error_set(err, -ENOMEM, "no memory for %zu bytes", n_bytes);

    size_t rounded = MAX(ROUND_UP(n_bytes, (size_t)WORKSPACE_ALIGNMENT), (size_t)64);
    void *memory = aligned_alloc(WORKSPACE_ALIGNMENT, rounded);
    if (!memory)
        return error_set(err, -ENOMEM, "no memory for %zu bytes", n_bytes);
    memset(memory, 0, rounded);
    *ret = memory;
    return 0;
}

void device_release(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

void device_upload(Device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    memcpy(to, from, n_bytes);
}

void device_download(Device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    memcpy(to, from, n_bytes);
}

void device_copy(Device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    memcpy(to, from, n_bytes);
}

void device_clear(Device *device, void *memory, size_t n_bytes)
{
    (void)device;
    memset(memory, 0, n_bytes);
}

int device_synchronise(Device *device, Error *err)
{
    (void)device;
    (void)err; /* everything ran when it was called */
    return 0;
}
