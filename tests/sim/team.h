/* SPDX-License-Identifier: Apache-2.0 */
/* team.h - the model of a LocalWorld: a node's share of one world, for team.c, records.c and commit.c.
 *
 * Ownership: a SimNode owns its Teams.
 * Units:     revisions.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/node.h"

/* Finds the team of a callback, by its token, because the team may be gone when the callback comes. */
Team *team_find(SimNode *node, bool (*is_it)(const Team *team, uint64_t token), uint64_t token);
/* The living process of a seat, or NULL. seat may be NULL. */
Process *team_process(const SimNode *node, const Team *team, const Seat *seat);
Seat *team_rank0(Team *team);
/* A guard did not hold: its ranks die at once. */
void team_refuse(SimNode *node, Team *team);

int team_world_key(SimNode *node, const Team *team);
int64_t team_guard_revision(const SimNode *node, const Team *team);
int team_post_key(SimNode *node, const Team *team, PostKind kind);
ModelValue *team_post_value(const SimNode *node, const Team *team, PostKind kind);

/* Commits the checkpoint that rank 0 has saved, or those that it has found. */
void team_commit(SimNode *node, Team *team, const Process *p);
void team_commit_found(SimNode *node, Team *team, const Process *p);
