/* SPDX-License-Identifier: Apache-2.0 */
/* emulated.cc - see emulated.h. */
#include "kernels/cuda/emulated.h"

#include "kernels/cuda/emulate.h"
#include "kernels/cuda/operations.h"

#include <cstdio>

static KernelsBackend table;

/* What depends on the type that the CPU knows nothing of. */
static int emulated_numerics(const Device *device, char **ret)
{
    int n = asprintf(ret, "{\"backend\":\"cuda-emulated\",\"numerics\":%d,\"type\":\"%s\"}",
                     CUDA_NUMERICS_VERSION, device->type == DATA_BF16 ? "bf16" : "f32");
    return n < 0 ? -ENOMEM : 0;
}

static void fill_table()
{
    table = cpu_backend;
    table.open = emulated_device_open;
    table.device_numerics = emulated_numerics;
#define EMULATED_MEMBER(name) table.name = cuda_##name;
    KERNELS_COMPUTE_OPERATIONS(EMULATED_MEMBER)
#undef EMULATED_MEMBER
}

extern "C" int emulated_device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    DeviceOptions cpu = *options;
    if (options->type == DATA_F16)
        return error_set(err, -ENOTSUP, "no kernel computes in fp16");
    cpu.kind = DEVICE_CPU;
    cpu.type = DATA_F32;
    int r = cpu_backend.open(&cpu, ret, err);
    if (r < 0)
        return r;
    fill_table();
    (*ret)->backend = &table;
    (*ret)->kind = DEVICE_CUDA;
    (*ret)->type = options->type;
    return 0;
}

extern "C" const KernelsBackend *emulated_backend(void)
{
    fill_table();
    return &table;
}

extern "C" void emulated_device_seed(uint64_t seed) { emulate::set_seed(seed); }
