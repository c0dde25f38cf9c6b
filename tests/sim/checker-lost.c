/* SPDX-License-Identifier: Apache-2.0 */
/* checker-lost.c - see checker.h: records that vanish, are damaged or come back as they once were, and a
 * folder that has another owner.
 *
 * What a leader puts back is never older than what it has been told in its life. A person's word counts
 * until there is another; a job that is gone does not come back. */
#include "tests/sim/checker.h"

#include "protocol/exit-code.h"
#include "tests/sim/universe.h"

#include <string.h>

#define BROKEN(u, invariant, ...) sim_fail(&(u)->sim, invariant, __VA_ARGS__)

/* ---- what a leader was told ---- */

static void tell(Seen *seen, KeyKind kind, const void *record, int64_t revision, int64_t word)
{
    const PhaseRecord *phase = record;
    const WorldRecord *world = record;
    const CheckpointsRecord *commits = record;
    const char *submission = kind == KEY_SPECS         ? ((const JobFacts *)record)->submission
                             : kind == KEY_PHASES      ? phase->submission
                             : kind == KEY_WORLDS      ? world->submission
                             : kind == KEY_CHECKPOINTS ? commits->submission
                                                       : seen->submission;
    if (kind == KEY_SPECS && strcmp(seen->submission, submission) != 0) {
        *seen = (Seen){.world_revision = seen->world_revision};
        memcpy(seen->submission, submission, sizeof(seen->submission));
    }
    if (strcmp(seen->submission, submission) != 0)
        return;
    if (kind == KEY_PHASES)
        seen->phase_serial = MAX(seen->phase_serial, phase->serial);
    if (kind == KEY_WORLDS)
        seen->world_generation = MAX(seen->world_generation, world->generation);
    if (kind == KEY_CHECKPOINTS &&
        commit_mark_is_before(seen->committed, checkpoints_mark(commits)))
        seen->committed = checkpoints_mark(commits);
    if (kind == KEY_DESIRED && revision == word)
        seen->word_revision = revision;
}

void checker_fed(ModelController *c, int key, const ModelValue *value, int64_t revision)
{
    Universe *u = c->universe;
    const ModelKey *k = &u->etcd.keys[key];
    if (k->kind == KEY_CORDONS)
        checker_cordon_fed(c, k->name, value, revision);
    bool concerns = k->kind == KEY_SPECS || k->kind == KEY_DESIRED || k->kind == KEY_WORLDS ||
                    k->kind == KEY_PHASES || k->kind == KEY_CHECKPOINTS;
    if (!concerns || !value_record(value))
        return;
    int job = universe_job_index(k->name);
    if (k->kind == KEY_WORLDS && revision == u->checker.jobs[job].world_revision)
        c->seen[job].world_revision = revision;
    tell(&c->seen[job], k->kind, value_record(value), revision, u->checker.jobs[job].word_revision);
}

static const Seen *seen_by(Universe *u, const ModelController *leader, int job)
{
    const Seen *seen = leader ? &leader->seen[job] : NULL;
    bool present = seen && strcmp(seen->submission, u->checker.jobs[job].submission) == 0;
    return present ? seen : NULL;
}

/* A leader that was told of a world keeps off its slots until another one follows, whatever becomes of the record;
 * that its job is at rest nobody has told it, when the phase is as it was or cannot be read. */
const WorldRecord *checker_lost_world(Universe *u, const ModelController *leader, int job)
{
    const ModelEtcd *etcd = &u->etcd;
    const JobBooks *books = &u->checker.jobs[job];
    const Positions *changes = &etcd->changes_of[KEY_WORLDS];
    const ModelKey *phase = etcd_find(&u->etcd, KEY_PHASES, universe_job_name(job));
    bool active = books->phase >= PHASE_STARTING && books->phase <= PHASE_STOPPING;
    if (!leader || !active || !phase || (books->broken_phase && !phase->value->health) ||
        leader->seen[job].world_revision != books->world_revision)
        return NULL;
    for (size_t i = changes->n; i-- > 0;) {
        const Change *change = &etcd->history[changes->at[i]];
        if (change->revision == books->world_revision &&
            strcmp(etcd->keys[change->key].name, universe_job_name(job)) == 0)
            return value_record(change->value);
    }
    return NULL;
}

/* ---- what it writes ---- */

static bool is_gone(const Universe *u, const char *submission)
{
    for (uint64_t i = 0; i < MIN(u->checker.n_gone, (uint64_t)SUBMISSIONS_MAX); i++)
        if (strcmp(u->checker.gone[i].submission, submission) == 0)
            return true;
    return false;
}

void checker_job_goes(Universe *u, int job)
{
    Checker *checker = &u->checker;
    Gone *gone = &checker->gone[checker->n_gone++ % SUBMISSIONS_MAX];
    memcpy(gone->submission, checker->jobs[job].submission, SUBMISSION_BYTES);
}

void checker_spec(Universe *u, const Txn *txn, int job, const JobFacts *facts)
{
    JobBooks *books = &u->checker.jobs[job];
    if (txn->leader && is_gone(u, facts->submission))
        BROKEN(u, "lost", "%s puts back %s, which was deleted", txn->leader->name,
               universe_job_name(job));
    if (strcmp(books->submission, facts->submission) == 0)
        return; /* put back: it is the same job */
    *books = (JobBooks){.born = u->etcd.revision + 1};
    memcpy(books->submission, facts->submission, SUBMISSION_BYTES);
}

