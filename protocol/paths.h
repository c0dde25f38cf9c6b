/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h - the paths and URIs that a job may name on a node: prefixes that the node's administrator allows.
 *
 * Every user who may submit jobs writes job files, and the ranks run with the rights of the node's user. Without
 * prefixes a job can use all files and stores that the node's user can access. A prefix is a folder ("/data",
 * "file:///data") or a part of a store ("s3://bucket", "s3://bucket/laion"); it allows itself and everything below.
 * Symbolic links are resolved before a file's path is compared.
 *
 * Ownership: no pointers are kept.
 * Units:     none.
 * Errors:    -EPERM with the key and the value that is not allowed; -EINVAL: the prefixes are not a JSON array.
 */
#pragma once

#include "protocol/channel.h"
#include "protocol/job.h"

/* Checks all paths and URIs of a job. may_read and may_write are JSON arrays of prefixes (PATHS_READ_VARIABLE,
 * PATHS_WRITE_VARIABLE), or NULL to allow everything. A writable path is also readable. resume_uri is the manifest from
 * which the job resumes, or "". */
int paths_check_job(const Job *job, const char *resume_uri, const char *may_read,
                    const char *may_write, Error *err);
/* Works as paths_check_job(), for one URI. */
int paths_check_uri(const char *uri, bool write, const char *may_read, const char *may_write,
                    Error *err);
