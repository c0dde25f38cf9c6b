/* SPDX-License-Identifier: Apache-2.0 */
/* begin.h - checks whether a job could begin with the files that its job file and --resume name, as far as this is
 * possible without its ranks.
 *
 * A job that can never start should not wait in a queue, and should not occupy slots only to report this. So sdctl
 * makes these checks before it submits a job. Ranks call the same functions (weights_open(), begin_read_init(),
 * manifest_check_network(), cuda_plans_parse()), so sdctl and the ranks refuse the same files with the same texts.
 *
 * Only headers, manifests and plan sets are read. If a store does not answer, the job is not refused: the caller
 * decides.
 *
 * Units: steps. Threads: any; no state.
 * Ownership: begin_read_init() gives the caller store and manifest; all else is borrowed.
 * Errors:    -EINVAL: no rank could begin with the file; the text names the file and what to do. -EBADMSG: the file is
 *            damaged. Others are those of the store.
 */
#pragma once

#include "manifest/manifest.h"
#include "nn/parameters.h"
#include "protocol/job.h"

/* Reads the manifest of the checkpoint that model.init names. -EINVAL: the checkpoint is of another network. */
int begin_read_init(const Job *job, const ParameterList *network, Store **ret_store, Manifest **ret,
                    Error *err);

/* Checks what model.init names: random weights, a file of weights or a checkpoint. */
int begin_check_init(const Job *job, const UnetConfig *config, Error *err);
/* Checks the manifest of --resume at submission, also that its step is before the job's last step. facts: the identity
 * that ranks will compute, and its text. */
int begin_check_resume(const Job *job, const UnetConfig *config, const CheckpointFacts *facts,
                       const char *uri, Error *err);
/* Checks the plan set that train.plans names, if any. */
int begin_check_plans(const Job *job, Error *err);
