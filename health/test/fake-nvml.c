/* SPDX-License-Identifier: Apache-2.0 */
/* fake-nvml.c - a fake of NVIDIA's management library, as far as probe-gpu.c calls it. Its values come from the file
 * named by FAKE_NVML: {"init": 0, "hang": FUNCTION, "gpus": [{"pci", "uuid", "serial", ...}]}. A GPU's "errors" is
 * an object of function names and the error that each returns. A GPU does not support the values that its object
 * lacks. */
#include "health/nvml.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Declares the library's functions as its users see them. */
#define DECLARE(name, arguments) __attribute__((visibility("default"))) NvmlReturn name arguments;
NVML_FUNCTIONS(DECLARE)

static json_t *machine;

static json_t *gpu_of(NvmlDevice device) { return (json_t *)(void *)device; }

/* Returns the error that the file has for the function, or NVML_SUCCESS; hangs if the file says so. */
static NvmlReturn look(NvmlDevice device, const char *function)
{
    const char *hang = json_string_value(json_object_get(machine, "hang"));
    while (hang && strcmp(hang, function) == 0)
        (void)pause();
    const json_t *error =
        json_object_get(json_object_get(device ? gpu_of(device) : machine, "errors"), function);
    return (NvmlReturn)json_integer_value(error);
}

static NvmlReturn give(NvmlDevice device, const char *function, const char *key,
                       unsigned long long *ret)
{
    NvmlReturn r = look(device, function);
    const json_t *value = json_object_get(gpu_of(device), key);
    if (r != NVML_SUCCESS || !value)
        return r != NVML_SUCCESS ? r : NVML_ERROR_NOT_SUPPORTED;
    *ret = (unsigned long long)json_integer_value(value);
    return NVML_SUCCESS;
}

static NvmlReturn give_unsigned(NvmlDevice device, const char *function, const char *key,
                                unsigned *ret)
{
    unsigned long long value = 0;
    NvmlReturn r = give(device, function, key, &value);
    if (r == NVML_SUCCESS)
        *ret = (unsigned)value;
    return r;
}

static NvmlReturn give_text(const json_t *object, const char *key, char *ret, unsigned n)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    (void)snprintf(ret, n, "%s", text);
    return NVML_SUCCESS;
}

NvmlReturn nvmlInit_v2(void)
{
    const char *path = getenv("FAKE_NVML");
    machine = path ? json_load_file(path, 0, NULL) : NULL;
    if (!machine)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    return (NvmlReturn)json_integer_value(json_object_get(machine, "init"));
}

NvmlReturn nvmlShutdown(void)
{
    json_decref(machine);
    machine = NULL;
    return NVML_SUCCESS;
}

NvmlReturn nvmlSystemGetDriverVersion(char *version, unsigned n)
{
    return give_text(machine, "driver", version, n);
}

NvmlReturn nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = (unsigned)json_array_size(json_object_get(machine, "gpus"));
    return look(NULL, __func__);
}

NvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned i, NvmlDevice *device)
{
    *device = (NvmlDevice)(void *)json_array_get(json_object_get(machine, "gpus"), i);
    return look(*device, __func__);
}

NvmlReturn nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo *info)
{
    NvmlReturn r = look(device, __func__);
    return r != NVML_SUCCESS ? r
                             : give_text(gpu_of(device), "pci", info->bus_id, sizeof(info->bus_id));
}

NvmlReturn nvmlDeviceGetUUID(NvmlDevice device, char *uuid, unsigned n)
{
    return give_text(gpu_of(device), "uuid", uuid, n);
}

NvmlReturn nvmlDeviceGetSerial(NvmlDevice device, char *serial, unsigned n)
{
    return give_text(gpu_of(device), "serial", serial, n);
}

NvmlReturn nvmlDeviceGetTotalEccErrors(NvmlDevice device, int type, int counter,
                                       unsigned long long *n)
{
    return give(device, __func__,
                type == NVML_CORRECTED      ? "corrected"
                : counter == NVML_AGGREGATE ? "uncorrected_ever"
                                            : "uncorrected",
                n);
}

