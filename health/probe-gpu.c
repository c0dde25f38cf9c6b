/* SPDX-License-Identifier: Apache-2.0 */
/* probe-gpu.c - checks NVIDIA's GPUs, through NVML if its library is installed.
 *
 * If the library is absent, or finds no device, the machine has no GPUs, which is healthy unless the node expects
 * some. A query that the driver does not support is skipped. The GPU counts of the bus (sysfs), of NVML and of the
 * configuration are compared, because a GPU can fall off without a message.
 *
 * State: {"boot_id", "usec", "gpus": [all seen since the boot], "counters": {pci: {...}}}. */
#include "health/gpus.h"
#include "health/nvml.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    SRAM_ERRORS_MAX = 4,
    REMAPPED_ROWS_MAX = 512,
    RETIRED_PAGES_MAX = 63,
    RETIRED_PAGES_SOME = 15,
    STRANGER_BYTES_MIN = 512 << 20,
    PROCESSES_MAX = 64,
    NAME_MAX_BYTES = 160,
};
static const double single_bits_per_sec_max = 10, crc_per_sec_max = 100;

typedef struct GpuLook {
    const ProbeContext *context;
    ProbeResult *result;
    const Nvml *nvml;
    Gpus gpus;                   /* all GPUs seen since the boot */
    uint64_t seen, lost;         /* slots with a checked GPU, with a failed GPU; bit i is slot i */
    uint64_t throttled;          /* slots throttled for reasons that are compared between GPUs */
    double elapsed_sec;          /* time since the last run; 0: unknown */
    const json_t *before;        /* counters of the last run; NULL: that run was in another boot */
    NvmlDevice device;           /* the GPU that is checked now */
    int slot;                    /* slot of `device` */
    const json_t *device_before; /* counters of `device` in the last run */
    json_t *counters;            /* counters of `device` for the next run */
    char name[NAME_MAX_BYTES];   /* name of `device` in findings */
} GpuLook;

/* ---- the library ---- */

/* Replaces every function that the library lacks. A call with any arguments is safe, since the function leaves the
 * caller's registers alone. */
static NvmlReturn is_missing(void) { return NVML_ERROR_FUNCTION_NOT_FOUND; }

