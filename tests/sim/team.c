/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - see node.h: what sdtraind does about jobs. Follows daemon/world/job.c, local-world.c, trainer-messages.c,
 * and record-writer.c; commit.c and records.c beside it are the rest. */
#include "tests/sim/node.h"

#include "cluster/cordon.h"
#include "daemon/world/plan.h"
#include "protocol/exit-code.h"
#include "tests/sim/team.h"
#include "tests/sim/universe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    POST_PAUSE_FIRST_MSEC = 100,
    POST_PAUSE_LAST_MSEC = 2000,
    SPEC_PAUSE_MSEC = 500,
};

static Sim *sim_of(const SimNode *node) { return &node->universe->sim; }

static void post_send(SimNode *node, Team *team, PostKind kind);
static void post_write(SimNode *node, Team *team, PostKind kind);
static void read_spec(SimNode *node, Team *team);

/* ---- finding ---- */

/* Whoever calls back names a token, because a team may be gone by then. */
Team *team_find(SimNode *node, bool (*is_it)(const Team *team, uint64_t token), uint64_t token)
{
    for (int job = 0; job < JOBS_MAX; job++) {
        JobView *view = &node->jobs[job];
        if (view->team && is_it(view->team, token))
            return view->team;
        for (Team *team = view->over; team; team = team->next)
            if (is_it(team, token))
                return team;
    }
    return NULL;
}

Process *team_process(const SimNode *node, const Team *team, const Seat *seat)
{
    Process *p = seat ? &node->slots[seat->report.slot] : NULL;
    return p && p->used && p->team == team && !p->exited ? p : NULL;
}

static Seat *seat_of(Team *team, int slot)
{
    for (size_t i = 0; i < team->n_seats; i++)
        if (team->seats[i].report.slot == slot)
            return &team->seats[i];
    return NULL;
}

Seat *team_rank0(Team *team)
{
    for (size_t i = 0; i < team->n_seats; i++)
        if (team->seats[i].report.rank == 0)
            return &team->seats[i];
    return NULL;
}

bool team_is_live(const Team *team)
{
    for (size_t i = 0; i < team->n_seats; i++)
        if (team->seats[i].pending || team->seats[i].report.state != RANK_EXITED)
            return true;
    return false;
}

const Team *team_running(const SimNode *node)
{
    for (int job = 0; job < JOBS_MAX; job++)
        if (node->jobs[job].team && team_is_live(node->jobs[job].team))
            return node->jobs[job].team;
    return NULL;
}

bool team_reports_are_written(const SimNode *node)
{
    for (int job = 0; job < JOBS_MAX; job++) {
        const JobView *view = &node->jobs[job];
        if (view->team &&
            (view->team->posts[POST_REPORT].wanted || view->team->posts[POST_REPORT].call))
            return false;
        for (const Team *team = view->over; team; team = team->next)
            if (team->posts[POST_REPORT].wanted || team->posts[POST_REPORT].call)
                return false;
    }
    return true;
}

/* ---- ends ---- */

static void cancel_work(Team *team)
{
    team->posts[POST_RENDEZVOUS] = team->posts[POST_PROGRESS] = (Post){0};
    team->commit = (ModelCommit){0};
    team->spec_token = 0;
}

static void free_team(SimNode *node, Team *team)
{
    for (int i = 0; i < node->n_slots; i++)
        if (node->slots[i].team == team)
            node->slots[i].team = NULL;
    free(team);
}

static void kill_team(SimNode *node, Team *team, const char *why)
{
    bool changed = false;
    for (size_t i = 0; i < team->n_seats; i++) {
        Seat *seat = &team->seats[i];
        Process *p = team_process(node, team, seat);
        if (p)
            process_kill(p, why);
        if (!seat->pending)
            continue;
        changed = true;
        seat->pending = false;
        seat->report.state = RANK_EXITED;
        seat->report.exit_code = -SIGKILL;
        seat->report.killed = true;
        seat->report.at_usec = node_real_usec(node);
        (void)snprintf(seat->report.text, sizeof(seat->report.text), "never started: %s", why);
    }
    if (changed && !team->over)
        team_report(node, team);
}

