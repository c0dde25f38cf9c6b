/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - a part of session.c: the device of a rank, and the plans that it computes with.
 *
 * A checkpoint's plans take precedence over all others, since the checkpoint's bits come from them. There is one
 * exception: an operator who starts a new job from a manifest (job start --resume) may name another set in train.plans,
 * to continue after an algorithm of the old set has made a NaN. The history then changes at that step, which the log
 * and the manifests record.
 *
 * Ownership: the session owns the device.
 * Errors:    as session_open().
 */
#pragma once

#include "trainer/session/session.h"

/* Opens the device, and gives it its plans before the device chooses plans by itself. */
int session_open_device(Session *session, const SessionAssignment *assignment,
                        const NetworkShape *shape, Error *err);