void checker_word(Universe *u, const Txn *txn, int job, const DesiredRecord *desired)
{
    JobBooks *books = &u->checker.jobs[job];
    const Seen *seen = seen_by(u, txn->leader, job);
    if (!txn->leader) {
        books->word = *desired;
        books->word_revision = u->etcd.revision + 1;
        return;
    }
    sim_say(&u->sim, "  %s wants %s to be %s, target %d", txn->leader->name, universe_job_name(job),
            desired->state == DESIRED_RUNNING   ? "running"
            : desired->state == DESIRED_STOPPED ? "stopped"
                                                : "deleted",
            desired->target);
    if (is_gone(u, books->submission))
        BROKEN(u, "lost", "%s puts back what is wanted of %s, which was deleted", txn->leader->name,
               universe_job_name(job));
    if (seen && seen->word_revision == books->word_revision &&
        (desired->state != books->word.state || desired->target != books->word.target))
        BROKEN(u, "lost", "%s puts back another word about %s than it has heard", txn->leader->name,
               universe_job_name(job));
}

void checker_phase_is_newest(Universe *u, const ModelController *leader, int job,
                             const PhaseRecord *phase)
{
    const Seen *seen = seen_by(u, leader, job);
    const PhaseRecord *old = etcd_record(&u->etcd, KEY_PHASES, universe_job_name(job));
    const JobBooks *books = &u->checker.jobs[job];
    const char *name = universe_job_name(job);
    Breach b;
    if ((seen && seen->word_revision == books->word_revision &&
         !rule_job_starts_again(name, old, phase, books->word_revision, &b)) ||
        !rule_phase_keeps_submission(name, old, phase, &b))
        checker_breach(u, &b);
    if (is_gone(u, phase->submission))
        BROKEN(u, "lost", "a phase of %s is written, which was deleted", universe_job_name(job));
    if (seen && strcmp(seen->submission, phase->submission) == 0 &&
        !rule_phase_is_newer(name, seen->phase_serial, phase, &b))
        checker_breach(u, &b);
    if (seen && phase->phase == PHASE_FAILED && strstr(phase->reason, "not-owner") &&
        !strstr(phase->reason, UNIVERSE_OTHER_OWNER))
        BROKEN(u, "owner", "%s has another owner, and nobody says which", universe_job_name(job));
}

void checker_follows_word(Universe *u, const ModelController *leader, int job,
                          const WorldRecord *world)
{
    const Seen *seen = seen_by(u, leader, job);
    const JobBooks *books = &u->checker.jobs[job];
    if (seen && world->generation <= seen->world_generation)
        BROKEN(u, "lost", "world %lld of %s follows world %lld", (long long)world->generation,
               universe_job_name(job), (long long)seen->world_generation);
    if (seen && seen->word_revision == books->word_revision && books->word.state != DESIRED_RUNNING)
        BROKEN(u, "lost", "%s is %s, and gets world %lld", universe_job_name(job),
               books->word.state == DESIRED_STOPPED ? "stopped" : "deleted",
               (long long)world->generation);
    if (world->resume.find == FIND_MUST && books->n_booked == 0)
        BROKEN(u, "lost", "%s looks for a checkpoint, and none was committed",
               universe_job_name(job));
}

/* ---- exit code 86 ---- */

/* A rank of the present world has said so; 0: none, else the revision. */
static int64_t told_of_owner(Universe *u, int job)
{
    const ModelEtcd *etcd = &u->etcd;
    const ModelKey *world = etcd_find(&u->etcd, KEY_WORLDS, universe_job_name(job));
    for (size_t i = 0; world && i < etcd->keys_of[KEY_RANKS].n; i++) {
        const ModelKey *key = &etcd->keys[etcd->keys_of[KEY_RANKS].at[i]];
        const RanksRecord *ranks = value_record(key->value);
        if (!ranks || universe_job_index(key->name) != job ||
            ranks->world_revision != world->mod_revision)
            continue;
        for (size_t k = 0; k < ranks->n_ranks; k++)
            if (ranks->ranks[k].state == RANK_EXITED && ranks->ranks[k].exit_code == EXIT_NOT_OWNER)
                return key->mod_revision;
    }
    return 0;
}

/* Only what says more about a node, or that the world was lost, comes before it: nothing else brings another
 * world but a person's word, after the job has failed. */
void checker_owner(Universe *u, int job, const PhaseRecord *phase, const WorldRecord *world)
{
    static const char *const first[] = {"numerics", "device-fault", "world-lost"};
    const PhaseRecord *old = etcd_record(&u->etcd, KEY_PHASES, universe_job_name(job));
    int64_t told = told_of_owner(u, job);
    bool excused = !told || told > phase->tried_revision || !old || old->phase < PHASE_STARTING ||
                   old->phase > PHASE_STOPPING;
    for (size_t i = 0; i < ELEMENTSOF(first); i++)
        excused |= strstr(world->reason, first[i]) != NULL;
    if (!excused)
        BROKEN(u, "owner", "%s gets world %lld, and its folder is another's",
               universe_job_name(job), (long long)world->generation);
}
