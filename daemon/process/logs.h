/* SPDX-License-Identifier: Apache-2.0 */
/* logs.h - writes what one rank prints to the disk, within a bound.
 *
 * The file is <log_dir>/<job>/g<generation>/rank<r>.log. At half the bound it is renamed to rank<r>.log.1 and a new
 * file begins, so the end of the output is always kept. The last line is kept in memory as evidence.
 *
 * Units: bytes. Threads: loop thread only.
 * Ownership: rank_log_new() gives the caller a RankLog, which owns the reading end of the pipe.
 * Errors:    -errno. A disk that fails or is full costs lines, never the rank: the pipe is always emptied. On a full
 *            disk the logs of old generations are removed first, by the rule of rank_log_prune().
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <systemd/sd-event.h>

typedef struct RankLog RankLog;

enum { RANK_LOG_LINE_MAX = 255, RANK_LOG_GENERATIONS_KEPT = 16 };

int rank_log_new(sd_event *event, const char *log_dir, const char *job, int64_t generation,
                 int rank, int64_t max_bytes, int *ret_write_fd, RankLog **ret, Error *err);
RankLog *rank_log_free(RankLog *log);
DEFINE_CLEANUP(RankLog, rank_log_free)

/* Reads what is in the pipe now. */
void rank_log_drain(RankLog *log);
/* Returns the last line that is not empty, complete or not; "": there is none. */
const char *rank_log_last_line(const RankLog *log);

/* Removes the folders of the oldest generations of a job beyond RANK_LOG_GENERATIONS_KEPT. */
void rank_log_prune(const char *log_dir, const char *job);
