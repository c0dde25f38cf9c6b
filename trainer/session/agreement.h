/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.h - a part of session.c: a rank compares itself with the checkpoint that it continues from, and with the
 * other ranks of its world. An error lists the keys that differ, with both values.
 *
 * Ownership: borrows the session.
 * Errors:    as session_open(); -EXDEV: something differs.
 */
#pragma once

#include "trainer/session/session.h"

/* Compares the numerics with those of session->resume. */
int session_check_resumed(const Session *session, Error *err);
/* Compares this rank with rank 0 in everything that must be the same on all ranks; collective. */
int session_agree(Session *session, Error *err);
