/* SPDX-License-Identifier: Apache-2.0 */
/* local-world.h - makes, assigns, reports and ends this node's share of one world. The struct is in job.h.
 *
 * Ownership: local_world_new() gives the LocalJob a LocalWorld; local_world_free() accepts NULL, and ranks that
 *            still live have no world afterwards.
 * Units:     as in job.h.
 */
#pragma once

#include "daemon/world/exit.h"
#include "daemon/world/job.h"

LocalWorld *local_world_new(LocalJob *job, const WorldRecord *world, int64_t revision,
                            const PlannedRank *local_ranks, size_t n_local_ranks);
LocalWorld *local_world_free(LocalWorld *local);

/* Ends the local world, because the world has moved: kills its ranks, and reports them when they are dead. */
void local_world_end(LocalWorld *local, const char *why);
/* Frees the job's local worlds that are over if etcd knows how each of their ranks has ended. These worlds report
 * nothing more. */
void local_worlds_forget_reported(LocalJob *job);
/* Kills the running ranks, and does not start the ranks that still wait; each exit is reported as it happens. */
void local_world_kill(LocalWorld *local, const char *why);
/* Returns whether no rank of this world lives any more, except in lost slots. */
bool local_world_is_dead(const LocalWorld *local);
/* Sends `assign` to each rank that said hello, once the job file and the secret are read. */
void local_world_assign(LocalWorld *local);
/* Notes that local_rank could not be started. The caller reports it. */
void local_world_rank_failed(LocalWorld *local, LocalRank *local_rank, const char *text);
/* Notes that the rank's process has ended, or cannot be killed, and reports that at once. Only the first call for a
 * rank counts. */
void local_world_note_exit(LocalWorld *local, const Rank *rank, const ExitVerdict *verdict);
