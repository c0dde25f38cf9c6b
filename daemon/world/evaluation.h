/* SPDX-License-Identifier: Apache-2.0 */
/* evaluation.h - evals/<job>/<step>, the results of an evaluation, written by rank 0's node before the ranks' ends are
 * reported: the leader's verdict may follow at once, and the next world has another guard. On the other side, what
 * evaluations of other jobs read is held: rank 0 does not remove it.
 *
 * Ownership: an Evaluation is part of a LocalWorld.
 * Units:     steps of the evaluated checkpoint; seconds.
 * Errors:    as record-writer.h.
 */
#pragma once

#include "cluster/eval-record.h"
#include "daemon/world/record-writer.h"
#include "protocol/channel.h"

typedef struct Evaluation {
    RecordWriter writer;
    EvalResults results; /* of rank 0 */
} Evaluation;

void evaluation_init(Evaluation *evaluation, LocalWorld *local);
void evaluation_clear(Evaluation *evaluation);
/* Writes the results that rank 0 has sent. Once they are in etcd, rank 0 gets `committed`. */
void evaluation_write(Evaluation *evaluation, const ChannelMessage *results);

/* Adds the checkpoint that the job of this phase evaluates, if it is one of the job with that submission. */
void evaluation_add_held(const PhaseRecord *phase, const char *submission, ChannelHeld *held);
