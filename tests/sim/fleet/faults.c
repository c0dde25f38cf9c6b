/* SPDX-License-Identifier: Apache-2.0 */
/* faults.c - see faults.h. */
#include "tests/sim/fleet/faults-internal.h"

#include "base/memory.h"
#include "base/number/philox.h"
#include "daemon/loop/timer.h"
#include "tests/sim/fleet/lost.h"
#include "tests/sim/fleet/manifests.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)
#define MSEC(n) ((uint64_t)(n)*USEC_PER_MSEC)

static const Play *play;
static uint64_t seed, n_draws, n_struck;
static bool is_healed, is_silent;

/* ---- draws ---- */

uint32_t play_draw_below(uint32_t n)
{
    const Philox block = philox4x32(seed, 1, n_draws++);
    return (uint32_t)((uint64_t)block.word[0] * n >> 32);
}

const Play *faults_play(void) { return play; }
bool faults_are_healed(void) { return is_healed; }

uint64_t faults_some_while(void)
{
    const uint64_t ttl = SEC(play->fleet.lease_sec);
    const int which = below(4);
    return which == 0  ? between(MSEC(50), ttl / 2)
           : which < 3 ? between(ttl / 2, 2 * ttl)
                       : between(2 * ttl, 5 * ttl);
}

static int some_node(void) { return below(play->fleet.n_nodes); }
static int some_slot(void) { return below(play->fleet.n_slots); }
static int some_controller(void) { return below(play->fleet.n_controllers); }
static size_t some_member(void) { return (size_t)below(play->fleet.n_members); }
static const FleetJob *some_job(void) { return &play->jobs[below(play->n_jobs)]; }

static size_t some_machine(void)
{
    return chance(700) ? fleet_machine(true, some_node()) : fleet_machine(false, some_controller());
}

/* ---- delayed actions ---- */

typedef struct Later {
    struct Later *next;
    Timer timer;
    void (*act)(int whom);
    int whom;
    bool is_done;
} Later;

static sd_event *loop;
static Timers timers;
static Later *laters;

static void on_no_timer(_unused_ void *userdata, _unused_ const Error *err) { abort(); }

static void on_later(void *userdata)
{
    Later *l = userdata;
    l->is_done = true;
    l->act(l->whom);
}

void faults_later(uint64_t usec, void (*act)(int whom), int whom)
{
    Later *l = memory_new(Later);
    *l = (Later){.next = laters, .act = act, .whom = whom};
    laters = l;
    timer_start(&timers, &l->timer, usec, on_later, l);
}

/* ---- machines ---- */

static void crash_daemon(void)
{
    const int node = some_node();
    if (fleet_runs(node))
        fleet_restart_daemon(node, between(MSEC(50), MSEC(1500)));
}

static void lose_power(void) { fleet_restart_daemon(some_node(), faults_some_while()); }

static void lose_power_of_many(void)
{
    for (int i = 0, n = 1 + below(play->fleet.n_nodes); i < n; i++)
        lose_power();
}

static void replace_machine(void) { fleet_replace(some_node(), faults_some_while()); }
static void drain_node(void) { fleet_drain(some_node(), faults_some_while()); }
static void on_thawed(int node) { fleet_freeze_daemon(node, false, true); }

static void freeze(int node, bool whole, uint64_t usec)
{
    fleet_say("n%d: %s is frozen for %.1f s", node, whole ? "the host" : "sdtraind",
              (double)usec / 1e6);
    fleet_freeze_daemon(node, true, whole);
    faults_later(usec, on_thawed, node);
}

static void freeze_host(void) { freeze(some_node(), true, faults_some_while()); }
static void freeze_daemon(void) { freeze(some_node(), false, faults_some_while()); }

static void freeze_many_hosts(void)
{
    const uint64_t usec = faults_some_while();
    for (int i = 0; i < play->fleet.n_nodes; i++)
        if (chance(600))
            freeze(i, true, usec + between(0, MSEC(300)));
}