static bool open_library(const char *path, Nvml *ret)
{
    *ret = (Nvml){.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!ret->library)
        return false;
#define NVML_LOAD(function, arguments)                                                             \
    {                                                                                              \
        void *symbol = dlsym(ret->library, #function);                                             \
        if (!symbol)                                                                               \
            symbol = (void *)is_missing;                                                           \
        memcpy(&ret->function, &symbol, sizeof(symbol));                                           \
    }
    NVML_FUNCTIONS(NVML_LOAD)
    return true;
}

#define find_gpu_fault(l, fault, ...) probe_find_fault((l)->result, fault, (l)->slot, __VA_ARGS__)

/* Returns whether the call has returned a value, and reports an error as a finding. Only the first error of a GPU is
 * reported, since every call fails if the GPU is lost or needs a reset. */
static bool good(GpuLook *l, NvmlReturn r, const char *what)
{
    uint64_t bit = l->slot >= 0 ? UINT64_C(1) << l->slot : 0;
    switch (r) {
    case NVML_SUCCESS:
        return true;
    case NVML_ERROR_NOT_SUPPORTED:
    case NVML_ERROR_NOT_FOUND:
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return false;
    default:
        break;
    }
    if (l->lost & bit)
        return false; /* an error of this GPU was already reported */
    l->lost |= bit;
    if (r == NVML_ERROR_GPU_IS_LOST)
        find_gpu_fault(l, FAULT_GPU_LOST, "%s: NVML says that the GPU is lost", l->name);
    else if (r == NVML_ERROR_RESET_REQUIRED)
        find_gpu_fault(l, FAULT_GPU_NEEDS_RESET, "%s: NVML says that it must be reset", l->name);
    else
        find_gpu_fault(l, FAULT_GPU_UNREADABLE, "%s: NVML gives error %d for %s", l->name, (int)r,
                       what);
    return false;
}

/* Computes a counter's rise since the last run. Returns false if the last value is unknown, or if the counter was
 * reset. */
static bool rose(GpuLook *l, const char *name, double value, double *ret)
{
    double before;
    (void)json_object_set_new(l->counters, name, json_real(value));
    if (!probe_recall(l->device_before, name, &before) || value < before)
        return false;
    *ret = value - before;
    return true;
}

/* ---- memory ---- */

static void look_at_ecc(GpuLook *l)
{
    const Nvml *n = l->nvml;
    unsigned long long errors;
    double delta;
    if (good(l, n->nvmlDeviceGetTotalEccErrors(l->device, NVML_UNCORRECTED, NVML_VOLATILE, &errors),
             "ECC errors") &&
        errors > 0)
        find_gpu_fault(l, FAULT_GPU_DOUBLE_BIT, "%s: %llu uncorrectable memory errors since reset",
                       l->name, errors);
    if (good(l,
             n->nvmlDeviceGetMemoryErrorCounter(l->device, NVML_UNCORRECTED, NVML_AGGREGATE,
                                                NVML_LOCATION_SRAM, &errors),
             "SRAM errors") &&
        errors > SRAM_ERRORS_MAX)
        find_gpu_fault(l, FAULT_GPU_SRAM, "%s: %llu uncorrectable SRAM errors in its life", l->name,
                       errors);
    if (good(l, n->nvmlDeviceGetTotalEccErrors(l->device, NVML_CORRECTED, NVML_VOLATILE, &errors),
             "corrected errors") &&
        rose(l, "corrected", (double)errors, &delta) && l->elapsed_sec > 0 &&
        delta / l->elapsed_sec > single_bits_per_sec_max)
        find_gpu_fault(l, FAULT_GPU_SINGLE_BITS, "%s: %.0f corrected memory errors a second",
                       l->name, delta / l->elapsed_sec);
}

static void look_at_rows(GpuLook *l)
{
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (!good(l,
              l->nvml->nvmlDeviceGetRemappedRows(l->device, &corrected, &uncorrected, &pending,
                                                 &failed),
              "remapped rows"))
        return;
    if (failed)
        find_gpu_fault(l, FAULT_GPU_REMAP_FAILED, "%s: a row could not be remapped", l->name);
    if (pending)
        find_gpu_fault(l, FAULT_GPU_REMAP_PENDING, "%s: a row waits for a reset to be remapped",
                       l->name);
    if (uncorrected >= REMAPPED_ROWS_MAX)
        find_gpu_fault(l, FAULT_GPU_REMAP_MANY, "%s: %u rows remapped for uncorrectable errors",
                       l->name, uncorrected);
}

static bool count_pages(GpuLook *l, int cause, unsigned *ret)
{
    *ret = 0;
    NvmlReturn r = l->nvml->nvmlDeviceGetRetiredPages(l->device, cause, ret, NULL);
    return r == NVML_ERROR_INSUFFICIENT_SIZE || good(l, r, "retired pages");
}

static void look_at_pages(GpuLook *l)
{
    unsigned single, double_bit;
    int pending = 0;
    if (count_pages(l, NVML_RETIRED_SINGLE_BITS, &single) &&
        count_pages(l, NVML_RETIRED_DOUBLE_BIT, &double_bit)) {
        if (single + double_bit >= RETIRED_PAGES_MAX)
            find_gpu_fault(l, FAULT_GPU_PAGES_MANY, "%s: %u pages retired", l->name,
                           single + double_bit);
        else if (single + double_bit >= RETIRED_PAGES_SOME)
            find_gpu_fault(l, FAULT_GPU_PAGES_SOME, "%s: %u pages retired", l->name,
                           single + double_bit);
    }
    if (good(l, l->nvml->nvmlDeviceGetRetiredPagesPendingStatus(l->device, &pending),
             "pending pages") &&
        pending)
        find_gpu_fault(l, FAULT_GPU_PAGES_PENDING, "%s: a page waits for a reset to be retired",
                       l->name);
}

/* Looks for memory of other processes on a GPU where no rank of ours runs. Only a finding in two runs in a row
 * isolates the node, since a process may be about to end. */
static void look_at_strangers(GpuLook *l)
{
    NvmlProcess processes[PROCESSES_MAX];
    unsigned n = PROCESSES_MAX;
    unsigned long long used = 0;
    double rounds = 0;
    if ((l->context->busy_slots >> l->slot & 1) ||
        !good(l, l->nvml->nvmlDeviceGetComputeRunningProcesses_v3(l->device, &n, processes),
              "processes"))
        return;
    for (unsigned i = 0; i < n; i++)
        used += processes[i].used == UINT64_MAX ? STRANGER_BYTES_MIN : processes[i].used;
    if (n == 0 || used < STRANGER_BYTES_MIN)
        return;
    (void)probe_recall(l->device_before, "strangers", &rounds);
    (void)json_object_set_new(l->counters, "strangers", json_real(rounds + 1));
    find_gpu_fault(l, rounds >= 1 ? FAULT_GPU_STRANGER : FAULT_GPU_STRANGER_SEEN,
                   "%s: process %u%s holds %llu MiB of it, though no rank runs there", l->name,
                   processes[0].pid, n > 1 ? " and others" : "", used >> 20);
}

/* ---- the driver's own advice, clocks ---- */

static void look_at_advice(GpuLook *l)
{
    static const char *const names[] = {"none", "GPU reset", "node reboot", "drain P2P",
                                        "drain and reset"};
    NvmlFieldValue value = {.field = NVML_FIELD_RECOVERY_ACTION};
    if (!good(l, l->nvml->nvmlDeviceGetFieldValues(l->device, 1, &value), "fields") ||
        value.result != NVML_SUCCESS || value.value.u == 0)
        return;
    unsigned action = value.value.u;
    find_gpu_fault(l, action == 2 ? FAULT_GPU_NEEDS_REBOOT : FAULT_GPU_NEEDS_RESET,
                   "%s: the driver asks for: %s", l->name,
                   action < ELEMENTSOF(names) ? names[action] : "something new");
}

static void look_at_clocks(GpuLook *l)
{
    unsigned long long reasons = 0;
    if (!good(l, l->nvml->nvmlDeviceGetCurrentClocksThrottleReasons(l->device, &reasons),
              "clock events"))
        return;
    if (reasons & (NVML_CLOCKS_HW_SLOWDOWN | NVML_CLOCKS_HW_THERMAL | NVML_CLOCKS_POWER_BRAKE))
        find_gpu_fault(l, FAULT_GPU_THROTTLED, "%s: its clocks are held down:%s%s%s", l->name,
                       reasons & NVML_CLOCKS_HW_SLOWDOWN ? " hardware slowdown" : "",
                       reasons & NVML_CLOCKS_HW_THERMAL ? " heat" : "",
                       reasons & NVML_CLOCKS_POWER_BRAKE ? " power brake" : "");
    else if (reasons & (NVML_CLOCKS_SW_THERMAL | NVML_CLOCKS_SYNC_BOOST))
        l->throttled |= l->slot >= 0 ? UINT64_C(1) << l->slot : 0;
}

/* ---- links ---- */

/* Allows one error in 1e12 bits, as the link's own check does: 16 a minute for 16 lanes of the fourth generation, 31
 * for the fifth. */
static double replays_per_minute_max(unsigned generation, unsigned width)
{
    static const double giga_transfers[] = {2.5, 5, 8, 16, 32, 64};
    unsigned g = CLAMP(generation, 1U, (unsigned)ELEMENTSOF(giga_transfers));
    double errors = 1e-12 * giga_transfers[g - 1] * 1e9 * 60 * MAX(width, 1U);
    return (double)(int64_t)(errors + 0.999);
}

static void look_at_pcie(GpuLook *l)
{
    const Nvml *n = l->nvml;
    unsigned width = 0, width_max = 0, generation = 0, generation_max = 0, replays = 0;
    double delta;
    if (good(l, n->nvmlDeviceGetCurrPcieLinkWidth(l->device, &width), "link width") &&
        good(l, n->nvmlDeviceGetMaxPcieLinkWidth(l->device, &width_max), "link width") &&
        width < width_max)
        find_gpu_fault(l, FAULT_GPU_PCIE_LINK, "%s: %u of %u PCIe lanes", l->name, width,
                       width_max);
    unsigned long long reasons = 0; /* an idle GPU slows its link down */
    bool idle = n->nvmlDeviceGetCurrentClocksThrottleReasons(l->device, &reasons) == NVML_SUCCESS &&
                (reasons & NVML_CLOCKS_IDLE);
    if (good(l, n->nvmlDeviceGetCurrPcieLinkGeneration(l->device, &generation), "link speed") &&
        good(l, n->nvmlDeviceGetMaxPcieLinkGeneration(l->device, &generation_max), "link speed") &&
        generation < generation_max && !idle)
        find_gpu_fault(l, FAULT_GPU_PCIE_LINK, "%s: PCIe generation %u of %u", l->name, generation,
                       generation_max);
    if (good(l, n->nvmlDeviceGetPcieReplayCounter(l->device, &replays), "PCIe replays") &&
        rose(l, "replays", replays, &delta) && l->elapsed_sec > 0) {
        double limit = replays_per_minute_max(generation_max, width_max);
        double minutes = MAX(l->elapsed_sec / 60, 1);
        if (delta / minutes > limit)
            find_gpu_fault(l, FAULT_GPU_PCIE_REPLAYS,
                           "%s: %.0f PCIe replays a minute, %.0f are allowed", l->name,
                           delta / minutes, limit);
    }
}

static double count_link_errors(GpuLook *l, int counter, unsigned links)
{
    double sum = 0;
    for (unsigned link = 0; link < NVML_LINKS_MAX; link++) {
        unsigned long long n = 0;
        if ((links >> link & 1) &&
            l->nvml->nvmlDeviceGetNvLinkErrorCounter(l->device, link, counter, &n) == NVML_SUCCESS)
            sum += (double)n;
    }
    return sum;
}

static void look_at_nvlink(GpuLook *l)
{
    unsigned up = 0, n_up = 0;
    double before, delta;
    for (unsigned link = 0; link < NVML_LINKS_MAX; link++) {
        int active = 0;
        if (l->nvml->nvmlDeviceGetNvLinkState(l->device, link, &active) == NVML_SUCCESS && active) {
            up |= 1U << link;
            n_up++;
        }
    }
    bool known = probe_recall(l->device_before, "links", &before);
    (void)json_object_set_new(l->counters, "links", json_real(known ? MAX(before, n_up) : n_up));
    if (known && n_up < before)
        find_gpu_fault(l, FAULT_GPU_NVLINK_DOWN, "%s: %u NVLinks up, %.0f were", l->name, n_up,
                       before);
    double crc =
        count_link_errors(l, NVML_LINK_CRC_FLIT, up) + count_link_errors(l, NVML_LINK_CRC_DATA, up);
    if (rose(l, "crc", crc, &delta) && l->elapsed_sec > 0 &&
        delta / l->elapsed_sec >= crc_per_sec_max)
        find_gpu_fault(l, FAULT_GPU_NVLINK_CRC, "%s: %.0f NVLink CRC errors a second", l->name,
                       delta / l->elapsed_sec);
    double recoveries = count_link_errors(l, NVML_LINK_RECOVERY, up);
    if (rose(l, "recoveries", recoveries, &delta) && delta > 0)
        find_gpu_fault(l, FAULT_GPU_NVLINK_RECOVERY, "%s: its NVLinks were retrained %.0f times",
                       l->name, delta);
}

/* ---- all GPUs ---- */

/* Finds the slot of the GPU and the names of the GPU. Returns false if the slot cannot be found. */
static bool identify(GpuLook *l, unsigned i)
{
    const Nvml *n = l->nvml;
    NvmlPciInfo info = {0};
    char pci[PCI_ADDRESS_MAX];
    l->slot = -1;
    (void)snprintf(l->name, sizeof(l->name), "GPU %u", i);
    if (!good(l, n->nvmlDeviceGetHandleByIndex_v2(i, &l->device), "its handle") ||
        !good(l, n->nvmlDeviceGetPciInfo_v3(l->device, &info), "its address"))
        return false;
    info.bus_id[sizeof(info.bus_id) - 1] = '\0';
    if (pci_address_parse(info.bus_id, strlen(info.bus_id), pci) < 0)
        return false;
    l->slot = gpus_place(&l->gpus, pci);
    if (l->slot < 0)
        return false;
    Gpu *gpu = &l->gpus.gpus[l->slot];
    char uuid[96] = "", serial[64] = "";
    if (n->nvmlDeviceGetUUID(l->device, uuid, sizeof(uuid)) == NVML_SUCCESS)
        (void)snprintf(gpu->uuid, sizeof(gpu->uuid), "%.63s", uuid);
    if (n->nvmlDeviceGetSerial(l->device, serial, sizeof(serial)) == NVML_SUCCESS)
        (void)snprintf(gpu->serial, sizeof(gpu->serial), "%.31s", serial);
    return true;
}

static void look_at_gpu(GpuLook *l)
{
    const Gpu *gpu = &l->gpus.gpus[l->slot];
    (void)snprintf(l->name, sizeof(l->name), "GPU %d %s %s%s%s", l->slot, gpu->pci, gpu->uuid,
                   *gpu->serial ? " serial " : "", gpu->serial);
    l->seen |= UINT64_C(1) << l->slot;
    l->device_before = json_object_get(l->before, gpu->pci);
    l->counters = json_object();
    void (*const looks[])(GpuLook *) = {look_at_ecc,    look_at_rows,     look_at_pages,
                                        look_at_advice, look_at_clocks,   look_at_pcie,
                                        look_at_nvlink, look_at_strangers};
    for (size_t i = 0; i < ELEMENTSOF(looks); i++)
        looks[i](l);
    (void)json_object_set_new(json_object_get(l->result->state, "counters"), gpu->pci, l->counters);
}

/* Reports the GPUs that sync boost or the software's thermal limit slows down, if they are fewer than half of all. */
static void compare_clocks(GpuLook *l)
{
    int all = __builtin_popcountll(l->seen), held = __builtin_popcountll(l->throttled);
    for (int i = 0; i < PROBE_SLOTS_MAX && held * 2 < all; i++)
        if (l->throttled >> i & 1)
            probe_find_fault(l->result, FAULT_GPU_THROTTLED, i,
                             "GPU %d %s: its clocks are held down, others' are not", i,
                             l->gpus.gpus[i].uuid);
}

static void compare_counts(GpuLook *l, unsigned n_nvml, size_t n_bus)
{
    for (size_t i = 0; i < l->gpus.n; i++)
        if (!((l->seen | l->lost) >> i & 1))
            probe_find_fault(l->result, FAULT_GPU_GONE, (int)i,
                             "GPU %zu %s %s%s%s was here since the boot and is gone", i,
                             l->gpus.gpus[i].pci, l->gpus.gpus[i].uuid,
                             *l->gpus.gpus[i].serial ? " serial " : "", l->gpus.gpus[i].serial);
    if (n_nvml < (unsigned)l->context->gpus || n_bus > n_nvml)
        probe_find_fault(l->result, FAULT_GPU_COUNT, -1,
                         "NVML has %u GPUs, the bus %zu, %lld are expected", n_nvml, n_bus,
                         (long long)l->context->gpus);
}

static void begin(GpuLook *l)
{
    const json_t *state = l->context->state;
    double now_usec = (double)clock_boottime_usec(), before_usec;
    const char *boot_id = json_string_value(json_object_get(state, "boot_id"));
    bool same_boot = boot_id && strcmp(boot_id, l->context->boot_id) == 0;
    l->result->state =
        json_pack("{ss,sf,s{}}", "boot_id", l->context->boot_id, "usec", now_usec, "counters");
    gpus_parse(same_boot ? json_object_get(state, "gpus") : NULL, &l->gpus);
    l->before = same_boot ? json_object_get(state, "counters") : NULL;
    if (same_boot && probe_recall(state, "usec", &before_usec) && now_usec > before_usec)
        l->elapsed_sec = (now_usec - before_usec) / 1e6;
}

static int no_library(GpuLook *l, size_t n_bus, const char *why)
{
    if (l->context->gpus > 0 || l->gpus.n > 0)
        probe_find_fault(l->result, FAULT_GPU_LIBRARY, -1,
                         "%lld GPUs are expected, the bus has %zu, and NVML can't be used: %.120s",
                         (long long)l->context->gpus, n_bus, why);
    (void)snprintf(l->result->note, sizeof(l->result->note), "no GPU");
    return 0;
}

static void look_at_all(GpuLook *l, size_t n_bus)
{
    unsigned n = 0;
    char driver[80] = "";
    if (!good(l, l->nvml->nvmlDeviceGetCount_v2(&n), "the number of GPUs"))
        n = 0;
    n = MIN(n, (unsigned)PROBE_SLOTS_MAX);
    NvmlDevice devices[PROBE_SLOTS_MAX] = {0};
    bool known[PROBE_SLOTS_MAX] = {false};
    for (unsigned i = 0; i < n; i++) { /* all GPUs must be known before slots are named */
        known[i] = identify(l, i);
        devices[i] = l->device;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!known[i])
            continue;
        NvmlPciInfo info = {0};
        char pci[PCI_ADDRESS_MAX] = "";
        l->device = devices[i];
        if (l->nvml->nvmlDeviceGetPciInfo_v3(l->device, &info) == NVML_SUCCESS)
            (void)pci_address_parse(info.bus_id, strnlen(info.bus_id, sizeof(info.bus_id)), pci);
        l->slot = gpus_find(&l->gpus, pci);
        if (l->slot >= 0)
            look_at_gpu(l);
    }
    compare_clocks(l);
    compare_counts(l, n, n_bus);
    (void)l->nvml->nvmlSystemGetDriverVersion(driver, sizeof(driver)); /* only shown to people */
    (void)snprintf(l->result->note, sizeof(l->result->note), "%u GPU%s, driver %.79s", n,
                   n == 1 ? "" : "s", driver);
}