static void end_team(SimNode *node, JobView *view, const char *why)
{
    Team *team = view->team;
    if (team) {
        view->team = NULL;
        team->next = view->over;
        view->over = team;
        team->over = true;
        team->killed_usec = 0;
        cancel_work(team);
        kill_team(node, team, why);
    }
    for (team = view->over; team; team = team->next)
        if (team->killed_usec)
            team_report(node, team); /* once more, under the guard of the new revision */
}

void team_refuse(SimNode *node, Team *team)
{
    if (team->over)
        return; /* the next word about the world sends it again */
    sim_say(sim_of(node), "%s: %s-%lld is refused, the world has moved", node->name,
            universe_job_name(team->job), (long long)team->generation);
    kill_team(node, team, "etcd refused a write: the world has moved");
}

void team_forget_all(SimNode *node)
{
    for (int job = 0; job < JOBS_MAX; job++) {
        JobView *view = &node->jobs[job];
        free(view->team);
        for (Team *team = view->over, *next; team; team = next) {
            next = team->next;
            free(team);
        }
        (void)value_unref(view->phase); /* NULL always */
        *view = (JobView){0};
    }
}

/* ---- posts ---- */

static bool has_post_call(const Team *team, uint64_t token)
{
    for (int kind = 0; kind < POST_KINDS; kind++)
        if (team->posts[kind].call == token)
            return true;
    return false;
}

static bool has_post_retry(const Team *team, uint64_t token)
{
    for (int kind = 0; kind < POST_KINDS; kind++)
        if (team->posts[kind].retry == token)
            return true;
    return false;
}

static void on_post_retry(_unused_ Universe *u, void *who, uint64_t token)
{
    SimNode *node = who;
    Team *team = team_find(node, has_post_retry, token);
    for (int kind = 0; team && kind < POST_KINDS; kind++)
        if (team->posts[kind].retry == token) {
            team->posts[kind].retry = 0;
            if (team->posts[kind].wanted)
                post_write(node, team, (PostKind)kind);
        }
}

static void post_later(SimNode *node, Post *post)
{
    post->wanted = true;
    post->pause_usec = CLAMP(post->pause_usec * 2, POST_PAUSE_FIRST_MSEC * USEC_PER_MSEC,
                             POST_PAUSE_LAST_MSEC * USEC_PER_MSEC);
    if (post->retry)
        return;
    post->retry = sim_serial(sim_of(node));
    sim_timer(sim_of(node), &node->actor, post->pause_usec, on_post_retry, node, post->retry);
}

/* A team that is over goes once etcd knows that it is dead, and of each of its ranks that it ended. */
static void report_is_written(SimNode *node, Team *team)
{
    JobView *view = &node->jobs[team->job];
    if (!team->over || !team->killed_usec || view->team == team || team_is_live(team))
        return;
    for (Team **at = &view->over; *at; at = &(*at)->next)
        if (*at == team) {
            *at = team->next;
            break;
        }
    free_team(node, team);
}

static void set_rendezvous(SimNode *node, int job, int64_t generation, int64_t revision, bool there)
{
    JobView *view = &node->jobs[job];
    if (revision < view->rendezvous_revision)
        return;
    if (there) {
        view->rendezvous_revision = revision;
        view->rendezvous_generation = generation;
        team_advance(node, job);
    } else if (generation == view->rendezvous_generation) {
        view->rendezvous_revision = revision;
        view->rendezvous_generation = 0;
    }
}

