/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-faults.c - see trainer.h: faults of trainers, and checks that their daemons have killed
 * or ended ranks as they must. */
#include "tests/sim/fleet/books.h"
#include "tests/sim/fleet/manifests.h"
#include "tests/sim/fleet/trainer-internal.h"
#include "tests/sim/seams/loop.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- faults ---- */

static Trainer *trainer_at(int node, int slot)
{
    for (Trainer *t = trainers; t; t = t->next)
        if (trainer_lives(t) && t->node == node && task_slot(t->task) == slot)
            return t;
    return NULL;
}

bool trainers_are_at(int node, int slot) { return trainer_at(node, slot); }

bool trainer_exit(int node, int slot, int code, const char *text)
{
    Trainer *t = trainer_at(node, slot);
    if (t)
        trainer_fail(t, code, text);
    return t;
}

bool trainers_leak(const char *job)
{
    for (Trainer *t = trainers; t; t = t->next)
        if (trainer_lives(t) && t->is_assigned && t->ring && !t->is_stopped &&
            strcmp(t->job, job) == 0) {
            trainer_end(t, -SIGKILL);
            return true;
        }
    return false;
}

bool trainer_hang(int node, int slot)
{
    Trainer *t = trainer_at(node, slot);
    if (t)
        t->hangs = true;
    if (t)
        program_hangs(t);
    return t;
}

bool trainer_stop(int node, int slot, bool stopped)
{
    Trainer *t = trainer_at(node, slot);
    if (!t)
        return false;
    t->is_stopped = stopped;
    trainer_listen(t);
    return true;
}

bool trainer_cling(int node, int slot, bool clings)
{
    Trainer *t = trainer_at(node, slot);
    if (!t)
        return false;
    t->clings = clings;
    t->hangs |= clings;
    if (clings)
        program_hangs(t);
    if (!clings && t->is_killed)
        trainer_end(t, -SIGKILL);
    return true;
}

bool trainers_hang(void)
{
    for (const Trainer *t = trainers; t; t = t->next)
        if (trainer_lives(t) && (t->hangs || t->is_stopped))
            return true;
    return false;
}

void trainers_freeze(int node, bool frozen)
{
    trainer_places[node].frozen = frozen;
    for (Trainer *t = trainers; t; t = t->next)
        if (t->node == node)
            trainer_listen(t);
}

void trainers_part(int node, int island) { trainer_places[node].island = island; }
void trainers_differ(int node, bool differ) { trainer_places[node].differs = differ; }

static uint64_t out_usec; /* since when the store is out; 0: the store works */

void trainer_store_clear(void) { out_usec = 0; }

uint64_t trainer_out_since(int node)
{
    const uint64_t own_usec = trainer_places[node].out_usec;
    if (!manifests_are_out())
        out_usec = 0;
    else if (out_usec == 0)
        out_usec = loops_now_usec();
    return own_usec && out_usec ? MIN(own_usec, out_usec) : MAX(own_usec, out_usec);
}

void trainers_cut_store(int node, bool cut)
{
    uint64_t *since = &trainer_places[node].out_usec;
    *since = !cut ? 0 : *since ? *since : loops_now_usec();
    if (cut)
        manifests_note_cut();
}

/* ---- checks ---- */

/* Returns whether a rank may run on for a while, because its node cannot be reached or is
 * quarantined. */
static bool may_run_on(const Trainer *t)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "n%d", t->node);
    const NodeBooks *node = books_node(name);
    for (size_t i = 0; i < node->cordon.n_causes; i++)
        if (node->cordon.causes[i].mode == CORDON_QUARANTINE)
            return true;
    if (t->is_killed)
        return true;
    if (node->is_there)
        return false;
    /* After the node's lease has ended, a stranger's record may stay in the place of the node's
     * record. A node that can be reached overwrites the stranger's record. */
    const bool may_return = server_has_lease(fleet_server(), node->lease);
    if (may_return && node->is_forged)
        return loops_now_usec() >= node->gone_usec + trainers_ttl_usec;
    return loops_now_usec() >=
           (may_return ? node->empty_usec : node->gone_usec) + trainers_grace_usec;
}

void trainers_check_go(const char *job, int64_t generation)
{
    for (const Trainer *t = trainers; t; t = t->next)
        if (trainer_lives(t) && t->is_assigned && strcmp(t->job, job) == 0 &&
            strcmp(t->submission, books_job(job)->submission) == 0 && t->generation < generation &&
            !may_run_on(t))
            books_break("I3", "%s-%lld may go, but a rank of %lld runs on n%d", job,
                        (long long)generation, (long long)t->generation, t->node);
}

void trainer_check_slot(int node, int slot)
{
    const Trainer *t = trainer_at(node, slot);
    if (t)
        books_break("I3", "slot %d of n%d runs two processes", slot, node);
}

void trainer_check_address(const Trainer *t)
{
    for (const Trainer *rank0 = trainers; rank0; rank0 = rank0->next)
        if (rank0->is_assigned && rank0->rank == 0 && rank0->generation == t->generation &&
            strcmp(rank0->submission, t->submission) == 0 &&
            strcmp(rank0->address, t->meets_at) == 0)
            return;
    books_break("stale", "rank %d of %s-%lld is told to meet at %s, which is not a rank 0 of it",
                t->rank, t->job, (long long)t->generation, t->meets_at);
}

/* Returns whether a trainer of this job runs on the node. A trainer that survives SIGKILL is not
 * counted, because its node reports the slot as lost. */
static bool is_of(const Trainer *t, const char *job, int node)
{
    return trainer_lives(t) && !t->clings && t->is_assigned && t->node == node &&
           strcmp(t->job, job) == 0 && strcmp(t->submission, books_job(job)->submission) == 0;
}

void trainers_check_exited(const char *job, int64_t generation, int64_t world_revision, int node,
                           int slot)
{
    for (const Trainer *t = trainers; t; t = t->next)
        if (is_of(t, job, node) && task_slot(t->task) == slot && t->generation == generation &&
            books_world_revision(job, generation) <= world_revision)
            books_break("I3", "n%d says that its rank %d of %s-%lld has ended, and it runs", node,
                        t->rank, job, (long long)generation);
}

void trainers_check_killed(const char *job, int64_t generation, int64_t world_revision, int node)
{
    for (const Trainer *t = trainers; t; t = t->next)
        if (is_of(t, job, node) && t->generation < generation &&
            books_world_revision(job, t->generation) < world_revision)
            books_break("I3",
                        "n%d says in generation %lld of %s that what ran before is dead, and rank "
                        "%d of generation %lld runs",
                        node, (long long)generation, job, t->rank, (long long)t->generation);
}

void trainers_check_rest(void)
{
    for (const Trainer *t = trainers; t; t = t->next)
        if (trainer_lives(t) && t->is_assigned && t->generation < books_job(t->job)->generation)
            books_break("I12", "a rank of %s-%lld still runs on n%d", t->job,
                        (long long)t->generation, t->node);
}

void trainers_check_fenced(void)
{
    for (const Trainer *t = trainers; t; t = t->next)
        if (trainer_lives(t) && !t->is_killed && fleet_runs(t->node))
            books_break("fence",
                        "a rank of %s-%lld runs on n%d, which has heard nothing for fence_sec",
                        t->job, (long long)t->generation, t->node);
}