NvmlReturn nvmlDeviceGetMemoryErrorCounter(NvmlDevice device, int type, int counter, int location,
                                           unsigned long long *n)
{
    if (type != NVML_UNCORRECTED || counter != NVML_AGGREGATE || location != NVML_LOCATION_SRAM)
        return NVML_ERROR_NOT_SUPPORTED;
    return give(device, __func__, "sram", n);
}

NvmlReturn nvmlDeviceGetRemappedRows(NvmlDevice device, unsigned *corrected, unsigned *uncorrected,
                                     unsigned *pending, unsigned *failed)
{
    *corrected = *pending = *failed = 0;
    (void)give_unsigned(device, __func__, "rows_pending", pending);
    (void)give_unsigned(device, __func__, "rows_failed", failed);
    return give_unsigned(device, __func__, "rows", uncorrected);
}

NvmlReturn nvmlDeviceGetRetiredPages(NvmlDevice device, int cause, unsigned *n,
                                     unsigned long long *addresses)
{
    (void)addresses;
    NvmlReturn r =
        give_unsigned(device, __func__,
                      cause == NVML_RETIRED_DOUBLE_BIT ? "pages_double" : "pages_single", n);
    return r == NVML_SUCCESS && *n > 0 ? NVML_ERROR_INSUFFICIENT_SIZE : r;
}

NvmlReturn nvmlDeviceGetRetiredPagesPendingStatus(NvmlDevice device, int *pending)
{
    return give_unsigned(device, __func__, "pages_pending", (unsigned *)pending);
}

NvmlReturn nvmlDeviceGetFieldValues(NvmlDevice device, int n, NvmlFieldValue *values)
{
    NvmlReturn r = look(device, __func__);
    for (int i = 0; i < n; i++)
        values[i].result = values[i].field == NVML_FIELD_RECOVERY_ACTION
                               ? give_unsigned(device, "recovery", "recovery", &values[i].value.u)
                               : NVML_ERROR_NOT_SUPPORTED;
    return r;
}

NvmlReturn nvmlDeviceGetCurrentClocksThrottleReasons(NvmlDevice device, unsigned long long *reasons)
{
    return give(device, __func__, "clocks", reasons);
}

NvmlReturn nvmlDeviceGetCurrPcieLinkWidth(NvmlDevice device, unsigned *width)
{
    return give_unsigned(device, __func__, "width", width);
}

NvmlReturn nvmlDeviceGetMaxPcieLinkWidth(NvmlDevice device, unsigned *width)
{
    return give_unsigned(device, __func__, "width_max", width);
}

NvmlReturn nvmlDeviceGetCurrPcieLinkGeneration(NvmlDevice device, unsigned *generation)
{
    return give_unsigned(device, __func__, "generation", generation);
}

NvmlReturn nvmlDeviceGetMaxPcieLinkGeneration(NvmlDevice device, unsigned *generation)
{
    return give_unsigned(device, __func__, "generation_max", generation);
}

NvmlReturn nvmlDeviceGetPcieReplayCounter(NvmlDevice device, unsigned *n)
{
    return give_unsigned(device, __func__, "replays", n);
}

NvmlReturn nvmlDeviceGetNvLinkState(NvmlDevice device, unsigned link, int *active)
{
    unsigned links = 0;
    NvmlReturn r = give_unsigned(device, __func__, "links", &links);
    *active = link < links;
    return r;
}

NvmlReturn nvmlDeviceGetNvLinkErrorCounter(NvmlDevice device, unsigned link, int counter,
                                           unsigned long long *n)
{
    static const char *const names[] = {"link_replays", "link_recoveries", "link_crc", "link_crc2"};
    (void)link;
    return give(device, __func__, names[counter & 3], n);
}

NvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device, unsigned *n,
                                                   NvmlProcess *processes)
{
    unsigned long long used = 0;
    NvmlReturn r = give(device, __func__, "stranger_bytes", &used);
    *n = r == NVML_SUCCESS && used > 0;
    if (*n)
        processes[0] = (NvmlProcess){.pid = 4242, .used = used};
    return r;
}
