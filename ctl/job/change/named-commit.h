/* SPDX-License-Identifier: Apache-2.0 */
/* named-commit.h - a checkpoint that a person names on the command line, as the commit that a request carries.
 *
 * Ownership: the caller's CheckpointCommit.
 * Units:     steps. Threads: the main thread.
 * Errors:    the store's; -EINVAL with the name that is refused.
 */
#pragma once

#include "cluster/records.h"
#include "protocol/job.h"

/* Reads a manifest of sdtrain's. A name without '/' at its begin and without "://", such as "step-...", is in the job's
 * checkpoint folder; everything else is an absolute path or a URI, of the manifest or of its folder. */
int named_commit_of_manifest(const Job *spec, const char *manifest, CheckpointCommit *ret,
                             Error *err);
/* A checkpoint that only its program can read, so a person says of which step it is. It must lie below the job's
 * checkpoint.uri. */
int named_commit_of_program(const Job *spec, const char *uri, int64_t step, CheckpointCommit *ret,
                            Error *err);
