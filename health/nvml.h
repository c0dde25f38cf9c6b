/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.h - the part of NVIDIA's management library that probe-gpu.c calls.
 *
 * The declarations are ours, so that the build needs no header of the library. The library is opened at run time, if
 * it is installed.
 *
 * Ownership: handles belong to the library.
 * Units:     bytes, counts; link widths in lanes.
 * Errors:    NvmlReturn as the library returns it.
 * Threads:   the probe's only thread.
 * Source:    NVML's ABI, stable since driver 470; the recovery action since 570.
 */
#pragma once

#include <stddef.h>

typedef enum NvmlReturn {
    NVML_SUCCESS = 0,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_UNKNOWN = 999,
} NvmlReturn;

typedef struct NvmlDeviceHandle *NvmlDevice;

typedef struct NvmlPciInfo {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} NvmlPciInfo;

typedef struct NvmlProcess {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} NvmlProcess;

typedef struct NvmlFieldValue {
    unsigned field, scope;
    long long timestamp, latency_usec;
    int type;
    NvmlReturn result;
    union {
        double d;
        unsigned u;
        unsigned long ul;
        unsigned long long ull;
        long long sll;
    } value;
} NvmlFieldValue;

enum {
    NVML_FIELD_RECOVERY_ACTION = 230,
    NVML_CORRECTED = 0,
    NVML_UNCORRECTED = 1,
    NVML_VOLATILE = 0,
    NVML_AGGREGATE = 1,
    NVML_LOCATION_SRAM = 7,
    NVML_RETIRED_SINGLE_BITS = 0,
    NVML_RETIRED_DOUBLE_BIT = 1,
    NVML_LINKS_MAX = 18,
    NVML_LINK_REPLAY = 0,
    NVML_LINK_RECOVERY = 1,
    NVML_LINK_CRC_FLIT = 2,
    NVML_LINK_CRC_DATA = 3,
};

/* Clock-event reasons. Idle (1) and the software power cap (4) are normal. */
enum {
    NVML_CLOCKS_IDLE = 0x1,
    NVML_CLOCKS_HW_SLOWDOWN = 0x8,
    NVML_CLOCKS_SYNC_BOOST = 0x10,
    NVML_CLOCKS_SW_THERMAL = 0x20,
    NVML_CLOCKS_HW_THERMAL = 0x40,
    NVML_CLOCKS_POWER_BRAKE = 0x80,
};

/* The functions that are called: name, arguments. A function that the library lacks returns FUNCTION_NOT_FOUND. */
#define NVML_FUNCTIONS(F)                                                                          \
    F(nvmlInit_v2, (void))                                                                         \
    F(nvmlShutdown, (void))                                                                        \
    F(nvmlSystemGetDriverVersion, (char *version, unsigned n))                                     \
    F(nvmlDeviceGetCount_v2, (unsigned *n))                                                        \
    F(nvmlDeviceGetHandleByIndex_v2, (unsigned i, NvmlDevice *device))                             \
    F(nvmlDeviceGetPciInfo_v3, (NvmlDevice device, NvmlPciInfo * info))                            \
    F(nvmlDeviceGetUUID, (NvmlDevice device, char *uuid, unsigned n))                              \
    F(nvmlDeviceGetSerial, (NvmlDevice device, char *serial, unsigned n))                          \
    F(nvmlDeviceGetTotalEccErrors,                                                                 \
      (NvmlDevice device, int type, int counter, unsigned long long *n))                           \
    F(nvmlDeviceGetMemoryErrorCounter,                                                             \
      (NvmlDevice device, int type, int counter, int location, unsigned long long *n))             \
    F(nvmlDeviceGetRemappedRows, (NvmlDevice device, unsigned *corrected, unsigned *uncorrected,   \
                                  unsigned *pending, unsigned *failed))                            \
    F(nvmlDeviceGetRetiredPages,                                                                   \
      (NvmlDevice device, int cause, unsigned *n, unsigned long long *addresses))                  \
    F(nvmlDeviceGetRetiredPagesPendingStatus, (NvmlDevice device, int *pending))                   \
    F(nvmlDeviceGetFieldValues, (NvmlDevice device, int n, NvmlFieldValue *values))                \
    F(nvmlDeviceGetCurrentClocksThrottleReasons, (NvmlDevice device, unsigned long long *reasons)) \
    F(nvmlDeviceGetCurrPcieLinkWidth, (NvmlDevice device, unsigned *width))                        \
    F(nvmlDeviceGetMaxPcieLinkWidth, (NvmlDevice device, unsigned *width))                         \
    F(nvmlDeviceGetCurrPcieLinkGeneration, (NvmlDevice device, unsigned *generation))              \
    F(nvmlDeviceGetMaxPcieLinkGeneration, (NvmlDevice device, unsigned *generation))               \
    F(nvmlDeviceGetPcieReplayCounter, (NvmlDevice device, unsigned *n))                            \
    F(nvmlDeviceGetNvLinkState, (NvmlDevice device, unsigned link, int *active))                   \
    F(nvmlDeviceGetNvLinkErrorCounter,                                                             \
      (NvmlDevice device, unsigned link, int counter, unsigned long long *n))                      \
    F(nvmlDeviceGetComputeRunningProcesses_v3,                                                     \
      (NvmlDevice device, unsigned *n, NvmlProcess *processes))

#define NVML_MEMBER(name, arguments) NvmlReturn(*name) arguments;
typedef struct Nvml {
    void *library;
    NVML_FUNCTIONS(NVML_MEMBER)
} Nvml;