static void on_posted(_unused_ Universe *u, void *who, uint64_t token, const CallResult *result)
{
    SimNode *node = who;
    Team *team = team_find(node, has_post_call, token);
    if (!team)
        return;
    int kind = 0;
    while (team->posts[kind].call != token)
        kind++;
    Post *post = &team->posts[kind];
    post->call = 0;
    if (result->r < 0) {
        post_later(node, post);
        return;
    }
    node_note_contact(node);
    post->pause_usec = 0;
    if (!result->succeeded) {
        team_refuse(node, team);
        if (post->wanted && team->over)
            post_write(node, team, (PostKind)kind); /* its guard is another one now */
        return;
    }
    if (post->wanted)
        post_write(node, team, (PostKind)kind);
    else if (kind == POST_REPORT)
        report_is_written(node, team);
    else if (kind == POST_RENDEZVOUS)
        set_rendezvous(node, team->job, team->generation, result->revision, true);
    node_advance_drain(node); /* it waits for what is written */
}

static void post_write(SimNode *node, Team *team, PostKind kind)
{
    Post *post = &team->posts[kind];
    int lease = kind == POST_REPORT ? node->client.lease : -1;
    if (kind == POST_REPORT && lease < 0)
        return; /* the next lease brings it up again */
    Txn txn = {.node = node};
    txn_compare(&txn, COMPARE_MOD, team_world_key(node, team), team_guard_revision(node, team));
    txn_put(&txn, team_post_key(node, team, kind), team_post_value(node, team, kind), lease);
    post->wanted = false;
    post->call = sim_serial(sim_of(node));
    client_txn(&node->client, &txn, on_posted, node, post->call);
}

static void post_send(SimNode *node, Team *team, PostKind kind)
{
    Post *post = &team->posts[kind];
    post->wanted = true;
    if (!post->call && !post->retry)
        post_write(node, team, kind);
}

void team_report(SimNode *node, Team *team) { post_send(node, team, POST_REPORT); }

void team_report_all(SimNode *node)
{
    for (int job = 0; job < JOBS_MAX; job++) {
        if (node->jobs[job].team)
            team_report(node, node->jobs[job].team);
        for (Team *team = node->jobs[job].over; team; team = team->next)
            if (team->killed_usec)
                team_report(node, team);
    }
}

/* ---- what trainers say ---- */

static void set_state(SimNode *node, Team *team, Seat *seat, RankState state)
{
    if (seat->report.state == state || seat->report.state == RANK_EXITED)
        return;
    seat->report.state = state;
    seat->report.at_usec = node_real_usec(node);
    team_report(node, team);
}

static uint64_t real_of(const SimNode *node, uint64_t usec)
{
    return usec ? node_real_usec(node) - (node->universe->sim.now_usec - usec) : 0;
}

static void on_wait(SimNode *node, Team *team, const Process *p)
{
    if (team->progress.generation == 0)
        team->progress = (ProgressRecord){.generation = team->generation,
                                          .step = p->ring->step,
                                          .committed = team->progress.committed};
    team->progress.waits_since_usec = real_of(node, p->ring->waiting_usec);
    post_send(node, team, POST_PROGRESS);
}

static void on_step(SimNode *node, Team *team, Seat *seat, Process *p)
{
    int64_t step = p->ring->step;
    set_state(node, team, seat, RANK_RUNNING);
    if (p->rank != 0)
        return;
    p->waits_told = false;
    team->progress = (ProgressRecord){.generation = team->generation,
                                      .step = step,
                                      .steps = node->universe->options.jobs[team->job].steps,
                                      .step_sec = (double)node->universe->options.step_usec / 1e6,
                                      .at_usec = node_real_usec(node),
                                      .committed = team->progress.committed,
                                      .unsaved_since_usec = real_of(node, p->unsaved_usec)};
    post_send(node, team, POST_PROGRESS);
    if (team->first_step)
        return;
    team->first_step = step;
    team->first_step_usec = node_real_usec(node);
    team_report(node, team);
}

