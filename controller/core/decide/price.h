/* SPDX-License-Identifier: Apache-2.0 */
/* price.h - changes the cost meter of a training job to new prices. */
#pragma once

#include "controller/core/state/state.h"

/* Changes the cost meter of a training job to new prices. */
bool decide_price(const Cluster *c, const CoreJob *job, Decision *d);
