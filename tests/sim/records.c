/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - see team.h: what sdtraind writes about its teams. */
#include "tests/sim/team.h"

#include "protocol/exit-code.h"
#include "tests/sim/universe.h"

#include <string.h>

int team_world_key(SimNode *node, const Team *team)
{
    return etcd_key(&node->universe->etcd, KEY_WORLDS, universe_job_name(team->job), 0, -1);
}

int64_t team_guard_revision(const SimNode *node, const Team *team)
{
    return team->over ? node->jobs[team->job].world_revision : team->world_revision;
}

static ModelValue *encode_ranks(const SimNode *node, const Team *team)
{
    RankReport reports[RECORD_SLOTS_MAX];
    size_t n_done = 0, n_left = 0;
    for (size_t i = 0; i < team->n_seats; i++) {
        RankReport *r = &reports[i];
        *r = team->seats[i].report;
        const Process *p = team_process(node, team, &team->seats[i]);
        if (p && p->alive && r->state != RANK_EXITED && !r->hung) { /* what it spoke of last */
            r->step = p->step;
            r->stage = (int)p->stage;
        }
        bool ended_well = r->state == RANK_EXITED && r->exit_code == EXIT_DONE;
        n_done += ended_well && strcmp(r->text, "finished") == 0;
        n_left += ended_well && strcmp(r->text, "left") == 0;
    }
    RanksRecord record = {.incarnation = node->incarnation,
                          .generation = team->generation,
                          .world_revision = team->world_revision,
                          .ranks = reports,
                          .n_ranks = team->n_seats,
                          .killed_usec = team->killed_usec,
                          .first_step = team->first_step,
                          .first_step_usec = team->first_step_usec,
                          .left = n_left == team->n_seats,
                          .finished = n_done == team->n_seats};
    memcpy(record.node, node->name, sizeof(record.node));
    return value_new_ranks(&record);
}

int team_post_key(SimNode *node, const Team *team, PostKind kind)
{
    ModelEtcd *etcd = &node->universe->etcd;
    const char *job = universe_job_name(team->job);
    switch (kind) {
    case POST_REPORT:
        return etcd_key(etcd, KEY_RANKS, job, team->generation, node->index);
    case POST_RENDEZVOUS:
        return etcd_key(etcd, KEY_RENDEZVOUS, job, team->generation, -1);
    default:
        return etcd_key(etcd, KEY_PROGRESS, job, 0, -1);
    }
}

ModelValue *team_post_value(const SimNode *node, const Team *team, PostKind kind)
{
    static const RendezvousRecord rendezvous = {.address = "here"};
    switch (kind) {
    case POST_REPORT:
        return encode_ranks(node, team);
    case POST_RENDEZVOUS:
        return value_new(&rendezvous, sizeof(rendezvous));
    default:
        return value_new(&team->progress, sizeof(team->progress));
    }
}

void team_add_records(SimNode *node, Txn *txn, int lease)
{
    for (int job = 0; job < JOBS_MAX; job++) {
        Team *team = node->jobs[job].team;
        if (!team || team->over)
            continue;
        txn_compare(txn, COMPARE_MOD, team_world_key(node, team), team->world_revision);
        txn_put(txn, team_post_key(node, team, POST_REPORT), encode_ranks(node, team), lease);
    }
}
