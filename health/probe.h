/* probe.h - one check of this machine's health; the interface that every probe implements.
 *
 * sdtraind runs each probe in a child process of its own (sdtraind --probe NAME), because what a
 * probe touches may hang: a probe that does not answer in its time is killed, and that is a finding
 * too. A probe therefore keeps nothing between two runs; what must be remembered is the verdict's.
 *
 * Ownership: probe_run fills a ProbeResult, a value; probes are constants.
 * Units:     *_usec microseconds, *_bytes bytes.
 * Errors:    a probe that cannot find out returns -errno with text; what it found wrong is not an
 *            error but a finding.
 * Threads:   its process has one.
 */
#pragma once

#include "base/error.h"

enum { PROBE_FINDINGS_MAX = 16, PROBE_TEXT_MAX = 192, PROBE_PATHS_MAX = 4, PROBES_MAX = 16 };

/* In rising order; what each means to the node is the verdict's to say. */
typedef enum HealthLevel {
    HEALTH_OK,
    HEALTH_SUSPECT, /* tell people; give it no more work than it has */
    HEALTH_DRAIN,   /* take its work away at the next checkpoint */
    HEALTH_ISOLATE, /* its results can't be trusted: now */
    HEALTH_LEVELS,
} HealthLevel;

typedef struct ProbeFinding {
    HealthLevel level;
    int slot; /* -1: the whole node */
    char text[PROBE_TEXT_MAX];
} ProbeFinding;

typedef struct ProbeResult {
    ProbeFinding findings[PROBE_FINDINGS_MAX]; /* none: healthy */
    size_t n_findings;
} ProbeResult;

typedef struct ProbeContext {           /* what probes may want to know of the configuration */
    const char *paths[PROBE_PATHS_MAX]; /* folders that must have room */
    size_t n_paths;
    int64_t disk_min_bytes;
} ProbeContext;

typedef struct Probe {
    const char *name; /* [a-z-]+, as sdtraind --probe takes it */
    uint64_t timeout_usec;
    int (*run)(const ProbeContext *context, ProbeResult *ret, Error *err);
} Probe;

extern const Probe probe_disk_space, probe_clock;

/* All that are built in; n is at most PROBES_MAX. */
const Probe *const *probe_list(size_t *ret_n);
const Probe *probe_find(const char *name); /* NULL: there is none */

/* For probes: one finding more; beyond PROBE_FINDINGS_MAX the worst are kept. */
void probe_find_fault(ProbeResult *result, HealthLevel level, int slot, const char *format, ...)
    _printf_(4, 5);
const char *health_level_name(HealthLevel level);

/* One line of JSON, and back; how a result travels from the child. -EBADMSG: not a result. */
int probe_result_format(const ProbeResult *result, char **ret);
int probe_result_parse(const char *text, size_t n_bytes, ProbeResult *ret, Error *err);
