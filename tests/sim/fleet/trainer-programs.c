/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-programs.c - see trainer.h: the runners of programs of others, where they differ from trainers. Their ranks
 * end one after another, each is asked to leave by itself, and a program may report everything, its steps alone, or
 * nothing. */
#include "tests/sim/fleet/trainer-internal.h"

#include "protocol/exit-code.h"
#include "tests/sim/fleet/books.h"
#include "tests/sim/fleet/manifests.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    APART_MSEC = 400,     /* between the ends of two ranks */
    LEAVE_MSEC = 5000,    /* leave_s: then a program is killed that does not leave */
    SILENCE_MSEC = 20000, /* silence_s */
};

ProgramKind trainer_program(const Trainer *t) { return trainer_plan(t->job)->plan.program; }
ProgramKind ring_program(const Ring *ring) { return trainer_plan(ring->job)->plan.program; }

/* Nobody keeps a checkpoint that a person has named. */
static bool is_named(const Trainer *t)
{
    char uri[MANIFEST_URI_BYTES];
    const EvalProgress *eval = &books_job(t->job)->phase.eval;
    for (size_t i = 0; i < eval->n_asked; i++)
        if (strcmp(eval->asked[i].uri, manifest_uri(t->resume, uri)) == 0)
            return true;
    return false;
}

void program_check_evaluated(const Trainer *t)
{
    if (trainer_plan(t->job)->plan.of && manifests_get(t->resume)->is_removed && !is_named(t))
        books_break("held", "the checkpoint of step %lld is removed, and %s-%lld evaluates it",
                    (long long)manifests_get(t->resume)->last, t->job, (long long)t->generation);
}

/* Reports the end of a rank's program as its runner does: in a leave any end is `left` unless the last step is done. */
static void end_rank(Trainer *t)
{
    const bool is_finished = (t->ring && t->ring->step >= t->ring->steps) || !t->must_leave;
    ChannelMessage m = {.type = CHANNEL_RESULTS, .step = t->resumed};
    program_check_evaluated(t);
    if (is_finished && trainer_plan(t->job)->plan.of && t->rank == 0 && !t->has_results) {
        t->has_results = true;
        (void)trainer_say(t, &m);
        return;
    }
    m = (ChannelMessage){.type = CHANNEL_DONE, .step = t->ring ? t->ring->step : t->resumed};
    (void)snprintf(m.end, sizeof(m.end), "%s", is_finished ? "finished" : "left");
    (void)trainer_say(t, &m);
    trainer_end(t, EXIT_DONE);
}

void program_hears_of_results(Trainer *t, bool are_written)
{
    if (are_written)
        end_rank(t);
    else
        trainer_fail(t, EXIT_RETRY, "the results were not written into etcd");
}

static void on_end(void *userdata)
{
    Trainer *t = userdata;
    if (trainer_is_halted(t))
        trainer_after_msec(&t->work, AGAIN_MSEC, on_end, t);
    else
        end_rank(t);
}

void program_end(Ring *ring)
{
    ring_stop(ring);
    for (int i = 0; i < ring->size; i++)
        trainer_after_msec(&ring->of[i]->work, (uint64_t)i * APART_MSEC, on_end, ring->of[i]);
}

void program_fails_to_load(Ring *ring)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "checkpoint %d: bad magic", ring->parent);
    trainer_fail(ring->of[0], EXIT_DATA_CORRUPT, text);
}

/* The runner of a program that hangs works on, unless it is stopped itself, or its host is frozen. */
static bool runner_is_halted(const Trainer *t)
{
    return t->is_stopped || trainer_places[t->node].frozen;
}

/* The runner has killed its program. If that survives, the daemon must find that the slot is lost. */
static void say_hung(Trainer *t, const char *text)
{
    ChannelMessage m = {.type = CHANNEL_ERROR,
                        .step = t->ring ? t->ring->step : t->resumed,
                        .stage = STAGE_COMPUTING,
                        .unnamed = true,
                        .exit_code = -SIGKILL,
                        .hung = true,
                        .stuck = t->clings};
    (void)snprintf(m.text, sizeof(m.text), "%s", text);
    (void)trainer_say(t, &m);
    if (!t->clings)
        trainer_end(t, EXIT_RETRY);
}

/* The runner kills a program that has not left in time. Its peers fail by themselves, or are killed, too. */
static void on_leave_over(void *userdata)
{
    Trainer *t = userdata;
    if (runner_is_halted(t)) {
        trainer_after_msec(&t->leave, AGAIN_MSEC, on_leave_over, t);
        return;
    }
    if (t->ring)
        ring_stop(t->ring);
    if (t->clings)
        say_hung(t, "it survives SIGKILL");
    else
        end_rank(t);
}

void program_is_asked_to_leave(Trainer *t)
{
    trainer_after_msec(&t->leave, LEAVE_MSEC, on_leave_over, t);
}

static void on_silence(void *userdata)
{
    Trainer *t = userdata;
    if (!t->hangs || !t->is_assigned || t->must_leave)
        return;
    if (runner_is_halted(t))
        trainer_after_msec(&t->silence, AGAIN_MSEC, on_silence, t);
    else
        say_hung(t, "no output and no report");
}

void program_hangs(Trainer *t)
{
    if (t->is_assigned && trainer_program(t))
        trainer_after_msec(&t->silence, SILENCE_MSEC, on_silence, t);
}

void program_is_hung(Trainer *t)
{
    if (t->ring)
        ring_stop(t->ring);
    say_hung(t, "no progress");
}

void trainers_check_finished(const char *job, int64_t generation)
{
    for (const Trainer *t = trainers; t; t = t->next)
        if (trainer_lives(t) && t->is_assigned && trainer_program(t) && !t->is_killed &&
            t->generation == generation && strcmp(t->job, job) == 0 &&
            strcmp(t->submission, books_job(job)->submission) == 0)
            books_break("alone", "%s-%lld is done, and its rank %d runs", job,
                        (long long)generation, t->rank);
}

void trainers_check_shares(const char *job, const WorldRecord *world)
{
    const TrainerPlan *plan = &trainer_plan(job)->plan;
    for (size_t i = 0; plan->program && i < world->n_runs; i++)
        if (__builtin_popcountll(world->runs[i].slots) != plan->per_node)
            books_break("shares", "%s-%lld has %d ranks on %s, and %d per node are wanted", job,
                        (long long)world->generation, __builtin_popcountll(world->runs[i].slots),
                        world->runs[i].node, plan->per_node);
}

void trainers_check_strike(const CordonCause *cause)
{
    if (cause->owner == CORDON_JOB && trainer_plan(cause->job)->plan.of)
        books_break("strike", "an evaluation strikes a machine: %s", cause->reason);
    if (cause->owner == CORDON_JOB && cause->strikes > 0 &&
        trainer_plan(cause->job)->plan.program && strstr(cause->reason, ": exit "))
        books_break("strike", "a program's own code strikes a machine: %s", cause->reason);
}
