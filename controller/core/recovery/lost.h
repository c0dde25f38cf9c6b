/* SPDX-License-Identifier: Apache-2.0 */
/* lost.h - records that vanish, are damaged, or come back as they once were.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"
#include "controller/core/recovery/failure.h"
#include "controller/core/text.h"

/* Says what an event makes of a record. had: its last content is known. older: the event's copy is older than
 * that. */
Lost lost_by(const Event *ev, bool had, bool older);
/* Says "worlds/a was deleted". */
void lost_say(Text *t, Lost lost, const char *kind, const char *name);
/* Writes the incident about lost records. over: it is resolved as it is opened. */
void lost_incident(const Cluster *c, const CoreJob *job, const char *evidence, bool over,
                   Decision *d);
/* Returns the job's open incident about lost records; NULL: there is none. */
const Incident *lost_find_incident(const Cluster *c, const CoreJob *job);
/* Puts lost records back, or tells what is missing and what to do. */
bool decide_lost(Cluster *c, Scratch *s, CoreJob *job, Decision *d);
/* True when a record of the job is of a version that this program does not read: none of its records is written or
 * removed. */
bool lost_to_another_version(const CoreJob *job);
/* True when nothing can be decided about the job: its spec is missing, or a record is of another version. */
bool lost_hides(const CoreJob *job);
/* True when the job's world is not the one that its phase speaks of: another one must follow. */
bool world_is_lost(const CoreJob *job, Failure *ret);

/* Forgets the records that are not there, and the checkpoints unless they are of that submission: the job is gone,
 * or another one has its name. */
void lost_forget(CoreJob *job, const char *submission);
/* True when a record that vanished was of an earlier submission, and was removed with it. */
bool lost_with_its_job(const CoreJob *job, const char *submission);
/* True when the world is an earlier one of the same submission, put back by somebody. */
bool lost_is_older_world(const CoreJob *job, const WorldRecord *world);
/* Take in an event that was stamped already. */
void lost_learn_spec(const Cluster *c, CoreJob *job, const Event *ev);
void lost_learn_desired(CoreJob *job, const Event *ev);
void lost_learn_phase(const Cluster *c, CoreJob *job, const Event *ev);
/* Takes in what a node tells of the job after etcd was restored from a snapshot. */
void lost_learn_runs(CoreJob *job, const NodeRecord *node);
