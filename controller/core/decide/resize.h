/* SPDX-License-Identifier: Apache-2.0 */
/* resize.h - a running job's size: requests for another size, growth, and the reason for a wait. */
#pragma once

#include "controller/core/state/state.h"

enum { GROWTHS_IN_VAIN_MAX = 6 }; /* how many times the pause between two growths may double */

/* Notes that desired/<job> was put back unchanged, so that the next leader does not take it for a new request. */
bool decide_old_request(const Cluster *c, const CoreJob *job, Decision *d);
/* Asks the world to leave, so that a world of another size follows. */
bool decide_resize(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
/* Before a world's first step: replaces the world at once by a world of the requested size. */
bool decide_resize_unsaved(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
/* Writes into the phase what a job waits for if it does not have the requested size. */
bool decide_wait(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
