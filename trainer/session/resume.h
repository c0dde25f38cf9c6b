/* SPDX-License-Identifier: Apache-2.0 */
/* resume.h - a part of session.c: finds the checkpoint that a rank continues from (assigned, or searched for), restores
 * the checkpoint, and locks the folder.
 *
 * Ownership: the session owns what it opens.
 * Errors:    as session_open().
 */
#pragma once

#include "trainer/session/session.h"

/* Opens checkpoint.uri and the assigned manifest. */
int session_open_resume(Session *session, const SessionAssignment *assignment, Error *err);
/* If no manifest is assigned, finds the newest own checkpoint that verifies. Needs the session's facts. */
int session_find_resume(Session *session, Error *err);
/* If a checkpoint that was searched for does not verify, continues with the checkpoint before it. Returns r if the
 * checkpoint was not searched for, or is not the cause. */
int session_pass_over(Session *session, int r, Error *err);
/* Fills the state from the checkpoint or, without one, as the job begins. */
int session_restore(Session *session, Error *err);
/* Locks the folder of a run without a cluster. make: make the folder if it is missing. */
int session_lock_folder(Session *session, bool make, Error *err);