static int run_gpu_probe(const ProbeContext *context, ProbeResult *ret, Error *err)
{
    static char bus[PROBE_SLOTS_MAX][PCI_ADDRESS_MAX];
    Nvml nvml;
    GpuLook l = {.context = context, .result = ret, .nvml = &nvml, .slot = -1};
    begin(&l);
    size_t n_bus = gpus_list_pci(context->sysfs, bus);
    if (!open_library(context->nvml, &nvml)) {
        const char *why = dlerror();
        (void)no_library(&l, n_bus, why ? why : "no library");
    } else {
        NvmlReturn r = nvml.nvmlInit_v2();
        if (r == NVML_SUCCESS) {
            look_at_all(&l, n_bus);
            (void)nvml.nvmlShutdown(); /* the process ends anyway */
        } else {
            char why[64];
            (void)snprintf(why, sizeof(why), "nvmlInit gives error %d", (int)r);
            (void)no_library(&l, n_bus, why);
        }
    }
    if (json_object_set_new(ret->state, "gpus", gpus_format(&l.gpus)) < 0)
        return error_set(err, -EIO, "a GPU's name is not UTF-8");
    return 0;
}

const Probe probe_gpu = {.name = "gpu", .timeout_usec = 30 * USEC_PER_SEC, .run = run_gpu_probe};