static void on_healthy(int node) { fleet_judge(node, NODE_HEALTHY); }

static void change_verdict(void)
{
    const int node = some_node();
    fleet_judge(node, (NodeVerdict)(1 + below(3)));
    faults_later(faults_some_while(), on_healthy, node);
}

static void step_clock(void)
{
    const int64_t by = (int64_t)between(0, SEC(1200)) - (int64_t)SEC(600);
    const bool of_node = chance(500);
    fleet_step_clock(of_node, of_node ? some_node() : some_controller(), by);
}

static void differ(void) { trainers_differ(some_node(), true); }

/* ---- the network ---- */

static void on_path_mended(int machine)
{
    fleet_cut((size_t)machine, false, false);
    fleet_clog((size_t)machine, 0);
}

static void cut_path(void)
{
    const size_t machine = some_machine();
    const int how = below(4);
    fleet_cut(machine, how != 0, how != 1);
    faults_later(faults_some_while(), on_path_mended, (int)machine);
}

static void cut_many_paths(void)
{
    const uint64_t usec = faults_some_while();
    for (int i = 0; i < play->fleet.n_nodes; i++)
        if (chance(600)) {
            fleet_cut(fleet_machine(true, i), true, true);
            faults_later(usec, on_path_mended, (int)fleet_machine(true, i));
        }
}

static void clog_path(void)
{
    const size_t machine = some_machine();
    fleet_clog(machine, between(MSEC(10), SEC(3)));
    faults_later(faults_some_while(), on_path_mended, (int)machine);
}

static void reset_connections(void) { fleet_reset(some_machine()); }

static void reset_many_connections(void)
{
    for (int i = 0; i < play->fleet.n_nodes; i++)
        if (chance(600))
            fleet_reset(fleet_machine(true, i));
}

static void on_peers_mended(int node) { trainers_part(node, 0); }

static void part_peers(void)
{
    const int node = some_node();
    trainers_part(node, node + 1);
    faults_later(faults_some_while(), on_peers_mended, node);
}

/* ---- etcd's members ---- */

static void on_member_well(int member)
{
    Server *server = fleet_server();
    const size_t m = (size_t)member;
    if (is_silent)
        return; /* this fault ends during the silence, in which all members stay stopped */
    network_freeze(m, false);
    server_thaw(server, m);
    if (!server_is_up(server, m))
        server_start(server, m);
    server_join(server, m);
    server_start_disk(server, m);
    server_lag(server, m, 0);
    network_server_changed();
}

void faults_silence(bool on)
{
    is_silent = on;
    for (int i = 0; i < play->fleet.n_members; i++) {
        if (!on) {
            on_member_well(i);
            continue;
        }
        server_freeze(fleet_server(), (size_t)i);
        network_freeze((size_t)i, true);
    }
    network_server_changed();
}

static void hurt_member(size_t member)
{
    Server *server = fleet_server();
    static const char *const words[] = {"stops",     "is cut off from the others",
                                        "is frozen", "has a disk that stands still",
                                        "lags",      "is to lead"};
    const int how = below(ELEMENTSOF(words));
    fleet_say("etcd: member %zu %s", member, words[how]);
    if (how == 0 && server_is_up(server, member))
        server_stop(server, member);
    else if (how == 1)
        server_isolate(server, member);
    else if (how == 2) {
        server_freeze(server, member);
        network_freeze(member, true);
    } else if (how == 3)
        server_stop_disk(server, member);
    else if (how == 4)
        server_lag(server, member, between(MSEC(5), SEC(2)));
    else if (how == 5)
        server_elect(server, member);
    network_server_changed();
    faults_later(faults_some_while(), on_member_well, (int)member);
}

static void hurt_one_member(void) { hurt_member(some_member()); }

