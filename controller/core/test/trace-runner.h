/* SPDX-License-Identifier: Apache-2.0 */
/* trace-runner.h - a store that stands in for etcd around the core, for tests: puts become events,
 * decisions are checked against their guards, applied and shown to the core again.
 *
 * Ownership: trace_new() gives the caller a TraceRunner; it owns the Cluster and every record.
 * Units:     *_usec count from TRACE_EPOCH_USEC, realtime unless the clock is set. The core's boottime counts from
 *            another moment.
 * Errors:    none: a state that cannot occur fails an assertion.
 * Threads:   one.
 */
#pragma once

#include "base/cleanup.h"
#include "cluster/keys.h"
#include "controller/core/cluster.h"

#define TRACE_EPOCH_USEC (UINT64_C(1000000) * USEC_PER_SEC)

typedef struct TraceRunner TraceRunner;

/* A record as the store holds it. If its key has no node or generation, that member is empty or 0. */
typedef struct TraceEntry {
    EventKind kind;
    char name[CLUSTER_NAME_BYTES], node[NODE_NAME_MAX + 1];
    int64_t generation, mod, lease;
    RecordHealth health; /* unless it is RECORD_READABLE, the core is not shown the record */
    void *record; /* owned, with a WorldRecord's runs or RanksRecord's ranks; NULL: a free entry */
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
/* Lets time pass, and wakes the core at the times that it requested. */
void trace_advance(TraceRunner *runner, uint64_t until_usec);
const Cluster *trace_cluster(const TraceRunner *runner);
Cluster *
trace_cluster_for_survey(TraceRunner *runner); /* for functions that use the Cluster's Scratch */

/* Sets the outcome of the next decision; later outcomes are DONE again. applied: for UNKNOWN, whether the decision
 * is applied. */
void trace_set_outcome(TraceRunner *runner, Outcome outcome, bool applied);
void trace_lead(TraceRunner *runner, int64_t term); /* term 0: the core is deposed */
/* Applies other settings from now on, as a reload does. */
void trace_configure(TraceRunner *runner, const ClusterConfig *config);
/* Replaces the core by a fresh one with these settings, which reads the whole store and then leads, as a follower
 * that takes over. */
void trace_take_over(TraceRunner *runner, const ClusterConfig *config, const ClusterLimits *limits,
                     int64_t term);

/* Sets the lease of the next record; 0: the core learns of no lease. */
void trace_hang_on(TraceRunner *runner, int64_t lease);
/* Stores a copy of the record (NULL removes it) and shows it to the core; more: the core decides nothing yet. */
void trace_put(TraceRunner *runner, EventKind kind, const char *name, int64_t generation,
               const char *node, const void *record, bool more);
/* Does to a record what an operator or a fault may do. The record is specs/<name>, or likewise of desired, worlds,
 * phases, checkpoints, progress, cordons, nodes, incidents, alerts or requests, or it is
 * ranks/<job>/<generation>/<node>. The verbs: lose (the record is deleted), spoil (it no longer decodes), newer (it
 * is of another version), backup (a copy is kept), restore (the copy is put back), again (the unchanged record is
 * read again). Returns false if there is no such kind. */
bool trace_harm(TraceRunner *runner, const char *verb, const char *kind, const char *name);
TraceEntry *trace_find(TraceRunner *runner, EventKind kind, const char *name, int64_t generation,
                       const char *node);
size_t trace_entries(TraceRunner *runner, TraceEntry **ret);
void trace_tick(TraceRunner *runner);
/* Feeds a tick that comes late, as after a stall of the leader's machine. */
void trace_stall(TraceRunner *runner);
/* trace_hold() delays the next decision until trace_release(), which executes it if its guards are still true.
 * trace_release() returns false if no decision was delayed. */
void trace_hold(TraceRunner *runner);
bool trace_release(TraceRunner *runner);
/* trace_outrun() lets the outcome of the next decision arrive before its records; trace_see() then shows the core
 * the records. */
void trace_outrun(TraceRunner *runner);
void trace_see(TraceRunner *runner);
