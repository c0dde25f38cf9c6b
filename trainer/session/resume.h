/* SPDX-License-Identifier: Apache-2.0 */
/* resume.h - a part of session.c: the checkpoint that a rank goes on from, assigned or looked for, and the folder that
 * it lies in.
 *
 * Ownership: the session owns what it opens.
 * Units:     none.
 * Errors:    as session_open().
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/session/session.h"

/* Opens checkpoint.uri, and the manifest that was assigned. */
int session_open_resume(Session *session, const SessionAssignment *assignment, Error *err);
/* Without an assigned one: the newest own checkpoint that verifies. Needs the session's facts. */
int session_find_resume(Session *session, Error *err);
/* A checkpoint that was looked for and does not verify leads to the one before it. Returns r where it was not looked
 * for, or is not what is wrong. */
int session_pass_over(Session *session, int r, Error *err);
/* Fills the state from the checkpoint, or as the job begins. */
int session_restore(Session *session, Error *err);
/* A run without a cluster holds its folder, which is made if asked for. */
int session_lock_folder(Session *session, bool make, Error *err);