static void lose_quorum(void)
{
    for (size_t i = 0; i < (size_t)play->fleet.n_members / 2 + 1; i++)
        hurt_member(some_member());
}

static void compact(void)
{
    const char *text;
    Server *server = fleet_server();
    (void)server_compact(server, server_revision(server),
                         &text); /* fails only if there is nothing new to compact */
    network_server_changed();
}

/* ---- controllers ---- */

static void crash_controller(void)
{
    fleet_restart_controller(some_controller(), between(MSEC(100), SEC(3)));
}

static void stop_controller(void)
{
    fleet_leave_controller(some_controller(), between(MSEC(100), SEC(3)));
}

static void on_controller_thawed(int controller) { fleet_freeze_controller(controller, false); }

static void freeze_controller(void)
{
    const int controller = some_controller();
    fleet_freeze_controller(controller, true);
    faults_later(faults_some_while(), on_controller_thawed, controller);
}

/* ---- trainers and their store ---- */

static void exit_trainer(void)
{
    static const struct {
        int code;
        const char *text;
    } ends[] = {{-9, ""},
                {-11, ""},
                {-7, ""},
                {1, "a bug"},
                {75, "again"},
                {80, "XID 79"},
                {81, "a peer is gone"},
                {83, "the store does not answer"}};
    const int i = below(ELEMENTSOF(ends));
    (void)trainer_exit(some_node(), some_slot(), ends[i].code, ends[i].text);
}

static void hang_trainer(void)
{
    const int node = some_node(), slot = some_slot();
    if (trainer_hang(node, slot))
        fleet_say("n%d slot %d: its trainer hangs", node, slot);
}

static void on_continued(int where)
{
    (void)trainer_stop(where / RECORD_SLOTS_MAX, where % RECORD_SLOTS_MAX, false);
}

static void stop_trainer(void)
{
    const int node = some_node(), slot = some_slot();
    if (!trainer_stop(node, slot, true))
        return;
    fleet_say("n%d slot %d: its trainer is stopped", node, slot);
    faults_later(faults_some_while(), on_continued, node * RECORD_SLOTS_MAX + slot);
}

static void on_mortal(int where)
{
    (void)trainer_cling(where / RECORD_SLOTS_MAX, where % RECORD_SLOTS_MAX, false);
}

static void cling(void)
{
    const int node = some_node(), slot = some_slot();
    if (!trainer_cling(node, slot, true))
        return;
    fleet_say("n%d slot %d: its trainer will survive SIGKILL", node, slot);
    faults_later(faults_some_while() + SEC(2), on_mortal, node * RECORD_SLOTS_MAX + slot);
}

static void poison(void)
{
    const FleetJob *job = some_job();
    trainers_poison(job->name, books_job(job->name)->committed + 1 + below(50));
}

static void damage_checkpoint(void)
{
    const int n = manifests_damage();
    if (n > 0)
        fleet_say("the newest %d checkpoints are damaged", n);
}

static void take_over(void)
{
    const FleetJob *job = some_job();
    if (!books_job(job->name)->has_spec)
        return;
    fleet_say("somebody: takes the checkpoint folder of %s over", job->name);
    trainers_take_over(job->name, true);
}

static void on_node_store_back(int node) { trainers_cut_store(node, false); }

static void cut_node_from_store(void)
{
    const int node = some_node();
    fleet_say("n%d: the store does not answer it", node);
    trainers_cut_store(node, true);
    faults_later(faults_some_while(), on_node_store_back, node);
}

static void on_store_back(_unused_ int whom)
{
    /* The healing has ended this store outage already, and outage.c may have begun another one. */
    if (!is_healed)
        manifests_lose(false);
}

static void lose_store(void)
{
    fleet_say("the store is out");
    manifests_lose(true);
    faults_later(faults_some_while(), on_store_back, 0);
}

/* ---- people ---- */

static void resize(void)
{
    const FleetJob *job = some_job();
    if (books_job(job->name)->has_spec)
        fleet_want(job, DESIRED_RUNNING, below(job->max + 1));
}

