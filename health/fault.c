/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c - see fault.h. */
#include "health/fault.h"

/* clang-format off */
static const FaultRule rules[FAULTS] = {
    [FAULT_GPU_LIBRARY]         = {"gpu-library",         HEALTH_DRAIN,   SCOPE_NODE, CURE_ITSELF},
    [FAULT_GPU_COUNT]           = {"gpu-count",           HEALTH_DRAIN,   SCOPE_NODE, CURE_ITSELF},
    [FAULT_GPU_GONE]            = {"gpu-gone",            HEALTH_ISOLATE, SCOPE_NODE, CURE_REBOOT},
    [FAULT_GPU_LOST]            = {"gpu-lost",            HEALTH_ISOLATE, SCOPE_NODE, CURE_REBOOT},
    [FAULT_GPU_NEEDS_RESET]     = {"gpu-needs-reset",     HEALTH_DRAIN,   SCOPE_NODE, CURE_RESET},
    [FAULT_GPU_NEEDS_REBOOT]    = {"gpu-needs-reboot",    HEALTH_ISOLATE, SCOPE_NODE, CURE_REBOOT},
    [FAULT_GPU_UNREADABLE]      = {"gpu-unreadable",      HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_GPU_DOUBLE_BIT]      = {"gpu-double-bit",      HEALTH_ISOLATE, SCOPE_SLOT, CURE_RESET},
    [FAULT_GPU_SRAM]            = {"gpu-sram",            HEALTH_ISOLATE, SCOPE_SLOT, CURE_REPAIR},
    [FAULT_GPU_SINGLE_BITS]     = {"gpu-single-bits",     HEALTH_SUSPECT, SCOPE_SLOT, CURE_ITSELF},
    [FAULT_GPU_REMAP_FAILED]    = {"gpu-remap-failed",    HEALTH_DRAIN,   SCOPE_NODE, CURE_REPAIR},
    [FAULT_GPU_REMAP_PENDING]   = {"gpu-remap-pending",   HEALTH_DRAIN,   SCOPE_NODE, CURE_RESET},
    [FAULT_GPU_REMAP_MANY]      = {"gpu-remap-many",      HEALTH_ISOLATE, SCOPE_SLOT, CURE_REPAIR},
    [FAULT_GPU_PAGES_MANY]      = {"gpu-pages-many",      HEALTH_ISOLATE, SCOPE_SLOT, CURE_REPAIR},
    [FAULT_GPU_PAGES_SOME]      = {"gpu-pages-some",      HEALTH_SUSPECT, SCOPE_SLOT, CURE_REPAIR},
    [FAULT_GPU_PAGES_PENDING]   = {"gpu-pages-pending",   HEALTH_DRAIN,   SCOPE_NODE, CURE_RESET},
    [FAULT_GPU_THROTTLED]       = {"gpu-throttled",       HEALTH_SUSPECT, SCOPE_SLOT, CURE_ITSELF},
    [FAULT_GPU_PCIE_LINK]       = {"gpu-pcie-link",       HEALTH_SUSPECT, SCOPE_SLOT, CURE_ITSELF},
    [FAULT_GPU_PCIE_REPLAYS]    = {"gpu-pcie-replays",    HEALTH_ISOLATE, SCOPE_SLOT, CURE_ITSELF},
    [FAULT_GPU_NVLINK_DOWN]     = {"gpu-nvlink-down",     HEALTH_DRAIN,   SCOPE_NODE, CURE_ITSELF},
    [FAULT_GPU_NVLINK_CRC]      = {"gpu-nvlink-crc",      HEALTH_ISOLATE, SCOPE_NODE, CURE_ITSELF},
    [FAULT_GPU_NVLINK_RECOVERY] = {"gpu-nvlink-recovery", HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_GPU_STRANGER_SEEN]   = {"gpu-stranger-seen",   HEALTH_SUSPECT, SCOPE_SLOT, CURE_ITSELF},
    [FAULT_GPU_STRANGER]        = {"gpu-stranger",        HEALTH_ISOLATE, SCOPE_SLOT, CURE_ITSELF},
    [FAULT_XID_ISOLATE]         = {"xid-isolate",         HEALTH_ISOLATE, SCOPE_NODE, CURE_RESET},
    [FAULT_XID_SLOT]            = {"xid-isolate-slot",    HEALTH_ISOLATE, SCOPE_SLOT, CURE_RESET},
    [FAULT_XID_REBOOT]          = {"xid-reboot",          HEALTH_ISOLATE, SCOPE_NODE, CURE_REBOOT},
    [FAULT_XID_RESET]           = {"xid-reset",           HEALTH_DRAIN,   SCOPE_NODE, CURE_RESET},
    [FAULT_XID_SUSPECT]         = {"xid-suspect",         HEALTH_SUSPECT, SCOPE_NODE, CURE_RESET},
    [FAULT_XID_REPEATED]        = {"xid-repeated",        HEALTH_SUSPECT, SCOPE_SLOT, CURE_ITSELF},
    [FAULT_NIC_FATAL]           = {"nic-fatal",           HEALTH_SUSPECT, SCOPE_NODE, CURE_CLEAR},
    [FAULT_LOG_OVERRUN]         = {"kernel-log-overrun",  HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_LOG_UNREADABLE]      = {"kernel-log-unread",   HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_RDMA_COUNT_SEEN]     = {"rdma-count-seen",     HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_RDMA_COUNT]          = {"rdma-count",          HEALTH_DRAIN,   SCOPE_NODE, CURE_ITSELF},
    [FAULT_RDMA_PORT]           = {"rdma-port",           HEALTH_DRAIN,   SCOPE_NODE, CURE_ITSELF},
    [FAULT_RDMA_RATE]           = {"rdma-rate",           HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_RDMA_COUNTER]        = {"rdma-counter",        HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_RDMA_HUNG]           = {"rdma-hung",           HEALTH_ISOLATE, SCOPE_NODE, CURE_REBOOT},
    [FAULT_DISK_READ_ONLY]      = {"disk-read-only",      HEALTH_DRAIN,   SCOPE_NODE, CURE_ITSELF},
    [FAULT_DISK_WRITE]          = {"disk-write",          HEALTH_DRAIN,   SCOPE_NODE, CURE_ITSELF},
    [FAULT_DISK_FULL]           = {"disk-full",           HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_DISK_SLOW]           = {"disk-slow",           HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_CLOCK_WRONG]         = {"clock-wrong",         HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_CLOCK_STEPPED]       = {"clock-stepped",       HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_MEMORY_LOW]          = {"memory-low",          HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_OOM_KILLS]           = {"oom-kills",           HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_STUCK_PROCESSES]     = {"stuck-processes",     HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_SPOT_NOTICE]         = {"spot-notice",         HEALTH_DRAIN,   SCOPE_NODE, CURE_DENIAL},
    [FAULT_SPOT_REBALANCE]      = {"spot-rebalance",      HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
    [FAULT_SPOT_SILENT]         = {"spot-silent",         HEALTH_SUSPECT, SCOPE_NODE, CURE_ITSELF},
};
/* clang-format on */

const FaultRule *fault_rule(FaultCode code)
{
    assert(code < FAULTS && rules[code].name);
    return &rules[code];
}

const char *fault_cure_text(FaultCure cure)
{
    static const char *const texts[CURES] = {
        [CURE_ITSELF] = "a round of probes that does not find it",
        [CURE_RESET] = "a reboot, or a reset of the GPU and sdctl node check --clear",
        [CURE_CLEAR] = "a reboot, or sdctl node check --clear",
        [CURE_REBOOT] = "a reboot, then sdctl node uncordon",
        [CURE_REPAIR] = "repair or another GPU, then sdctl node uncordon",
        [CURE_DENIAL] = "a reboot, or 15 minutes without the notice",
    };
    assert(cure < CURES);
    return texts[cure];
}

const char *health_level_name(HealthLevel level)
{
    static const char *const names[HEALTH_LEVELS] = {"ok", "suspect", "drain", "isolate"};
    assert(level < HEALTH_LEVELS);
    return names[level];
}
