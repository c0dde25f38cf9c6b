/* SPDX-License-Identifier: Apache-2.0 */
/* lost.h - which records of a job are missing, damaged, older than what is known, or of a version that this program
 * does not read. */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"
#include "controller/core/state/text-buffer.h"

/* Returns how an event changes what is known of a record. had: the record's last content is known. older: the
 * event's copy is older than that content. */
Lost lost_by(const Event *ev, bool had, bool older);
/* Writes "worlds/a was deleted". */
void lost_write(Text *t, Lost lost, const char *kind, const char *name);
/* True when a record of the job is of a version that this program does not read: then none of the job's records is
 * written or removed. */
bool lost_to_another_version(const CoreJob *job);
/* True when nothing can be decided about the job: its spec is missing, or this program does not read the version of one
 * of its records. */
bool lost_hides(const CoreJob *job);
/* True when the job's world is not the world that its phase names: another world must follow. */
bool world_is_lost(const CoreJob *job, Failure *ret);
/* True when a record that vanished belonged to an earlier submission, and was removed with that submission. */
bool lost_with_its_job(const CoreJob *job, const char *submission);
/* True when the record is of an earlier world of the same submission, and was put back, for instance from a backup. */
bool lost_is_older_world(const CoreJob *job, const WorldRecord *world);
/* lost_is_foreign() is true when a record of the job is of a version that this program does not read;
 * lost_is_without_spec() is true when the job's spec is missing. If true, both write the reason. */
bool lost_is_foreign(const CoreJob *job, char *ret, size_t size);
bool lost_is_without_spec(const CoreJob *job, char *ret, size_t size);
