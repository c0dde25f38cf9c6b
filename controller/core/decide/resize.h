/* SPDX-License-Identifier: Apache-2.0 */
/* resize.h - a running job's size: requests for another one, growth, and what either waits for.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

enum { GROWTHS_IN_VAIN_MAX = 6 }; /* so often the pause between two growths doubles */

/* Notes that what is wanted was put back as it was, so that the next leader takes it for no new request. */
bool decide_old_request(const Cluster *c, const CoreJob *job, Decision *d);
/* Asks the world to leave for one of another size. */
bool decide_resize(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
/* Before a world's first step: one of the size that was asked for follows at once. */
bool decide_resize_unsaved(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
/* Writes into the phase what a job that was given a size, and has another, waits for. */
bool decide_wait(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
