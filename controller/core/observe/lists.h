/* SPDX-License-Identifier: Apache-2.0 */
/* lists.h - applies the settings `admit` and `prices` to the nodes. */
#pragma once

#include "controller/core/state/state.h"

/* Sets node->admitted by the present list `admit`. */
void node_admit(const Cluster *c, CoreNode *node);
/* Applies a changed list `admit` to all nodes. */
void admission_update(Cluster *c);
/* Sets node->price by the present list `prices`. */
void node_price(const Cluster *c, CoreNode *node);
/* Applies a changed list `prices` to all nodes. */
void cost_update(Cluster *c);
