/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - one check of this machine's health; the interface that every probe implements.
 *
 * A probe touches devices and drivers that may hang. So sdtraind runs each probe in a child process (sdtraind
 * --probe NAME) and kills a probe that exceeds its timeout, which is a finding, too. The daemon keeps a probe's
 * state (counters, buckets) between runs: the state is passed in the context and returned in the result.
 *
 * Ownership: a probe's run() fills a ProbeResult; probe_result_clear() and probe_context_clear() free the JSON that
 *            they hold. Probes are constants.
 * Units:     *_usec microseconds (boottime), *_bytes bytes.
 * Errors:    a probe that cannot do its check returns -errno with text. A fault that it finds is a finding, not an
 *            error.
 * Threads:   the probe's process has one thread.
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
    ProbeFinding findings[PROBE_FINDINGS_MAX];
    size_t n_findings;         /* 0: healthy */
    char note[PROBE_TEXT_MAX]; /* the inventory, for people: "8 GPUs, driver 570.86" */
    json_t *state;             /* the state for the context of the next run; NULL: none */
} ProbeResult;

/* The configuration and the state of the node, as far as probes need them. */
typedef struct ProbeContext {
    char run_dir[PROBE_PATH_MAX], log_dir[PROBE_PATH_MAX]; /* folders that must have room */
    char nvml[PROBE_PATH_MAX];                             /* path of NVIDIA's management library */
    char sysfs[PROBE_PATH_MAX], proc[PROBE_PATH_MAX];      /* /sys and /proc, or a test's folders */
    char boot_id[40];
    int64_t disk_min_bytes;     /* room that each folder must have */
    int64_t gpus, rdma_devices; /* numbers expected on this node */
    int64_t n_slots;
    uint64_t busy_slots;                /* bit i: slot i hosts one of our ranks */
    int64_t probe_sec;                  /* seconds after which this probe is killed */
    char spot_endpoint[PROBE_PATH_MAX]; /* URL of the instance's metadata; "": none is read */
    json_t *state; /* the state in the result of the last run; NULL: this is the first run */
} ProbeContext;

typedef struct Probe {
    const char *name; /* matches [a-z-]+; the argument of sdtraind --probe */
    uint64_t timeout_usec;
    int (*run)(const ProbeContext *context, ProbeResult *ret, Error *err);
} Probe;

extern const Probe probe_gpu, probe_rdma, probe_disk, probe_clock, probe_host, probe_spot;

/* Returns all probes; there are at most PROBES_MAX. */
const Probe *const *probe_list(size_t *ret_n);
const Probe *probe_find(const char *name); /* NULL: no such probe */

/* Adds a finding to a probe's result. At most PROBE_FINDINGS_MAX findings are kept, the worst. */
void probe_find_fault(ProbeResult *result, FaultCode fault, int slot, const char *format, ...)
    _printf_(4, 5);
void probe_result_clear(ProbeResult *result);
void probe_context_clear(ProbeContext *context);

/* The context is sent to the child, and the result back, as JSON. -EBADMSG: the text is not valid. */
int probe_result_format(const ProbeResult *result, char **ret);
int probe_result_parse(const char *text, size_t n_bytes, ProbeResult *ret, Error *err);
int probe_context_format(const ProbeContext *context, char **ret);
int probe_context_parse(const char *text, size_t n_bytes, ProbeContext *ret, Error *err);

/* Reads a number that the last run has stored under key. Returns false if there is none. */
bool probe_recall(const json_t *state, const char *key, double *ret);
