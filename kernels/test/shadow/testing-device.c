/* SPDX-License-Identifier: Apache-2.0 */
/* testing-device.c - replaces device_open() in a test (ld --wrap). With SDTRAIN_TEST_DEVICE=shadow[:OPTIONS] a test
 * that opens the CPU gets a shadow device, with emulated[:SEED] the emulator of the CUDA kernels, with cuda the first
 * GPU, from the module. emulated-bf16 and cuda-bf16 compute in bf16. The emulator makes plans for the libraries of
 * SDTRAIN_CUDA_LIBRARIES, if that is set; a GPU makes plans unless SDTRAIN_CUDA_PLANS is set. CMake's sdtrain_test(...
 * DEVICE shadow EMULATED) registers a test for the first two devices. */
#include "kernels/test/emulator/emulated.h"
#include "kernels/test/shadow/shadow.h"

#include <stdlib.h>
#include <string.h>

__typeof__(device_open) __real_device_open, __wrap_device_open;

/* Returns the text behind "name:" in `wanted`, "" if `wanted` is only the name, or NULL if `wanted` has another
 * name. */
static const char *behind(const char *wanted, const char *name)
{
    const size_t n = strlen(name);
    if (strncmp(wanted, name, n) != 0 || (wanted[n] != ':' && wanted[n] != '\0'))
        return NULL;
    return wanted[n] ? wanted + n + 1 : "";
}

int __wrap_device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    const char *wanted = getenv("SDTRAIN_TEST_DEVICE");
    if (!wanted || options->kind != DEVICE_CPU || options->type != DATA_F32)
        return __real_device_open(options, ret, err);
    const char *seed = behind(wanted, "emulated"), *rest = behind(wanted, "shadow");
    const char *narrow_seed = behind(wanted, "emulated-bf16");
    DeviceOptions other = *options;
    if (narrow_seed || strcmp(wanted, "cuda-bf16") == 0)
        other.type = DATA_BF16;
    if (seed || narrow_seed) {
        emulated_device_seed(strtoull(seed ? seed : narrow_seed, NULL, 10));
        other.tune = narrow_seed && getenv("SDTRAIN_CUDA_LIBRARIES");
        return emulated_device_open(&other, ret, err);
    }
    if (strcmp(wanted, "cuda") == 0 || strcmp(wanted, "cuda-bf16") == 0) {
        other.kind = DEVICE_CUDA;
        other.tune = other.type == DATA_BF16 && !getenv("SDTRAIN_CUDA_PLANS");
        return __real_device_open(&other, ret, err);
    }
    if (!rest)
        return error_set(err, -EINVAL,
                         "SDTRAIN_TEST_DEVICE=%.100s is not shadow[:OPTIONS], "
                         "emulated[-bf16][:SEED] or cuda[-bf16]",
                         wanted);
    ShadowOptions shadow;
    int r = shadow_options_parse(rest, &shadow, err);
    return r < 0 ? r : shadow_open(options, &shadow, ret, err);
}
