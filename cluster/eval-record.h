/* SPDX-License-Identifier: Apache-2.0 */
/* eval-record.h - the record of the results of an evaluation; records.h has all others.
 *
 * Ownership: the caller's record.
 * Units:     *_usec is microseconds; steps; seconds as named.
 * Errors:    as records.h.
 * Source:    docs/internals/etcd.md.
 */
#pragma once

#include "cluster/records.h"
#include "protocol/eval-results.h"

/* ---- evals/<job>/<step>: the results of an evaluation, written by rank 0's node under the guard of its world, and
 * removed by the leader with the verdict in phases/<job> ---- */

typedef struct EvalRecord {
    int64_t step; /* of the checkpoint */
    char uri[RECORD_URI_MAX + 1];
    Hash hash; /* as in the followed job's commit */
    EvalResults results;
    char node[NODE_NAME_MAX + 1];
    uint64_t at_usec;
    char submission[SUBMISSION_BYTES]; /* submission of the job that evaluates */
} EvalRecord;

DECLARE_RECORD(EvalRecord, eval_record)
