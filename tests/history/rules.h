/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h - what records must be, whoever wrote them: the invariants (docs/internals/architecture.md) that records show
 * by themselves. The simulator's checkers and the checker of a real etcd's history (history.h) both use these rules.
 *
 * Each rule looks at records as they are before and after one transaction, and keeps nothing.
 *
 * Ownership: all records are the caller's; nothing is kept.
 * Units:     steps, generations, revisions; *_usec as in the records.
 * Errors:    false: the rule is broken, and *ret says how. Otherwise *ret is untouched.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

typedef struct Breach {
    const char *invariant; /* "I2", or a word where the list of invariants has none */
    char text[400];
} Breach;

/* Fills *ret and returns false. */
bool breach_say(Breach *ret, const char *invariant, const char *format, ...) _printf_(3, 4);

/* ---- failures ---- */

/* I7: a generation that ended without progress is one of the K, except for causes that another rule bounds. One of
 * these is a commit that is struck out, which is free while another one counts. incident: the new one that ends the
 * world. */
bool rule_failure_is_counted(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                             const IncidentRecord *incident, const CheckpointsRecord *before,
                             const CheckpointsRecord *after, Breach *ret);
/* True when a commit that counted is struck out, and another one counts. NULL: there is no such record. */
bool commits_go_back(const CheckpointsRecord *before, const CheckpointsRecord *after);

/* ---- worlds ---- */

/* I2: newest is the highest generation that the job had. */
bool rule_world_follows(const char *job, const WorldRecord *world, int64_t newest, Breach *ret);
/* I2: phase is the one of the same transaction, or the one there is; NULL: none. */
bool rule_world_has_phase(const char *job, const WorldRecord *world, const PhaseRecord *phase,
                          Breach *ret);
/* I4: latest is the newest commit that counts after the transaction; NULL: none. */
bool rule_world_resumes(const char *job, const WorldRecord *world, const CheckpointCommit *latest,
                        Breach *ret);
/* I5: the cordon of that node does not hold the machine back by `least` or more. cordon NULL: there is none. */
bool rule_run_is_open(const char *job, const WorldRecord *world, const char *node,
                      const char *machine_id, const CordonRecord *cordon, CordonMode least,
                      Breach *ret);
/* I6: as many slots as ranks, and no slot twice. */
bool rule_world_fits(const char *job, const WorldRecord *world, Breach *ret);
/* I6: theirs is another job's world that holds its slots. */
bool rule_worlds_are_apart(const char *job, const WorldRecord *world, const char *other,
                           const WorldRecord *theirs, Breach *ret);
/* I10: incident is the record under world->incident after the transaction; NULL: none. */
bool rule_recovery_has_incident(const char *job, const WorldRecord *world, const PhaseRecord *phase,
                                const IncidentRecord *incident, Breach *ret);

/* ---- phases ---- */

/* I2: old is what the record was; NULL: there was none. */
bool rule_phase_follows(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                        Breach *ret);
/* Within one submission, a newer copy of the phase has a higher serial. */
bool rule_phase_is_newer(const char *job, int64_t serial, const PhaseRecord *phase, Breach *ret);
/* A phase that says its submission goes on saying it. */
bool rule_phase_keeps_submission(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                                 Breach *ret);
/* Nothing but a word newer than the end takes a job out of stopped or failed. */
bool rule_job_starts_again(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                           int64_t word_revision, Breach *ret);

/* ---- checkpoints and progress ---- */

/* I3: a node commits for the present world; NULL: there is none. */
bool rule_commit_is_of_world(const char *job, const CheckpointCommit *commit,
                             const WorldRecord *world, Breach *ret);
/* I4: step is the newest that is committed and counts; negative: none. */
bool rule_commit_follows(const char *job, const CheckpointCommit *commit, int64_t step,
                         Breach *ret);
/* I4: the newest commit stays the newest, struck out or not. old NULL: there was no record. */
bool rule_commits_stay(const char *job, const CheckpointsRecord *old,
                       const CheckpointsRecord *record, Breach *ret);
/* I3: progress is told of the present world. */
bool rule_progress_is_of_world(const char *job, const ProgressRecord *progress,
                               const WorldRecord *world, Breach *ret);

/* ---- incidents and cordons ---- */

/* I10: what is resolved stays so, and one cause stays the cause. old NULL: the incident is new. */
bool rule_incident_follows(const char *id, const IncidentRecord *old,
                           const IncidentRecord *incident, Breach *ret);
/* A new incident of a node's fault costs the node what it must; cordon as after the transaction. */
bool rule_incident_is_blamed(const IncidentRecord *incident, const CordonRecord *cordon,
                             Breach *ret);
/* One strike at a time against a machine, of whichever submission. before NULL: there was no record. */
bool rule_strikes_grow_by_one(const char *node, const CordonRecord *before,
                              const CordonRecord *after, Breach *ret);
/* A machine is not quarantined for deaths of only one submission. incident: of the same transaction. */
bool rule_quarantine_is_of_two(const IncidentRecord *incident, const CordonRecord *before,
                               const CordonRecord *after, Breach *ret);
/* No two machines are refused by a submission at the same time for one way to die: that is the job's own. */
bool rule_job_is_to_blame(const CordonRecord *one, const CordonRecord *other, Breach *ret);
