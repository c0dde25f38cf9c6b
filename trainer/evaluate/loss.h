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
#include "trainer/session/session.h"

typedef struct LossRequest {
    const Job *job;       /* a job with `loss` */
    const char *manifest; /* URI of the checkpoint's manifest */
    const Hash *hash;     /* of the manifest; NULL: unknown */
    const char *gpu;      /* PCI address of the GPU; NULL: any */
    DaemonLink *link;     /* NULL: no daemon runs the measurement */
    /* Called after each grain, with the samples that are done and the mean loss of these; an error ends the
     * measurement. */
    int (*progress)(void *userdata, int64_t done, int64_t all, double loss, Error *err);
    void *userdata;
} LossRequest;

/* Adds the number "loss" (of the weights), "ema_loss", or both. */
int loss_measure(const LossRequest *request, EvalResults *ret, Error *err);
