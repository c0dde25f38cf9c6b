/* SPDX-License-Identifier: Apache-2.0 */
/* commit.c - see team.h: a saved checkpoint comes to count. Follows daemon/world/commit.c. */
#include "tests/sim/team.h"

#include "tests/sim/universe.h"

#include <string.h>

enum { COMMIT_PAUSE_MSEC = 200 };

static Sim *sim_of(const SimNode *node) { return &node->universe->sim; }

/* ---- the commit ---- */

static void commit_read(SimNode *node, Team *team);

static bool has_commit(const Team *team, uint64_t token) { return team->commit.token == token; }

static void on_commit_retry(_unused_ Universe *u, void *who, uint64_t token)
{
    SimNode *node = who;
    Team *team = team_find(node, has_commit, token);
    if (team)
        commit_read(node, team);
}

static void commit_later(SimNode *node, Team *team)
{
    team->commit.token = sim_serial(sim_of(node));
    sim_timer(sim_of(node), &node->actor, COMMIT_PAUSE_MSEC * USEC_PER_MSEC, on_commit_retry, node,
              team->commit.token);
}

static CommitMark mark_of(const CheckpointCommit *line)
{
    return (CommitMark){.generation = line->generation, .step = line->step};
}

static const CheckpointCommit *newest_of(const ModelCommit *commit)
{
    return &commit->lines[commit->n_lines - 1];
}

static void commit_answer(SimNode *node, Team *team, bool committed)
{
    Process *p = team_process(node, team, team_rank0(team));
    if (committed)
        team->progress.committed = mark_of(newest_of(&team->commit));
    team->commit.busy = false;
    team->commit.token = 0;
    if (p)
        trainer_hear_verdict(p, committed);
    if (!committed)
        team_refuse(node, team);
}

static void on_commit_written(_unused_ Universe *u, void *who, uint64_t token,
                              const CallResult *result)
{
    SimNode *node = who;
    Team *team = team_find(node, has_commit, token);
    if (!team)
        return;
    if (result->r < 0)
        commit_later(node, team);
    else if (result->succeeded)
        commit_answer(node, team, true);
    else
        commit_read(node, team);
}

static void commit_write(SimNode *node, Team *team, const CheckpointsRecord *old, int64_t revision)
{
    Txn txn = {.node = node};
    int key = etcd_key(&node->universe->etcd, KEY_CHECKPOINTS, universe_job_name(team->job), 0, -1);
    CheckpointsRecord record = {0};
    ProgressRecord progress = team->progress;
    if (old)
        record = *old;
    memcpy(record.submission, team->submission, sizeof(record.submission));
    for (size_t i = 0; i < team->commit.n_lines; i++)
        if (team->commit.n_lines == 1 ||
            commit_mark_is_before(checkpoints_mark(&record), mark_of(&team->commit.lines[i])))
            checkpoints_append(&record, &team->commit.lines[i]);
    if (progress.generation == 0)
        progress = (ProgressRecord){.generation = team->generation, .step = team->resume_step};
    progress.committed = checkpoints_mark(&record);
    txn_compare(&txn, COMPARE_MOD, team_world_key(node, team), team->world_revision);
    txn_compare(&txn, COMPARE_MOD, key, revision);
    txn_put(&txn, key, value_new(&record, sizeof(record)), -1);
    txn_put(&txn, team_post_key(node, team, POST_PROGRESS), value_new(&progress, sizeof(progress)),
            -1);
    team->commit.token = sim_serial(sim_of(node));
    client_txn(&node->client, &txn, on_commit_written, node, team->commit.token);
}

static bool is_ours(const CheckpointsRecord *record, const CheckpointCommit *line)
{
    for (size_t i = 0; record && i < record->n_commits; i++)
        if (record->commits[i].step == line->step &&
            record->commits[i].generation == line->generation &&
            strcmp(record->commits[i].uri, line->uri) == 0)
            return true;
    return false;
}

static void on_commit_read(Universe *u, void *who, uint64_t token, const CallResult *result)
{
    SimNode *node = who;
    Team *team = team_find(node, has_commit, token);
    if (!team)
        return;
    if (result->r < 0) {
        commit_later(node, team);
        return;
    }
    int64_t world_revision = 0, revision = 0;
    const CheckpointsRecord *old = NULL;
    bool foreign = false;
    for (size_t i = 0; i < result->n_items; i++)
        if (u->etcd.keys[result->items[i].key].kind == KEY_WORLDS) {
            world_revision = result->items[i].mod_revision;
        } else {
            revision = result->items[i].mod_revision;
            old = value_record(result->items[i].value);
            foreign = result->items[i].value->health == RECORD_FOREIGN;
        }
    if (old && strcmp(old->submission, team->submission) != 0)
        old = NULL; /* of another job of that name: it is written anew, like one that is damaged */
    if (foreign)
        commit_later(node, team);
    else if (is_ours(old, newest_of(&team->commit)))
        commit_answer(node, team, true);
    else if (world_revision != team->world_revision)
        commit_answer(node, team, false);
    else
        commit_write(node, team, old, revision);
}

static void commit_read(SimNode *node, Team *team)
{
    int keys[] = {team_world_key(node, team), etcd_key(&node->universe->etcd, KEY_CHECKPOINTS,
                                                       universe_job_name(team->job), 0, -1)};
    team->commit.token = sim_serial(sim_of(node));
    client_read(&node->client, keys, ELEMENTSOF(keys), on_commit_read, node, team->commit.token);
}

static void add_line(SimNode *node, ModelCommit *commit, int manifest, int64_t generation)
{
    CheckpointCommit *line = &commit->lines[commit->n_lines++];
    *line = (CheckpointCommit){.step = node->universe->store.manifests[manifest].last,
                               .generation = generation,
                               .hash = {.low = (uint64_t)manifest + 1},
                               .at_usec = node_real_usec(node)};
    (void)store_uri(manifest, line->uri);
}

void team_commit(SimNode *node, Team *team, const Process *p)
{
    if (team->commit.busy)
        return;
    team->commit = (ModelCommit){.busy = true};
    add_line(node, &team->commit, p->written, team->generation);
    commit_read(node, team);
}

/* The newest, and those of its history that are still there. */
void team_commit_found(SimNode *node, Team *team, const Process *p)
{
    const ModelManifest *manifests = node->universe->store.manifests;
    int history[RECORD_COMMITS_MAX];
    size_t n = 0;
    if (team->commit.busy)
        return;
    team->commit = (ModelCommit){.busy = true};
    for (int i = p->found; i >= 0 && n < RECORD_COMMITS_MAX; i = manifests[i].parent)
        if (!manifests[i].removed)
            history[n++] = i;
    while (n-- > 0)
        add_line(node, &team->commit, history[n], manifests[history[n]].generation);
    CheckpointCommit *newest = &team->commit.lines[team->commit.n_lines - 1];
    if (commit_mark_is_before(mark_of(newest), team->progress.committed))
        newest->generation = team->generation;
    commit_read(node, team);
}
