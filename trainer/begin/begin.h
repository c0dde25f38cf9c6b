/* SPDX-License-Identifier: Apache-2.0 */
/* begin.h - whether a job could begin with what its file and --resume name: all that can be told without its ranks.
 *
 * A job that can never start should not wait in a queue for it, and not take slots in order to say so. sdctl asks
 * before it submits one. Ranks call what these call (weights_open(), begin_read_init(), manifest_check_network(),
 * cuda_plans_parse()), so both refuse the same in the same words.
 *
 * Only headers, manifests and plan sets are read. A store that does not answer is not a refusal: the caller decides.
 *
 * Ownership: begin_read_init() gives the caller store and manifest; all else is borrowed.
 * Units:     steps.
 * Errors:    -EINVAL: no rank could begin with it; the text names the file and what to do. -EBADMSG: it is damaged;
 *            those of the store.
 * Threads:   any; no state.
 */
#pragma once

#include "manifest/manifest.h"
#include "nn/parameters.h"
#include "protocol/job.h"

/* The checkpoint that model.init names: -EINVAL unless it is of such a network. */
int begin_read_init(const Job *job, const ParameterList *network, Store **ret_store, Manifest **ret,
                    Error *err);

/* model.init, whatever it is. */
int begin_check_init(const Job *job, const UnetConfig *config, Error *err);
/* The manifest of --resume, at submission: also that it is of a step before the job's last. facts: the identity that
 * ranks will find, and its text. */
int begin_check_resume(const Job *job, const UnetConfig *config, const CheckpointFacts *facts,
                       const char *uri, Error *err);
/* The plan set that train.plans names. */
int begin_check_plans(const Job *job, Error *err);
