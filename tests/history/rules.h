/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h - rules that records must keep, whichever program wrote them: the invariants
 * (docs/internals/architecture.md) that can be checked from the records only. The simulator's checkers and the checker
 * of a real etcd's history (history.h) both use these rules.
 *
 * Each rule compares records before and after one transaction, and keeps no state.
 *
 * Ownership: all records are the caller's; nothing is kept.
 * Units:     steps, generations, revisions; *_usec as in the records.
 * Errors:    false: the rule is broken, and *ret says how. Otherwise *ret is untouched.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

typedef struct Breach {
    const char *invariant; /* "I2", or a word for a rule that is not in the list of invariants */
    char text[400];
} Breach;

/* Fills *ret and returns false. */
bool breach_say(Breach *ret, const char *invariant, const char *format, ...) _printf_(3, 4);

/* ---- failures ---- */

/* I7: a generation that ended without progress counts as a failure of the job, except if another
 * rule bounds its cause. Another exception: a commit is struck out while another commit still
 * counts. incident: the new incident that ends the world. */
bool rule_failure_is_counted(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                             const IncidentRecord *incident, const CheckpointsRecord *before,
                             const CheckpointsRecord *after, Breach *ret);
/* Returns true if a commit that counted was struck out, and another commit still counts. before or
 * after is NULL if there is no record. */
bool commits_go_back(const CheckpointsRecord *before, const CheckpointsRecord *after);

/* ---- worlds ---- */

/* I2: a new world has a higher generation than `newest`, which was the job's highest generation
 * before. */
bool rule_world_follows(const char *job, const WorldRecord *world, int64_t newest, Breach *ret);
/* I2: a world has a phase of its generation. phase: the phase after the transaction; NULL: none. */
bool rule_world_has_phase(const char *job, const WorldRecord *world, const PhaseRecord *phase,
                          Breach *ret);
/* I4: a world resumes from `latest`, the newest commit that counts after the transaction; NULL: no commit counts. */
bool rule_world_resumes(const char *job, const WorldRecord *world, const CheckpointCommit *latest,
                        Breach *ret);
/* I5: the node's cordon does not exclude the machine with the mode `least` or a stricter mode.
 * cordon NULL: the node has no cordon. */
bool rule_run_is_open(const char *job, const WorldRecord *world, const char *node,
                      const char *machine_id, const CordonRecord *cordon, CordonMode least,
                      Breach *ret);
/* I6: a world has as many slots as ranks, and no slot twice. */
bool rule_world_fits(const char *job, const WorldRecord *world, Breach *ret);
/* I6: two worlds have no slot in common. theirs: the world of the job `other`. */
bool rule_worlds_are_apart(const char *job, const WorldRecord *world, const char *other,
                           const WorldRecord *theirs, Breach *ret);
/* I10: a recovery has an incident. incident: the record under world->incident after the
 * transaction; NULL: none. */
bool rule_recovery_has_incident(const char *job, const WorldRecord *world, const PhaseRecord *phase,
                                const IncidentRecord *incident, Breach *ret);

/* ---- phases ---- */

/* I2: a phase follows the old phase. old: the record before the transaction; NULL: there was no
 * record. */
bool rule_phase_follows(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                        Breach *ret);
/* Within one submission, a newer copy of the phase has a higher serial. */
bool rule_phase_is_newer(const char *job, int64_t serial, const PhaseRecord *phase, Breach *ret);
/* A phase that has a submission keeps it. */
bool rule_phase_keeps_submission(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                                 Breach *ret);
/* Only a desired state (word) that is newer than the job's end takes a job out of stopped or failed. */
bool rule_job_starts_again(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                           int64_t word_revision, Breach *ret);

/* ---- checkpoints and progress ---- */

/* I3: a node commits only for the present world. world NULL: there is no present world. */
bool rule_commit_is_of_world(const char *job, const CheckpointCommit *commit,
                             const WorldRecord *world, Breach *ret);
/* I4: a commit is newer than `step`, the newest committed step that counts; negative: no step
 * counts. */
bool rule_commit_follows(const char *job, const CheckpointCommit *commit, int64_t step,
                         Breach *ret);
/* I4: the newest commit stays the newest, whether it is struck out or not. old NULL: there was no
 * record. */
bool rule_commits_stay(const char *job, const CheckpointsRecord *old,
                       const CheckpointsRecord *record, Breach *ret);
/* I3: a progress record is of the present world. */
bool rule_progress_is_of_world(const char *job, const ProgressRecord *progress,
                               const WorldRecord *world, Breach *ret);

/* ---- incidents and cordons ---- */

/* I10: a resolved incident stays resolved, and its cause does not change. old NULL: the incident is
 * new. */
bool rule_incident_follows(const char *id, const IncidentRecord *old,
                           const IncidentRecord *incident, Breach *ret);
/* A new incident that is a node's fault adds the prescribed strike or quarantine to the node's
 * cordon. cordon: the cordon after the transaction. */
bool rule_incident_is_blamed(const IncidentRecord *incident, const CordonRecord *cordon,
                             bool is_program, Breach *ret);
/* One transaction adds at most one strike to a machine, whichever submission it is of. before NULL:
 * no record existed. */
bool rule_strikes_grow_by_one(const char *node, const CordonRecord *before,
                              const CordonRecord *after, Breach *ret);
/* A machine is not quarantined for the deaths of only one submission. incident: the incident that
 * the same transaction writes. */
bool rule_quarantine_is_of_two(const IncidentRecord *incident, const CordonRecord *before,
                               const CordonRecord *after, Breach *ret);
/* A submission does not refuse two machines at the same time because trainers died in the same way
 * on both: in that case the job is to blame. */
bool rule_job_is_to_blame(const CordonRecord *one, const CordonRecord *other, Breach *ret);
