/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - a part of session.c: the device of a rank, and the plans by which it computes.
 *
 * A checkpoint's plans go before all others, since its bits come from them. There is one exception: an operator who
 * starts a new job from a manifest (job start --resume) may name another set in train.plans, as the way on when an
 * algorithm of the old set has made a NaN. The history then changes at that step, which the log and the manifests say.
 *
 * Ownership: the session owns the device.
 * Units:     none.
 * Errors:    as session_open().
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/session/session.h"

/* Opens the device, and tells it the plans that it computes by before it chooses any. */
int session_open_device(Session *session, const SessionAssignment *assignment,
                        const NetworkShape *shape, Error *err);
