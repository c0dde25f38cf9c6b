/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - the faults that probes can find, and how bad each is: one row for each fault.
 *
 * A probe returns the code of a fault, never its level; the table has the level. Sources: DCGM's and NVIDIA's
 * catalogues, the agents of EKS, AzNHC and awsome-distributed-training, as far as they agree. Where they differ, a
 * fault that can spoil results isolates the node, and a fault that only slows it makes it suspect.
 *
 * Ownership: rows are constants. Units: none. Errors: none. Threads: any; pure.
 */
#pragma once

#include "base/macro.h"

/* In rising order of severity. */
typedef enum HealthLevel {
    HEALTH_OK,
    HEALTH_SUSPECT, /* operators are notified; the node keeps its work */
    HEALTH_DRAIN, /* the node's work ends at the next checkpoint; no new work until it is healthy */
    HEALTH_ISOLATE, /* the node's results cannot be trusted: its work ends now */
    HEALTH_LEVELS,
} HealthLevel;

typedef enum FaultScope {
    SCOPE_NODE,
    SCOPE_SLOT, /* one GPU: its slot is lost, the node's other slots are still used */
} FaultScope;

/* The event that ends a fault. */
typedef enum FaultCure {
    CURE_ITSELF, /* a round of probes that does not find the fault */
    CURE_RESET,  /* a reset of the GPU */
    CURE_CLEAR,  /* a request of an operator to clear the fault */
    CURE_REBOOT,
    CURE_REPAIR,
    CURE_DENIAL, /* a reboot, or some time in which the cloud gives no notice */
    CURES,
} FaultCure;

typedef enum FaultCode {
    FAULT_GPU_LIBRARY,
    FAULT_GPU_COUNT,
    FAULT_GPU_GONE,
    FAULT_GPU_LOST,
    FAULT_GPU_NEEDS_RESET,
    FAULT_GPU_NEEDS_REBOOT,
    FAULT_GPU_UNREADABLE,
    FAULT_GPU_DOUBLE_BIT,
    FAULT_GPU_SRAM,
    FAULT_GPU_SINGLE_BITS,
    FAULT_GPU_REMAP_FAILED,
    FAULT_GPU_REMAP_PENDING,
    FAULT_GPU_REMAP_MANY,
    FAULT_GPU_PAGES_MANY,
    FAULT_GPU_PAGES_SOME,
    FAULT_GPU_PAGES_PENDING,
    FAULT_GPU_THROTTLED,
    FAULT_GPU_PCIE_LINK,
    FAULT_GPU_PCIE_REPLAYS,
    FAULT_GPU_NVLINK_DOWN,
    FAULT_GPU_NVLINK_CRC,
    FAULT_GPU_NVLINK_RECOVERY,
    FAULT_GPU_STRANGER_SEEN,
    FAULT_GPU_STRANGER,
    FAULT_XID_ISOLATE,
    FAULT_XID_SLOT,
    FAULT_XID_REBOOT,
    FAULT_XID_RESET,
    FAULT_XID_SUSPECT,
    FAULT_XID_REPEATED,
    FAULT_NIC_FATAL,
    FAULT_LOG_OVERRUN,
    FAULT_LOG_UNREADABLE,
    FAULT_RDMA_COUNT_SEEN,
    FAULT_RDMA_COUNT,
    FAULT_RDMA_PORT,
    FAULT_RDMA_RATE,
    FAULT_RDMA_COUNTER,
    FAULT_RDMA_HUNG,
    FAULT_DISK_READ_ONLY,
    FAULT_DISK_WRITE,
    FAULT_DISK_FULL,
    FAULT_DISK_SLOW,
    FAULT_CLOCK_WRONG,
    FAULT_CLOCK_STEPPED,
    FAULT_MEMORY_LOW,
    FAULT_OOM_KILLS,
    FAULT_STUCK_PROCESSES,
    FAULT_SPOT_NOTICE,
    FAULT_SPOT_REBALANCE,
    FAULT_SPOT_SILENT,
    FAULTS,
} FaultCode;

typedef struct FaultRule {
    const char *name; /* matches [a-z-]+ */
    HealthLevel level;
    FaultScope scope;
    FaultCure cure;
} FaultRule;

const FaultRule *fault_rule(FaultCode code);
const char *fault_cure_text(FaultCure cure);
const char *health_level_name(HealthLevel level);