static void stop_and_start(void)
{
    const FleetJob *job = some_job();
    if (books_job(job->name)->has_spec)
        fleet_want(job, chance(400) ? DESIRED_STOPPED : DESIRED_RUNNING, 0);
}

static void on_submit(int job)
{
    const JobBooks *books = books_job(play->jobs[job].name);
    if (!books->has_spec && !books->has_desired && !books->has_phase)
        fleet_submit_job(&play->jobs[job]);
    else if (!is_healed)
        faults_later(SEC(1), on_submit, job);
}

static void delete_job(void)
{
    const int job = below(play->n_jobs);
    if (!books_job(play->jobs[job].name)->has_spec)
        return;
    fleet_want(&play->jobs[job], DESIRED_DELETED, 0);
    faults_later(faults_some_while(), on_submit, job);
}

static void cordon(void)
{
    static const CordonMode modes[] = {CORDON_NONE, CORDON_CORDON, CORDON_DRAIN, CORDON_NONE};
    fleet_cordon(some_node(), modes[below(ELEMENTSOF(modes))]);
}

/* ---- the kinds of faults ---- */

static const struct {
    const char *name;
    void (*strike)(void);
} faults[] = {
    {"crash-daemon", crash_daemon},
    {"lose-power", lose_power},
    {"lose-power-of-many", lose_power_of_many},
    {"replace-machine", replace_machine},
    {"drain-node", drain_node},
    {"freeze-host", freeze_host},
    {"freeze-many-hosts", freeze_many_hosts},
    {"freeze-daemon", freeze_daemon},
    {"change-verdict", change_verdict},
    {"step-clock", step_clock},
    {"differ-in-numerics", differ},
    {"cut-path", cut_path},
    {"cut-many-paths", cut_many_paths},
    {"clog-path", clog_path},
    {"reset-connections", reset_connections},
    {"reset-many-connections", reset_many_connections},
    {"part-peers", part_peers},
    {"hurt-member", hurt_one_member},
    {"lose-quorum", lose_quorum},
    {"compact", compact},
    {"crash-controller", crash_controller},
    {"stop-controller", stop_controller},
    {"freeze-controller", freeze_controller},
    {"exit-trainer", exit_trainer},
    {"hang-trainer", hang_trainer},
    {"stop-trainer", stop_trainer},
    {"cling", cling},
    {"poison", poison},
    {"lose-store", lose_store},
    {"resize", resize},
    {"stop-and-start", stop_and_start},
    {"delete-job", delete_job},
    {"cordon", cordon},
    {"lose-record", lost_strike},
    {"damage-checkpoint", damage_checkpoint},
    {"take-over", take_over},
    {"cut-node-from-store", cut_node_from_store},
};

/* Returns the variable SDTRAIN_SIM_FAULTS: "lose-record cordon" allows only faults of these kinds. */
static const char *asked_for(void) { return getenv("SDTRAIN_SIM_FAULTS"); }

static bool is_among(const char *name, const char *names)
{
    const char *at = names;
    for (; (at = strstr(at, name)); at += strlen(name))
        if ((at == names || at[-1] == ' ') && (at[strlen(name)] == ' ' || !at[strlen(name)]))
            return true;
    return false;
}

/* Draws one of all kinds of faults, even if the kind does not strike in this schedule. So how often
 * a kind strikes does not depend on which other kinds strike. */
static int some_fault(void)
{
    int which = below(ELEMENTSOF(faults));
    for (size_t i = 0; asked_for() && i < ELEMENTSOF(faults) && !(play->faults >> which & 1); i++)
        which = (which + 1) % (int)ELEMENTSOF(faults);
    return which;
}

static void on_fault(_unused_ int whom)
{
    const int which = some_fault();
    if (is_healed)
        return;
    if (play->faults >> which & 1) {
        n_struck++;
        fleet_say("fault: %s", faults[which].name);
        faults[which].strike();
    }
    faults_later(between(0, 2 * play->gap_usec), on_fault, 0);
}