void team_hears(Process *p, ModelWord word)
{
    SimNode *node = p->node;
    Team *team = p->team;
    if (!team || team->over || p->exited)
        return;
    Seat *seat = seat_of(team, p->slot);
    assert(seat); /* it was started for it */
    switch (word) {
    case WORD_HELLO:
        p->said_hello = true;
        team_advance(node, team->job);
        break;
    case WORD_READY:
        p->is_ready = true;
        seat->report.ready_usec = node_real_usec(node);
        if (p->rank == 0)
            post_send(node, team, POST_RENDEZVOUS);
        set_state(node, team, seat, RANK_READY);
        team_advance(node, team->job);
        break;
    case WORD_STEP:
        on_step(node, team, seat, p);
        break;
    case WORD_SAVED:
        if (p->awaiting)
            team_commit(node, team, p);
        break;
    case WORD_FOUND:
        team_commit_found(node, team, p);
        break;
    case WORD_WAIT:
        if (p->ring->waiting_usec)
            on_wait(node, team, p);
        break;
    case WORD_EXIT:
        break; /* node.c */
    }
}

void team_note_exit(Process *p)
{
    SimNode *node = p->node;
    Seat *seat = p->team ? seat_of(p->team, p->slot) : NULL;
    bool survives = p->lost && !p->exited;
    if (!seat || (survives && seat->report.state == RANK_EXITED))
        return;
    ExitVerdict verdict = {.code = -SIGKILL, .text = "it survives SIGKILL; the slot is lost"};
    if (!survives)
        verdict = exit_judge(p->exit_code >= 0 ? CLD_EXITED : CLD_KILLED, abs(p->exit_code),
                             &p->words, "", p->killing ? p->why : NULL);
    uint64_t still_usec = sim_of(node)->now_usec - p->watchdog.changed_usec;
    if (verdict.code == -SIGKILL && !p->killing &&
        still_usec > node->universe->options.ttl_usec * 3 / 4)
        verdict.hung = true; /* its dead-man timer ended it */
    RankReport *report = &seat->report;
    report->state = RANK_EXITED;
    report->exit_code = verdict.code;
    if (!report->hung) {
        report->step = p->step;
        report->stage = (int)p->stage;
    }
    report->hung = report->hung || verdict.hung;
    report->killed = p->killing && !report->hung && !p->words.error;
    report->at_usec = node_real_usec(node);
    memcpy(report->text, verdict.text, sizeof(report->text));
    if (!p->team->over || p->team->killed_usec)
        team_report(node, p->team);
}

/* ---- what the watches say ---- */

static Team *new_team(int job, const WorldRecord *world, int64_t revision, const PlannedRank *seats,
                      size_t n_seats, const SimNode *node)
{
    Team *team = sim_new(sizeof(*team) + n_seats * sizeof(Seat));
    team->job = job;
    team->generation = world->generation;
    team->world_revision = revision;
    team->world_size = world->size;
    team->resume = store_find(&node->universe->store, world->resume.uri);
    team->resume_step = world->resume.find ? 0 : world->resume.step;
    team->find = world->resume.find;
    team->progress.committed = world->committed;
    memcpy(team->submission, world->submission, sizeof(team->submission));
    team->n_seats = n_seats;
    for (size_t i = 0; i < n_seats; i++)
        team->seats[i] = (Seat){.pending = true,
                                .report = {.slot = seats[i].slot,
                                           .rank = seats[i].rank,
                                           .state = RANK_STARTING,
                                           .step = world->resume.step,
                                           .at_usec = node_real_usec(node)}};
    return team;
}

static void set_world(SimNode *node, int job, const WorldRecord *world, int64_t revision)
{
    JobView *view = &node->jobs[job];
    if (!world) {
        view->world_revision = 0;
        end_team(node, view, "the job was removed");
        return;
    }
    if (revision <= view->world_revision)
        return;
    view->world_revision = revision;
    end_team(node, view, "a later generation replaces it");

    PlannedRank seats[RECORD_SLOTS_MAX];
    size_t n_seats = 0;
    int r = plan_ranks(world, node->name, node->incarnation, node->n_slots, seats, &n_seats, NULL);
    if (r < 0)
        sim_fail(sim_of(node), "I6", "worlds/%s gives %s slots that it cannot give",
                 universe_job_name(job), node->name);
    if (r == 0 && n_seats > 0) {
        view->team = new_team(job, world, revision, seats, n_seats, node);
        read_spec(node, view->team);
    }
    team_advance(node, job);
}

