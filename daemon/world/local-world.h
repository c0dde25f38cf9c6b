/* local-world.h - the life of this node's share of one world: made, fed, reported, ended.
 *
 * Ownership: team_new() gives the Job a Team; team_free() accepts NULL and lets go of its ranks.
 * Units:     as job.h.
 * Errors:    -ENOMEM.
 * Threads:   loop thread only.
 */
#pragma once

#include "daemon/world/exit.h"
#include "daemon/world/job.h"

int team_new(Job *job, const WorldRecord *world, int64_t revision, const PlanSeat *seats,
             size_t n_seats, Team **ret, Error *err);
Team *team_free(Team *team);

/* The world has moved on: kills what runs, and reports it when it is dead. */
void team_end(Team *team, const char *why);
/* Kills what runs and gives up what has not started; each exit is reported as it happens. */
void team_kill(Team *team, const char *why);
/* Nothing of it lives any more, but for lost slots. */
bool team_is_dead(const Team *team);
/* Gives each rank that said hello its part, once the job file is there. */
void team_assign(Team *team);
/* The seat's rank could not be started; the caller reports. */
void team_seat_failed(Team *team, Seat *seat, const char *text);
/* A rank's process ended: notes it in its seat and reports at once. */
void team_note_exit(Team *team, const Rank *rank, const ExitVerdict *verdict);
