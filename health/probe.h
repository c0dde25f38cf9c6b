/* probe.h - one check of this machine's health; the interface that every probe implements.
 *
 * sdtraind runs each probe in a child process of its own (sdtraind --probe NAME), because what a
 * probe touches may hang: a probe that does not answer in its time is killed, and that is a finding
 * too. What a probe must remember (counters, buckets) goes in with the context and out with the
 * result; the daemon keeps it, the child keeps nothing.
 *
 * Ownership: probe_run fills a ProbeResult; probe_result_clear() and probe_context_clear() free
 *            what they hold. Probes are constants.
 * Units:     *_usec microseconds (boottime), *_bytes bytes.
 * Errors:    a probe that cannot find out returns -errno with text; what it found wrong is not an
 *            error but a finding.
 * Threads:   its process has one.
 */
#pragma once

#include "base/error.h"
#include "health/fault.h"

#include <jansson.h>

enum {
    PROBE_FINDINGS_MAX = 16,
    PROBE_TEXT_MAX = 240,
    PROBE_PATH_MAX = 512,
    PROBES_MAX = 16,
    PROBE_SLOTS_MAX = 64,
    PROBE_STATE_MAX = 32768, /* bytes of JSON */
};

typedef struct ProbeFinding {
    FaultCode fault;
    int slot; /* -1: the whole node */
    char text[PROBE_TEXT_MAX];
} ProbeFinding;

typedef struct ProbeResult {
    ProbeFinding findings[PROBE_FINDINGS_MAX]; /* none: healthy */
    size_t n_findings;
    char note[PROBE_TEXT_MAX]; /* what there is, for people: "8 GPUs, driver 570.86" */
    json_t *state;             /* for the next run; NULL: nothing */
} ProbeResult;

typedef struct ProbeContext { /* what probes may want to know of configuration and node */
    char run_dir[PROBE_PATH_MAX], log_dir[PROBE_PATH_MAX]; /* folders that must have room */
    char nvml[PROBE_PATH_MAX];                             /* library */
    char sysfs[PROBE_PATH_MAX], proc[PROBE_PATH_MAX];
    char boot_id[40];
    int64_t disk_min_bytes;
    int64_t gpus, rdma_devices; /* that are expected */
    int64_t n_slots;
    uint64_t busy_slots; /* that host one of our ranks */
    json_t *state;       /* what the last run left; NULL: it is the first */
} ProbeContext;

typedef struct Probe {
    const char *name; /* [a-z-]+, as sdtraind --probe takes it */
    uint64_t timeout_usec;
    int (*run)(const ProbeContext *context, ProbeResult *ret, Error *err);
} Probe;

extern const Probe probe_gpu, probe_rdma, probe_disk, probe_clock, probe_host;

/* All that are built in; n is at most PROBES_MAX. */
const Probe *const *probe_list(size_t *ret_n);
const Probe *probe_find(const char *name); /* NULL: there is none */

/* For probes: one finding more; beyond PROBE_FINDINGS_MAX the worst are kept. */
void probe_find_fault(ProbeResult *result, FaultCode fault, int slot, const char *format, ...)
    _printf_(4, 5);
void probe_result_clear(ProbeResult *result);
void probe_context_clear(ProbeContext *context);

/* JSON, and back; how a context travels to the child and a result from it. -EBADMSG: not one. */
int probe_result_format(const ProbeResult *result, char **ret);
int probe_result_parse(const char *text, size_t n_bytes, ProbeResult *ret, Error *err);
int probe_context_format(const ProbeContext *context, char **ret);
int probe_context_parse(const char *text, size_t n_bytes, ProbeContext *ret, Error *err);

/* A number that the last run has left under key; false when there is none. */
bool probe_recall(const json_t *state, const char *key, double *ret);