static void on_leak(_unused_ int whom)
{
    if (is_healed)
        return;
    if (trainers_leak(play->jobs[0].name))
        fleet_say("%s leaks: a trainer of it is killed", play->jobs[0].name);
    faults_later(SEC(2), on_leak, 0);
}

/* Names the newest checkpoint of the first job, and now and then an older one, also after the healing. */
static void on_namer(int n)
{
    enum { NAMES_MAX = 20 };
    int number = manifests_newest(books_job(play->jobs[0].name)->submission);
    for (int i = 0; number >= 0 && i < n % 3 && manifests_get(number)->parent >= 0; i++)
        number = manifests_get(number)->parent;
    if (number >= 0)
        fleet_name_checkpoint(play->jobs[play->n_jobs - 1].name, number);
    if (n < NAMES_MAX)
        faults_later(SEC(1 + n % 5), on_namer, n + 1);
}

static void on_stranger(int node)
{
    if (is_healed)
        return;
    fleet_forge_node(node >= 0 ? node : some_node());
    faults_later(between(MSEC(20), SEC(2)), on_stranger, node);
}

/* ---- drawing a schedule from a seed ---- */

void play_draw(uint64_t its_seed, int n_nodes, Play *ret)
{
    static const int ttls[] = {2, 2, 3, 5};
    seed = its_seed;
    n_draws = 0;
    *ret = (Play){.has_outage = its_seed % 3 == 0,
                  .has_silence = its_seed % 5 == 2,
                  .fleet = {.seed = its_seed, .n_nodes = n_nodes, .core = cluster_config_default}};
    FleetOptions *fleet = &ret->fleet;
    fleet->n_members = chance(500) ? 1 : 3;
    fleet->n_controllers = 1 + below(3);
    fleet->n_slots = 1 + below(2);
    fleet->lease_sec = ttls[below(ELEMENTSOF(ttls))];
    fleet->fence_sec = 4 + below(30);
    fleet->drain_sec = 2 + below(20);
    fleet->hang_floor_sec = 2 + below(5);
    fleet->startup_sec = 10;
    fleet->save_sec = 20;
    fleet->core.ttl_usec = SEC(fleet->lease_sec);
    fleet->core.start_deadline_usec = SEC(8 + below(8));
    fleet->core.leave_deadline_usec = SEC(8 + below(8));
    fleet->core.max_strikes = 2 + below(4);
    fleet->core.incidents_kept = 20;
    fleet->core.queue_patience_usec = SEC(below(3));
    ret->n_jobs = 1 + below(PLAY_JOBS_MAX - 1);
    /* after the healing, all jobs must be able to run */
    ret->n_jobs = MIN(ret->n_jobs, n_nodes * fleet->n_slots);
    for (int i = 0; i < ret->n_jobs; i++)
        play_draw_job(ret, i);
    if (its_seed % 8 == 5) { /* some machines have GPUs, and some jobs need GPUs */
        fleet->gpu_key = its_seed;
        for (int i = 0; i < ret->n_jobs; i++)
            ret->jobs[i].plan.needs_gpu = chance(667);
    }
    if (its_seed % 7 == 2)
        play_draw_programs(ret);
    if (its_seed % 6 == 3)
        play_add_evaluation(ret);
    for (int i = 0; its_seed % 7 == 3 && i < ret->n_jobs; i++) {
        fleet->startup_sec = 20;
        ret->jobs[i].plan.first_usec = SEC(7 + its_seed / 7 % 8);
    }
    /* leaks, has_stranger and has_namer are computed, not drawn: the schedules of other seeds stay the same */
    ret->leaks = its_seed % 16 == 9;
    ret->has_stranger = its_seed % 9 == 4;
    ret->has_namer = its_seed % 12 == 3 && ret->jobs[ret->n_jobs - 1].plan.of;
    if (chance(500))
        fleet->core.quarantine_usec = SEC(3 + below(20));
    ret->faults_usec = between(SEC(15), SEC(50));
    ret->gap_usec = between(MSEC(50), SEC(1));
    for (size_t i = 0; i < ELEMENTSOF(faults); i++)
        ret->faults |= (uint64_t)chance(350) << i;
    for (size_t i = 0; asked_for() && i < ELEMENTSOF(faults); i++) {
        ret->faults &= ~(UINT64_C(1) << i);
        ret->faults |= (uint64_t)is_among(faults[i].name, asked_for()) << i;
    }
}

