/* SPDX-License-Identifier: Apache-2.0 */
/* loss.h - the mean loss of a checkpoint on held-out data.
 *
 * The position p of the data has the noise and the timestep that position p has in training, no caption is dropped, and
 * the grains' losses are added in their order. So the numbers are functions of checkpoint, data and positions, and
 * equal wherever the forward pass has equal bits.
 *
 * Ownership: as named; loss_measure() borrows everything.
 * Units:     samples.
 * Errors:    -errno. The error's exit code (exit-code.h) is set where another start cannot help.
 * Threads:   the training thread.
 */
#pragma once

#include "protocol/eval-results.h"
#include "trainer/evaluate/eval-session.h"

/* Adds the number "loss" (of the weights), "ema_loss", or both. */
int loss_measure(const EvalRequest *request, EvalResults *ret, Error *err);
