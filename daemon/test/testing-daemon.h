/* SPDX-License-Identifier: Apache-2.0 */
/* testing-daemon.h - a real etcd and real sdtraind processes; the test acts as the leader.
 *
 * A watch follows all keys under the cluster's prefix. lab_wait() runs the loop until a condition on these keys
 * holds, or ends the test at the deadline.
 *
 * Units: *_msec milliseconds. Threads: main thread only.
 * Ownership: lab_start() gives the caller a Lab; lab_stop() ends all daemons and etcd.
 * Errors:    none: a failure ends the test with a message and the daemons' logs.
 */
#pragma once

#include "base/test/testing.h"
#include "cluster/keys.h"
#include "cluster/records.h"
#include "etcd/test/testing-etcd.h"

#include <sys/types.h>

enum { LAB_NODES_MAX = 4, LAB_WAIT_MSEC = 60000 };

typedef struct Lab Lab;

typedef struct LabNode {
    char name[32], folder[300], run_dir[340], log_dir[340];
    pid_t pid; /* 0: the process has ended */
    int pidfd;
    int status; /* how the daemon ended: exit code, or -signal */
} LabNode;

Lab *lab_start(void);
Lab *lab_stop(Lab *lab);
DEFINE_CLEANUP(Lab, lab_stop)
TestingEtcd *lab_etcd(Lab *lab);
const char *lab_folder(const Lab *lab);

/* Starts sdtraind as node<i>, and returns when its record is in etcd. settings: the inside of a JSON object
 * ("\"slots\": 2"). fault: the value of SDTRAIN_FAULT (NULL: unset). The lease is 10 s, so that it survives a
 * machine that stands still for two seconds; a test that needs a shorter lease sets lease_sec. */
LabNode *lab_start_node(Lab *lab, int i, const char *settings, const char *fault);
/* Like lab_start_node(), but does not wait: for daemons that refuse to start. */
LabNode *lab_spawn_node(Lab *lab, int i, const char *settings, const char *fault);
/* Waits until the daemon has ended, and returns its status. */
int lab_wait_end(Lab *lab, LabNode *node);
/* Returns whether the daemon's log contains that text. */
bool lab_log_has(const LabNode *node, const char *text);

typedef bool (*LabCondition)(Lab *lab, const void *userdata);
void lab_wait_for(Lab *lab, LabCondition condition, const void *userdata, const char *what,
                  int msec);
#define lab_wait(lab, condition, ...)                                                              \
    lab_wait_for(lab, condition, __VA_ARGS__, #condition, LAB_WAIT_MSEC)

/* ---- the leader ---- */

typedef struct LabRun {
    int node;
    uint64_t slots;
} LabRun;

/* Every job has the same spec; the fake trainer does not read it. */
void lab_put_spec(Lab *lab, const char *job);
int64_t lab_put_world(Lab *lab, const char *job, int64_t generation, const LabRun *runs,
                      size_t n_runs);
/* Sets the submission that specs, worlds and phases get from now on; "" at first. */
void lab_submit(Lab *lab, const char *submission);
void lab_put_phase(Lab *lab, const char *job, int64_t generation, JobPhase phase, bool go,
                   bool leave);
/* lab_put() and lab_delete() return the revision of the change. */
int64_t lab_put(Lab *lab, const char *key, const char *value);
int64_t lab_delete(Lab *lab, const char *key);

/* ---- records in etcd, as the watch has shown them ---- */

/* Returns the value of the key; NULL: there is no such key. */
const char *lab_value(Lab *lab, const char *key);
/* Returns false if there is no record, or if it cannot be decoded. */
bool lab_node_record(Lab *lab, int node, NodeRecord *ret);
/* Returns false if there is no record. ret->ranks is valid until the next call. */
bool lab_ranks(Lab *lab, const char *job, int64_t generation, int node, RanksRecord *ret);
bool lab_checkpoints(Lab *lab, const char *job, CheckpointsRecord *ret);
int64_t lab_lease_of(Lab *lab, const char *key);
int64_t lab_revision_of(Lab *lab, const char *key);

/* ---- conditions for lab_wait ---- */

typedef struct LabWhere {
    const char *job;
    int64_t generation;
    int node;
    RankState state; /* only for lab_all_in_state() */
} LabWhere;

bool lab_all_in_state(Lab *lab, const void *where);
bool lab_has_first_step(Lab *lab, const void *where);
bool lab_is_finished(Lab *lab, const void *where);
bool lab_has_left(Lab *lab, const void *where);
bool lab_is_killed(Lab *lab, const void *where); /* the report's killed_usec is set */

typedef struct LabCommits {
    const char *job;
    size_t n;
} LabCommits;

bool lab_has_commits(Lab *lab, const void *commits); /* at least n commits */

/* ---- processes ---- */

/* Returns the daemon's VmRSS. */
int64_t lab_resident_bytes(const LabNode *node);
/* Opens pidfds of at most max processes that carry the mark of that node, and returns their number. */
size_t lab_marked(const LabNode *node, int *ret_pidfds, size_t max);
/* Waits until all these processes have ended, and closes the pidfds. Returns false if some still live after msec. */
bool lab_all_end(int *pidfds, size_t n, int msec);
