/* SPDX-License-Identifier: Apache-2.0 */
/* trace-runner.h - a store that stands in for etcd around the core, for tests: puts become events,
 * decisions are checked against their guards, applied and shown to the core again.
 *
 * Ownership: trace_new() gives the caller a TraceRunner; it owns the Cluster and every record.
 * Units:     *_usec count from TRACE_EPOCH_USEC, realtime unless the clock is set. The core's boottime is another
 *            count.
 * Errors:    none: what cannot be is an assertion.
 * Threads:   one.
 */
#pragma once

#include "base/cleanup.h"
#include "cluster/keys.h"
#include "controller/core/cluster.h"

#define TRACE_EPOCH_USEC (UINT64_C(1000000) * USEC_PER_SEC)

typedef struct TraceRunner TraceRunner;

/* A record as the store holds it; text fields of the key are set for its kind. */
typedef struct TraceEntry {
    EventKind kind;
    char name[CLUSTER_NAME_BYTES], node[NODE_NAME_MAX + 1];
    int64_t generation, mod, lease;
    RecordHealth health; /* not readable: the core is not shown the record */
    void *record; /* owned; NULL: free entry. A WorldRecord's runs and RanksRecord's ranks too */
} TraceEntry;

/* Called for each decision before it is applied. */
typedef void (*TraceWatcher)(TraceRunner *runner, const Decision *decision, void *userdata);

extern const ClusterLimits trace_limits_default;

int trace_new(const ClusterConfig *config, const ClusterLimits *limits, TraceWatcher watcher,
              void *userdata, TraceRunner **ret);
TraceRunner *trace_free(TraceRunner *runner);
DEFINE_CLEANUP(TraceRunner, trace_free)

uint64_t trace_now(const TraceRunner *runner);
/* Sets how far realtime is ahead of boottime; 0 at first. */
void trace_set_clock(TraceRunner *runner, int64_t ahead_usec);
/* Lets time pass, serving the core's wake-ups on the way. */
void trace_advance(TraceRunner *runner, uint64_t until_usec);
const Cluster *trace_cluster(const TraceRunner *runner);
Cluster *
trace_cluster_for_survey(TraceRunner *runner); /* for functions that use the Cluster's Scratch */

/* Sets the outcome of the next decision; later ones are DONE again. applied matters for UNKNOWN. */
void trace_set_outcome(TraceRunner *runner, Outcome outcome, bool applied);
void trace_lead(TraceRunner *runner, int64_t term); /* 0: deposed */
/* Other settings from now on, as a reload brings them. */
void trace_configure(TraceRunner *runner, const ClusterConfig *config);
/* A fresh core with these settings that learns everything from the store, as a follower that takes over. */
void trace_take_over(TraceRunner *runner, const ClusterConfig *config, const ClusterLimits *limits,
                     int64_t term);

/* The next record hangs on that lease; 0: the core is not told of any. */
void trace_hang_on(TraceRunner *runner, int64_t lease);
/* Copies the record (NULL removes it) and tells the core; more: decide nothing yet. */
void trace_put(TraceRunner *runner, EventKind kind, const char *name, int64_t generation,
               const char *node, const void *record, bool more);
/* Does what somebody may do to specs/<name>, desired, worlds, phases, checkpoints, progress, cordons, nodes, incidents,
 * alerts, requests, or ranks/<job>/<generation>/<node>: lose (the record is deleted), spoil (it does not decode any
 * more), newer (it is of another version), backup (a copy is kept), restore (the copy is put back), again (a read shows
 * the record as it is). Returns false if there is no such kind. */
bool trace_harm(TraceRunner *runner, const char *verb, const char *kind, const char *name);
TraceEntry *trace_find(TraceRunner *runner, EventKind kind, const char *name, int64_t generation,
                       const char *node);
size_t trace_entries(TraceRunner *runner, TraceEntry **ret);
void trace_tick(TraceRunner *runner);
/* A tick that comes late: the leader's machine stood still before. */
void trace_stall(TraceRunner *runner);
/* Keeps the next decision under way until trace_release(), which carries it out if its guards still hold. False: there
 * was none to keep. */
void trace_hold(TraceRunner *runner);
bool trace_release(TraceRunner *runner);
/* The outcome of the next decision comes before its records, which the core learns by trace_see(). */
void trace_outrun(TraceRunner *runner);
void trace_see(TraceRunner *runner);