static void set_cordon(SimNode *node, const CordonRecord *cordon)
{
    char machine[33];
    for (int i = 0; i < node->n_slots; i++) {
        Process *p = &node->slots[i];
        const CordonCause *cause =
            p->used ? cordon_strongest(cordon, node_machine(node, machine),
                                       universe_job_name(p->job), node_real_usec(node))
                    : NULL;
        if (cause && cause->mode == CORDON_QUARANTINE)
            process_kill(p, "node is quarantined");
    }
}

static void lose_world(SimNode *node, int job, int64_t revision)
{
    JobView *view = &node->jobs[job];
    if (revision <= view->world_revision)
        return;
    view->world_revision = revision;
    end_team(node, view, "its world cannot be read");
    team_advance(node, job);
}

void team_watch(Universe *u, void *who, const WatchEvent *events, size_t n, _unused_ bool initial)
{
    SimNode *node = who;
    node_note_contact(node);
    for (size_t i = 0; i < n; i++) {
        const ModelKey *key = &u->etcd.keys[events[i].key];
        KeyKind kind = key->kind;
        int64_t generation = key->generation;
        if (events[i].value && !value_record(events[i].value)) {
            if (kind == KEY_WORLDS)
                lose_world(node, universe_job_index(key->name), events[i].revision);
            continue; /* of the rest what was known holds on */
        }
        if (kind == KEY_CORDONS) {
            if (events[i].value && strcmp(key->name, node->name) == 0)
                set_cordon(node, value_record(events[i].value));
            continue;
        }
        int job = universe_job_index(key->name);
        if (kind == KEY_WORLDS) {
            set_world(node, job, value_record(events[i].value), events[i].revision);
        } else if (kind == KEY_PHASES) {
            (void)value_unref(node->jobs[job].phase); /* NULL always */
            node->jobs[job].phase = value_ref(events[i].value);
            team_advance(node, job);
        } else if (kind == KEY_RENDEZVOUS) {
            set_rendezvous(node, job, generation, events[i].revision, events[i].value != NULL);
        }
    }
}

/* ---- the job file ---- */

static bool has_spec_call(const Team *team, uint64_t token) { return team->spec_token == token; }

static void on_spec_retry(_unused_ Universe *u, void *who, uint64_t token)
{
    SimNode *node = who;
    Team *team = team_find(node, has_spec_call, token);
    if (team)
        read_spec(node, team);
}

static void on_spec(_unused_ Universe *u, void *who, uint64_t token, const CallResult *result)
{
    SimNode *node = who;
    Team *team = team_find(node, has_spec_call, token);
    if (!team)
        return;
    const JobFacts *facts =
        result->r >= 0 && result->n_items ? value_record(result->items[0].value) : NULL;
    if (!facts || strcmp(facts->submission, team->submission) != 0) {
        team->spec_token = sim_serial(sim_of(node));
        sim_timer(sim_of(node), &node->actor, SPEC_PAUSE_MSEC * USEC_PER_MSEC, on_spec_retry, node,
                  team->spec_token);
        return;
    }
    team->spec_token = 0;
    team->has_spec = true;
    team_advance(node, team->job);
}

static void read_spec(SimNode *node, Team *team)
{
    int key = etcd_key(&node->universe->etcd, KEY_SPECS, universe_job_name(team->job), 0, -1);
    team->spec_token = sim_serial(sim_of(node));
    client_read(&node->client, &key, 1, on_spec, node, team->spec_token);
}

/* ---- what can be done now ---- */

static void start_process(SimNode *node, Team *team, Seat *seat)
{
    Process *p = &node->slots[seat->report.slot];
    assert(!p->used);
    *p = (Process){.node = node,
                   .slot = seat->report.slot,
                   .job = team->job,
                   .rank = seat->report.rank,
                   .world_size = team->world_size,
                   .generation = team->generation,
                   .world_revision = team->world_revision,
                   .resume = team->resume,
                   .resume_step = team->resume_step,
                   .find = team->find,
                   .team = team};
    memcpy(p->submission, team->submission, sizeof(p->submission));
    seat->report.started_usec = seat->report.at_usec = node_real_usec(node);
    trainer_start(p);
}

