/* trace-runner.h - a store that stands in for etcd around the core, for tests: puts become events,
 * decisions are checked against their guards, applied and shown to the core again.
 *
 * Ownership: replay_new() gives the caller a Replay; it owns the Cluster and every record.
 * Units:     *_usec count from REPLAY_EPOCH_USEC, boottime and, unless it is set, realtime.
 * Errors:    none: what cannot be is an assertion.
 * Threads:   one.
 */
#pragma once

#include "base/cleanup.h"
#include "cluster/keys.h"
#include "controller/core/cluster.h"

#define REPLAY_EPOCH_USEC (UINT64_C(1000000) * USEC_PER_SEC)

typedef struct Replay Replay;

/* A record as the store holds it; text fields of the key are set for its kind. */
typedef struct ReplayEntry {
    EventKind kind;
    char name[CLUSTER_NAME_BYTES], node[NODE_NAME_MAX + 1];
    int64_t generation, mod;
    RecordHealth health; /* not readable: the core is not shown the record */
    void *record; /* owned; NULL: free entry. A WorldRecord's runs and RanksRecord's ranks too */
} ReplayEntry;

/* Called for each decision before it is applied. */
typedef void (*ReplayWatcher)(Replay *replay, const Decision *decision, void *userdata);

int replay_new(const ClusterConfig *config, ReplayWatcher watcher, void *userdata, Replay **ret);
Replay *replay_free(Replay *replay);
DEFINE_CLEANUP(Replay, replay_free)

uint64_t replay_now(const Replay *replay);
/* Realtime is so far ahead of boottime; 0 at first. */
void replay_set_clock(Replay *replay, int64_t ahead_usec);
/* Lets time pass, serving the core's wake-ups on the way. */
void replay_advance(Replay *replay, uint64_t until_usec);
const Cluster *replay_cluster(const Replay *replay);
Cluster *replay_cluster_for_survey(Replay *replay); /* whose scratch is used */

/* What becomes of the next decision; DONE again afterwards. applied matters for UNKNOWN. */
void replay_set_outcome(Replay *replay, Outcome outcome, bool applied);
void replay_lead(Replay *replay, int64_t term); /* 0: deposed */
/* Other settings from now on, as a reload brings them. */
void replay_configure(Replay *replay, const ClusterConfig *config);
/* A fresh core that learns everything from the store, as a follower that takes over. */
void replay_take_over(Replay *replay, int64_t term);

/* Copies the record (NULL removes it) and tells the core; more: decide nothing yet. */
void replay_put(Replay *replay, EventKind kind, const char *name, int64_t generation,
                const char *node, const void *record, bool more);
/* What somebody does to specs/<name>, desired, worlds, phases, checkpoints or progress: lose (it is deleted),
 * spoil (it does not decode any more), newer (it is of another version), backup (a copy is kept),
 * restore (the copy is put back). False: no such kind. */
bool replay_harm(Replay *replay, const char *verb, const char *kind, const char *name);
ReplayEntry *replay_find(Replay *replay, EventKind kind, const char *name, int64_t generation,
                         const char *node);
size_t replay_entries(Replay *replay, ReplayEntry **ret);
void replay_tick(Replay *replay);
