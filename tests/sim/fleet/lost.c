/* SPDX-License-Identifier: Apache-2.0 */
/* lost.c - see lost.h. */
#include "tests/sim/fleet/lost.h"

#include "base/memory.h"
#include "tests/sim/fleet/copies.h"
#include "tests/sim/fleet/faults-internal.h"

#include <stdlib.h>
#include <string.h>

#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)

typedef struct Foreign { /* a record that a later version has overwritten */
    struct Foreign *next;
    KeyKind kind;
    const char *name; /* the name of one of the schedule's jobs, or of a node */
    char *was, *is;
} Foreign;

static Foreign *foreign;

/* ---- a record of a later version ---- */

/* Puts the old value back. This function is called repeatedly, because a member that stood still
 * may carry out the write of the later version's value long after it was requested. */
static void go_away(Foreign *f)
{
    const Copy *now = copies_now(f->kind, f->name);
    if (now && strcmp(now->value, f->is) == 0)
        fleet_put_by_hand(f->kind, f->name, now->revision, f->was);
}

static void on_version_leaves(int number)
{
    Foreign *f = foreign;
    for (int i = 0; f && i < number; i++)
        f = f->next;
    if (f)
        go_away(f);
}

static int count_foreign(void)
{
    int n = 0;
    for (const Foreign *f = foreign; f; f = f->next)
        n++;
    return n;
}

static void make_foreign(KeyKind kind, const char *name, const Copy *now)
{
    static const char version[] = "{\"v\":2,";
    Foreign **last = &foreign;
    if (strncmp(now->value, version, strlen(version)) != 0)
        return;
    const int number = count_foreign();
    while (*last)
        last = &(*last)->next;
    *last = memory_new(Foreign);
    **last = (Foreign){.kind = kind,
                       .name = name,
                       .was = memory_text(now->value),
                       .is = memory_format("{\"v\":3,%s", now->value + strlen(version))};
    fleet_put_by_hand(kind, name, now->revision, (*last)->is);
    faults_later(between(SEC(1), SEC(10)), on_version_leaves, number);
}

/* ---- an old value of a record ---- */

static bool is_of_present(KeyKind kind, const Copy *copy, const JobBooks *books)
{
    char submission[SUBMISSION_BYTES];
    if (!copy_is_readable(kind, copy) || copy->revision < books->born)
        return false;
    return kind == KEY_DESIRED ||
           strcmp(copy_submission(kind, copy, submission), books->submission) == 0;
}

/* Draws one of the record's old values of the present submission, which a person may have kept.
 * NULL: there is no such value. */
static const Copy *older_copy(KeyKind kind, const char *name)
{
    const JobBooks *books = books_job(name);
    const Copy *copies[COPIES_MAX], *copy;
    int n = 0;
    for (size_t age = 0; (copy = copies_get(kind, name, age)); age++)
        if (is_of_present(kind, copy, books))
            copies[n++] = copy;
    return n ? copies[below(n)] : NULL;
}

/* Returns whether the old phase would make the job active although the job is at rest. A leader
 * that has not read of the job's rest cannot know that other jobs may use the job's slots by now
 * (tests/sim/README.md). */
static bool is_active_again(const Copy *copy, const char *name)
{
    PhaseRecord phase;
    return phase_record_decode("copy", copy->value, copy->n, &phase, NULL) == 0 &&
           phase_is_active(phase.phase) && !phase_is_active(books_job(name)->phase.phase);
}

static void put_older(KeyKind kind, const char *name)
{
    const Copy *now = copies_get(kind, name, 0),
               *older = kind == KEY_CORDONS ? NULL : older_copy(kind, name);
    if (older && !(kind == KEY_PHASES && is_active_again(older, name)))
        fleet_put_by_hand(kind, name, now->value ? now->revision : 0, older->value);
}

/* ---- the fault ---- */

static void damage(KeyKind kind, const char *name, const Copy *now)
{
    _cleanup_free_ char *text = memory_text(now->value);
    text[below((int)now->n)] = '\0';
    if (*text)
        fleet_put_by_hand(kind, name, now->revision, text);
}

void lost_strike(void)
{
    static const KeyKind kinds[] = {KEY_SPECS,  KEY_DESIRED,     KEY_WORLDS,
                                    KEY_PHASES, KEY_CHECKPOINTS, KEY_CORDONS};
    const Play *play = faults_play();
    const KeyKind kind = kinds[below(ELEMENTSOF(kinds))];
    const int how = below(4);
    const char *name = kind == KEY_CORDONS ? fleet_node_name(below(play->fleet.n_nodes))
                                           : play->jobs[below(play->n_jobs)].name;
    const Copy *now = copies_now(kind, name);
    if (kind != KEY_CORDONS && !copies_now(KEY_SPECS, name))
        return; /* the job was deleted, or its file was lost */
    if (how == 2)
        put_older(kind, name);
    else if (!now)
        return;
    else if (how == 0)
        fleet_put_by_hand(kind, name, now->revision, NULL);
    else if (how == 1)
        damage(kind, name, now);
    /* a later version's world is never written: no leader could read its slots (tests/sim/README.md) */
    else if (kind != KEY_WORLDS)
        make_foreign(kind, name, now);
}

/* ---- the healing ---- */

bool lost_is_left(void)
{
    for (const Foreign *f = foreign; f; f = f->next) {
        const Copy *now = copies_now(f->kind, f->name);
        if (now && strcmp(now->value, f->is) == 0)
            return true;
    }
    for (int i = 0; i < faults_play()->n_jobs; i++) {
        const Copy *spec = copies_now(KEY_SPECS, faults_play()->jobs[i].name);
        if (spec && !copy_is_readable(KEY_SPECS, spec))
            return true;
    }
    return false;
}

void lost_heal(void)
{
    for (Foreign *f = foreign; f; f = f->next)
        go_away(f);
}

void lost_clear(void)
{
    for (Foreign *f = foreign, *next; f; f = next) {
        next = f->next;
        free(f->was);
        free(f->is);
        free(f);
    }
    foreign = NULL;
}

void lost_give_back(const FleetJob *job)
{
    static const KeyKind kinds[] = {KEY_PHASES, KEY_WORLDS, KEY_CHECKPOINTS};
    char submission[SUBMISSION_BYTES] = "";
    const JobBooks *books = books_job(job->name);
    const Copy *spec = copies_now(KEY_SPECS, job->name);
    const bool begun = copies_now(KEY_PHASES, job->name) || copies_now(KEY_WORLDS, job->name);
    bool is_known = false;
    if (copy_is_readable(KEY_SPECS, spec) ||
        !(begun || spec || copies_now(KEY_DESIRED, job->name)) ||
        (books->has_desired && books->desired.state == DESIRED_DELETED))
        return;
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        const Copy *copy = copies_now(kinds[i], job->name);
        is_known |= copy_is_readable(kinds[i], copy);
        /* on failure `submission` stays empty */
        if (!*submission)
            (void)copy_submission(kinds[i], copy, submission);
    }
    if (begun && !is_known) { /* the job's submission is lost */
        fleet_want(job, DESIRED_DELETED, 0);
        return;
    }
    fleet_put_spec(job, *submission ? submission : books->submission, spec ? spec->revision : 0);
}
