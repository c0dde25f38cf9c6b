/* SPDX-License-Identifier: Apache-2.0 */
/* lost.c - see swarm.h: somebody's etcdctl, a bad disk or a restore from a backup, one record at a time.
 *
 * What does not return by itself is deleted, damaged, put back as it once was, or written by a later version,
 * which goes away again. What only people can give back they give back when all heals. */
#include "tests/sim/swarm.h"

#include "tests/sim/universe.h"

#include <stdio.h>
#include <string.h>

#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)

/* ---- what was there ---- */

static const char *submission_of(KeyKind kind, const void *record)
{
    switch (kind) {
    case KEY_SPECS:
        return ((const JobFacts *)record)->submission;
    case KEY_WORLDS:
        return ((const WorldRecord *)record)->submission;
    case KEY_PHASES:
        return ((const PhaseRecord *)record)->submission;
    case KEY_CHECKPOINTS:
        return ((const CheckpointsRecord *)record)->submission;
    default:
        return "";
    }
}

/* One that somebody may have kept a copy of; of the present submission. NULL: there is none. */
static ModelValue *older_copy(Universe *u, const ModelKey *key)
{
    const ModelEtcd *etcd = &u->etcd;
    const Positions *changes = &etcd->changes_of[key->kind];
    const JobBooks *books = &u->checker.jobs[universe_job_index(key->name)];
    ModelValue *copies[16];
    uint32_t n = 0;
    for (size_t i = changes->n; i-- > 0 && n < ELEMENTSOF(copies);) {
        const Change *change = &etcd->history[changes->at[i]];
        const void *record = value_record(change->value);
        if (!record || &etcd->keys[change->key] != key || change->revision < books->born)
            continue;
        if (key->kind == KEY_DESIRED ||
            strcmp(submission_of(key->kind, record), books->submission) == 0)
            copies[n++] = change->value;
    }
    return n ? copies[sim_draw(&u->sim, n)] : NULL;
}

/* ---- a record of a later version ---- */

static void on_version_leads(Universe *u, void *who, _unused_ uint64_t token)
{
    Foreign *foreign = who;
    const ModelKey *key = &u->etcd.keys[foreign->key];
    if (!foreign->value)
        return;
    if (key->value && key->value->health == RECORD_FOREIGN)
        etcd_put(&u->etcd, key->kind, key->name, foreign->value);
    else
        (void)value_unref(foreign->value); /* NULL always */
    foreign->value = NULL;
}

static void make_foreign(Universe *u, const ModelKey *key)
{
    Swarm *swarm = &u->swarm;
    for (size_t i = 0; i < ELEMENTSOF(swarm->foreign); i++)
        if (!swarm->foreign[i].value) {
            int n = (int)(key - u->etcd.keys);
            swarm->foreign[i].key = n;
            swarm->foreign[i].value = value_ref(key->value);
            etcd_put(&u->etcd, key->kind, u->etcd.keys[n].name, value_new_broken(RECORD_FOREIGN));
            sim_after(&u->sim, NULL, sim_between(&u->sim, SEC(1), SEC(10)), on_version_leads,
                      &swarm->foreign[i], 0);
            return;
        }
}

/* ---- the fault ---- */

static bool is_active(JobPhase phase) { return phase >= PHASE_STARTING && phase <= PHASE_STOPPING; }