static void start_pending(SimNode *node, Team *team)
{
    bool changed = false;
    for (size_t i = 0; i < team->n_seats; i++) {
        Seat *seat = &team->seats[i];
        const Process *tenant = &node->slots[seat->report.slot];
        if (!seat->pending || (tenant->used && !tenant->lost))
            continue; /* it is being killed; its end brings us back */
        seat->pending = false;
        changed = true;
        if (!tenant->used) {
            start_process(node, team, seat);
            continue;
        }
        seat->report.state = RANK_EXITED;
        seat->report.exit_code = EXIT_RETRY;
        seat->report.at_usec = node_real_usec(node);
        (void)snprintf(seat->report.text, sizeof(seat->report.text), "its slot is lost");
    }
    if (changed)
        team_report(node, team);
}

/* The phase of a job that was deleted, beside the world of the one that has its name now. */
static bool phase_concerns(const PhaseRecord *phase, const Team *team)
{
    return strcmp(phase->submission, team->submission) == 0;
}

static void advance_ranks(SimNode *node, Team *team)
{
    const JobView *view = &node->jobs[team->job];
    const PhaseRecord *phase = value_record(view->phase);
    bool ours = phase && phase_concerns(phase, team) && phase->generation == team->generation;
    bool go = ours && phase->go &&
              (team->world_size == 1 || (view->rendezvous_generation == team->generation &&
                                         view->rendezvous_revision > team->world_revision));
    for (size_t i = 0; i < team->n_seats; i++) {
        Process *p = team_process(node, team, &team->seats[i]);
        if (!p || p->killing)
            continue;
        if (team->has_spec && p->said_hello && !p->was_assigned) {
            p->was_assigned = true;
            trainer_assign(p);
        }
        if (go && p->is_ready && !p->has_gone) {
            p->has_gone = true;
            checker_phase_acts(node->universe, team, phase);
            trainer_go(p);
        }
        if (ours && phase->leave && p->rank == 0 && p->has_gone && !p->was_stopped) {
            p->was_stopped = true;
            checker_phase_acts(node->universe, team, phase);
            trainer_leave(p);
        }
    }
}

static bool is_dead(const SimNode *node, const Team *team)
{
    for (int i = 0; i < node->n_slots; i++)
        if (node->slots[i].used && node->slots[i].team == team && !node->slots[i].lost)
            return false;
    return true;
}

/* Teams that are over: their ranks are dead (or hold a lost slot), and etcd is told. */
static void settle_over(SimNode *node, JobView *view)
{
    bool all_dead = true;
    for (Team *team = view->over; team; team = team->next) {
        if (!is_dead(node, team)) {
            all_dead = false;
        } else if (!team->killed_usec) {
            team->killed_usec = node_real_usec(node);
            team_report(node, team);
        }
    }
    if (view->over && all_dead && view->team && !view->team->killed_usec) {
        view->team->killed_usec = node_real_usec(node);
        team_report(node, view->team);
    }
}

void team_advance(SimNode *node, int job)
{
    JobView *view = &node->jobs[job];
    const PhaseRecord *phase = value_record(view->phase);
    if (!node->actor.alive)
        return;
    if (phase && view->team && phase_concerns(phase, view->team) &&
        phase->generation >= view->team->generation &&
        (phase->phase == PHASE_PENDING || phase->phase >= PHASE_STOPPED || phase->pause_usec > 0)) {
        checker_phase_acts(node->universe, view->team, phase);
        kill_team(node, view->team, "the job's phase ends it");
    }
    settle_over(node, view);
    if (view->team && !view->team->over) {
        start_pending(node, view->team);
        advance_ranks(node, view->team);
    }
    node_touch(node);
}
