/* SPDX-License-Identifier: Apache-2.0 */
/* put-back.h - puts lost records of a job back, or says in an incident what is missing and what to do. */
#pragma once

#include "controller/core/state/state.h"

/* Puts lost records back, or opens an incident that names the missing record and the remedy. */
bool decide_lost(Cluster *c, Scratch *s, CoreJob *job, Decision *d);