void lost_strike(Universe *u)
{
    static const KeyKind kinds[] = {KEY_SPECS,  KEY_DESIRED,     KEY_WORLDS,
                                    KEY_PHASES, KEY_CHECKPOINTS, KEY_CORDONS};
    static const char *const names[] = {"specs",  "desired",     "worlds",
                                        "phases", "checkpoints", "cordons"};
    static const char *const hows[] = {"vanishes", "is damaged", "is an older one",
                                       "is a later version's"};
    uint32_t which = sim_draw(&u->sim, ELEMENTSOF(kinds)), how = sim_draw(&u->sim, 4);
    KeyKind kind = kinds[which];
    const char *name = kind == KEY_CORDONS
                           ? u->nodes[sim_draw(&u->sim, (uint32_t)u->options.n_nodes)].name
                           : universe_job_name((int)sim_draw(&u->sim, (uint32_t)u->options.n_jobs));
    int n = etcd_key(&u->etcd, kind, name, 0, -1);
    const ModelKey *key = &u->etcd.keys[n];
    if (kind != KEY_CORDONS && !etcd_find(&u->etcd, KEY_SPECS, name))
        return; /* the job is gone, or nobody knows it any more */
    ModelValue *older = how == 2 && kind != KEY_CORDONS ? older_copy(u, key) : NULL;
    if (how == 2 ? !older : !key->value)
        return;
    if (how == 3 && kind == KEY_WORLDS)
        return; /* a leader that has not seen it does not know whose slots those are: README.md */
    if (older && kind == KEY_PHASES &&
        is_active(((const PhaseRecord *)value_record(older))->phase) &&
        !is_active(u->checker.jobs[universe_job_index(name)].phase))
        return; /* nor that they are others' by now */
    sim_say(&u->sim, "somebody: %s/%s %s", names[which], name, hows[how]);
    if (how == 3)
        make_foreign(u, key);
    else
        etcd_put(&u->etcd, kind, name,
                 how == 0   ? NULL
                 : how == 1 ? value_new_broken(RECORD_DAMAGED)
                            : value_ref(older));
}

void lost_take_over(Universe *u)
{
    int job = (int)sim_draw(&u->sim, (uint32_t)u->options.n_jobs);
    if (!etcd_find(&u->etcd, KEY_SPECS, universe_job_name(job)))
        return;
    sim_say(&u->sim, "somebody: takes the checkpoint folder of %s over", universe_job_name(job));
    u->taken_over[job] = true;
}

/* ---- the healing ---- */

/* sdctl job start -f, with the file as it was. */
void lost_give_back(Universe *u, int job)
{
    const char *name = universe_job_name(job);
    const PhaseRecord *phase = etcd_record(&u->etcd, KEY_PHASES, name);
    const WorldRecord *world = etcd_record(&u->etcd, KEY_WORLDS, name);
    const CheckpointsRecord *commits = etcd_record(&u->etcd, KEY_CHECKPOINTS, name);
    JobFacts facts = u->options.jobs[job].facts;
    const DesiredRecord *wants = etcd_record(&u->etcd, KEY_DESIRED, name);
    bool begun = etcd_find(&u->etcd, KEY_PHASES, name) || etcd_find(&u->etcd, KEY_WORLDS, name);
    bool there = begun || etcd_find(&u->etcd, KEY_SPECS, name) || wants;
    if (etcd_record(&u->etcd, KEY_SPECS, name) || !there ||
        (wants && wants->state == DESIRED_DELETED))
        return;
    if (begun && !phase && !world && !commits) { /* nobody knows any more which one it was */
        DesiredRecord deleted = {.state = DESIRED_DELETED, .min = 1, .max = 1};
        sim_say(&u->sim, "user: %s is deleted", name);
        etcd_put(&u->etcd, KEY_DESIRED, name, value_new(&deleted, sizeof(deleted)));
        return;
    }
    /* A new submission, too, finds its history in the folder, by the job's identity. */
    memcpy(facts.submission,
           phase && phase->submission[0] ? phase->submission
           : world                       ? world->submission
           : commits                     ? commits->submission
                                         : u->checker.jobs[job].submission,
           SUBMISSION_BYTES);
    facts.arrival = (int64_t)u->sim.now_usec;
    sim_say(&u->sim, "user: gives the file of %s back", name);
    etcd_put(&u->etcd, KEY_SPECS, name, value_new(&facts, sizeof(facts)));
}

void lost_heal(Universe *u)
{
    for (size_t i = 0; i < ELEMENTSOF(u->swarm.foreign); i++)
        on_version_leads(u, &u->swarm.foreign[i], 0);
    memset(u->taken_over, 0, sizeof(u->taken_over));
}

void lost_clear(Universe *u)
{
    for (size_t i = 0; i < ELEMENTSOF(u->swarm.foreign); i++)
        u->swarm.foreign[i].value = value_unref(u->swarm.foreign[i].value);
}
