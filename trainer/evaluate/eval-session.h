/* SPDX-License-Identifier: Apache-2.0 */
/* eval-session.h - what sdtrainer needs to evaluate a checkpoint by itself: the terms of its job, data and a device.
 *
 * Ownership: eval_session_open() gives the caller a Session, also after an error; session_free() accepts NULL. The
 *            request is borrowed.
 * Units:     none.
 * Errors:    -errno. The error's exit code (exit-code.h) is set where another start cannot help.
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/session/session.h"

typedef struct EvalRequest {
    const Job *job;       /* a job with `loss` or `grid` */
    const char *text;     /* its job file */
    const char *manifest; /* URI of the checkpoint's manifest */
    const Hash *hash;     /* of the manifest; NULL: unknown */
    const char *gpu;      /* PCI address of the GPU; NULL: any */
    DaemonLink *link;     /* NULL: no daemon runs the evaluation */
    /* Called after each part of the work, such as "samples are measured"; loss: the mean loss so far, or NaN. An error
     * ends the evaluation. */
    int (*progress)(void *userdata, const char *what, int64_t done, int64_t all, double loss,
                    Error *err);
    void *userdata;
} EvalRequest;

/* Opens the checkpoint, the data and the network's config. The Session's job computes what the checkpoint's job does,
 * on the data of the evaluation, one grain a step. It has one rank and joins no world. */
int eval_session_open(const EvalRequest *request, Session **ret, Error *err);
/* Opens the device, with the checkpoint's plans. grain: samples that are computed at once. */
int eval_session_open_device(Session *session, const EvalRequest *request, int grain, Error *err);
/* Tells whether the EMA weights are evaluated, as the job wants it. `any`: what EVAL_OF_ANY means. */
int eval_session_of_ema(const Session *session, const EvalRequest *request, bool any, bool *ret,
                        Error *err);
