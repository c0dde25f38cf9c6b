/* SPDX-License-Identifier: Apache-2.0 */
/* testing-lab.h - a real etcd, and a test that writes the records of the nodes of the cluster "lab".
 *
 * Nodes n1 and n2 have one slot each; job "a" takes one or two of them.
 *
 * Units: none. Threads: main thread only.
 * Ownership: lab_begin() and lab_end() are cmocka's setup and teardown: *state is the Lab.
 * Errors:    none: anything that goes wrong ends the test with a message.
 */
#pragma once

#include "base/json/json.h"
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "cluster/records.h"
#include "etcd/test/testing-etcd.h"

enum { LAB_JOB_BYTES = 400 };

/* Holds what a watch has shown of all keys below /sdtrain/lab/. */
typedef struct Lab {
    sd_event *event;
    TestingEtcd *server;
    Etcd *etcd;
    EtcdWatch *watch;
    json_t *texts;     /* key -> value */
    json_t *revisions; /* key -> mod revision */
    json_t *versions;  /* key -> version */
} Lab;

/* The file of job "a", which has 100 steps; the file begins with the job's name. */
extern const char lab_job[LAB_JOB_BYTES];

int lab_begin(void **state);
int lab_end(void **state);

/* ---- the store ---- */

/* These return NULL or 0 if there is no such record. */
const char *text_at(Lab *lab, KeyKind kind, const char *name);
int64_t revision_at(Lab *lab, KeyKind kind, const char *name);
int64_t version_at(Lab *lab, KeyKind kind, const char *name);
/* value NULL: removes the key. */
void put_text(Lab *lab, const char *key, const char *value, int64_t lease);

#define PUT(lab, prefix, record, key)                                                              \
    do {                                                                                           \
        _cleanup_free_ char *_text = NULL;                                                         \
        _text = prefix##_encode(record, NULL);                                                     \
        put_text(lab, key, _text, 0);                                                              \
    } while (0)

PhaseRecord phase_of(Lab *lab, const char *job);
bool is_in(Lab *lab, const char *job, JobPhase phase, int64_t generation, bool go);
/* Runs the loop until the job is in that phase. */
void wait_for(Lab *lab, const char *job, JobPhase phase, int64_t generation, bool go);
/* Returns whether the record of the first controller in the election contains the name. */
bool leads(Lab *lab, const char *name);
int count_candidates(Lab *lab);

/* ---- the node side ---- */

void put_node(Lab *lab, const char *name, uint64_t incarnation);
void put_job(Lab *lab, const char *name, const char *text, int min, int max);
/* Writes the report of the one rank that a node of these tests runs. */
void put_rank(Lab *lab, int64_t generation, const char *node, RankReport report, int64_t first_step,
              bool old_is_dead);
void commit(Lab *lab, int64_t step, int64_t generation);
/* Simulates the world of that generation on both nodes, from its record to its first step. */
void train(Lab *lab, int64_t generation, int64_t first_step);
/* Puts two nodes and a job, and simulates generation 1 up to a commit of step 10. */
void bring_to_running(Lab *lab);
