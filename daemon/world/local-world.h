/* SPDX-License-Identifier: Apache-2.0 */
/* local-world.h - the life of this node's share of one world: made, fed, reported, ended. The struct is in job.h.
 *
 * Ownership: local_world_new() gives the LocalJob a LocalWorld; local_world_free() accepts NULL, and its ranks live on
 *            without a world.
 * Units:     as job.h.
 * Errors:    none.
 * Threads:   loop thread only.
 */
#pragma once

#include "daemon/world/exit.h"
#include "daemon/world/job.h"

LocalWorld *local_world_new(LocalJob *job, const WorldRecord *world, int64_t revision,
                            const PlannedRank *local_ranks, size_t n_local_ranks);
LocalWorld *local_world_free(LocalWorld *local);

/* The world has moved on: kills what runs, and reports it when it is dead. */
void local_world_end(LocalWorld *local, const char *why);
/* Those that are over and of whose ranks etcd knows how each has ended go, and say no more. */
void local_worlds_forget_reported(LocalJob *job);
/* Kills what runs and gives up what has not started; each exit is reported as it happens. */
void local_world_kill(LocalWorld *local, const char *why);
/* No rank of this world lives any more, but for those in lost slots. */
bool local_world_is_dead(const LocalWorld *local);
/* Gives each rank that said hello its part, once the job file is there. */
void local_world_assign(LocalWorld *local);
/* local_rank could not be started: notes that it ended. The caller reports. */
void local_world_rank_failed(LocalWorld *local, LocalRank *local_rank, const char *text);
/* Notes in the local rank that the rank's process ended, or cannot be killed, and reports at once. Only the first call
 * for a rank counts: a rank ends only once. */
void local_world_note_exit(LocalWorld *local, const Rank *rank, const ExitVerdict *verdict);