void play_describe(const Play *its)
{
    const FleetOptions *f = &its->fleet;
    printf("%d nodes of %d slots, %d jobs, %d controllers, %d members, TTL %lld s, a fault each "
           "%llu ms for %llu s:",
           f->n_nodes, f->n_slots, its->n_jobs, f->n_controllers, f->n_members,
           (long long)f->lease_sec, (unsigned long long)(its->gap_usec / USEC_PER_MSEC),
           (unsigned long long)(its->faults_usec / USEC_PER_SEC));
    for (size_t i = 0; i < ELEMENTSOF(faults); i++)
        if (its->faults >> i & 1)
            printf(" %s", faults[i].name);
    printf("%s%s", its->leaks ? " a-leak" : "", its->has_stranger ? " a-stranger" : "");
    printf("%s", its->has_namer ? " a-namer" : "");
    printf("\n");
}

/* ---- begin, heal and end ---- */

void faults_begin(const Play *its)
{
    play = its;
    n_struck = 0;
    is_healed = is_silent = false;
    int r = sd_event_new(&loop);
    assert(r >= 0);
    timers = (Timers){.event = loop, .failed = on_no_timer};
    faults_later(SEC(1 + below(8)), on_fault, 0);
    if (play->leaks)
        faults_later(SEC(2), on_leak, 0);
    if (play->has_namer)
        faults_later(SEC(3), on_namer, 0);
    if (play->has_stranger) {
        fleet_let_stranger_in();
        faults_later(SEC(2), on_stranger, -1);
        faults_later(SEC(2), on_stranger, 0);
    }
}

uint64_t faults_count(void) { return n_struck; }

void faults_heal(void)
{
    fleet_say("healing");
    is_healed = true;
    manifests_lose(false);
    trainers_hurry();
    for (int i = 0; i < play->fleet.n_members; i++)
        on_member_well(i);
    manifests_mend();
    for (int i = 0; i < play->n_jobs; i++) {
        trainers_poison(play->jobs[i].name, 0);
        trainers_take_over(play->jobs[i].name, false);
    }
    for (int i = 0; i < play->fleet.n_controllers; i++) {
        on_path_mended((int)fleet_machine(false, i));
        on_controller_thawed(i);
    }
    for (int i = 0; i < play->fleet.n_nodes; i++) {
        on_path_mended((int)fleet_machine(true, i));
        on_thawed(i);
        on_peers_mended(i);
        trainers_differ(i, false);
        on_node_store_back(i);
        fleet_fill_gpus(i);
        fleet_judge(i, NODE_HEALTHY);
        for (int slot = 0; slot < play->fleet.n_slots; slot++) {
            (void)trainer_stop(i, slot, false);
            (void)trainer_cling(i, slot, false);
        }
        fleet_cordon(i, CORDON_NONE);
        if (!fleet_runs(i))
            fleet_restart_daemon(i, 0);
    }
    lost_heal();
    fleet_send_stranger_away();
}

void faults_end(void)
{
    for (Later *l = laters, *next; l; l = next) {
        next = l->next;
        timer_stop(&l->timer);
        free(l);
    }
    laters = NULL;
    lost_clear();
    loop = sd_event_unref(loop);
}
