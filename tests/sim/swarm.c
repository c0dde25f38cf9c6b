/* SPDX-License-Identifier: Apache-2.0 */
/* swarm.c - see swarm.h. */
#include "tests/sim/swarm.h"

#include "cluster/cordon.h"
#include "tests/sim/universe.h"

#include <stdio.h>
#include <string.h>

#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)
#define MSEC(n) ((uint64_t)(n)*USEC_PER_MSEC)

/* ---- who is hit ---- */

static SimNode *some_node(Universe *u)
{
    return &u->nodes[sim_draw(&u->sim, (uint32_t)u->options.n_nodes)];
}

static ModelController *some_controller(Universe *u)
{
    return &u->controllers[sim_draw(&u->sim, (uint32_t)u->options.n_controllers)];
}

static int some_job(Universe *u) { return (int)sim_draw(&u->sim, (uint32_t)u->options.n_jobs); }

/* A process that lives, if one is met soon. */
static Process *some_process(Universe *u)
{
    for (int i = 0; i < 16; i++) {
        SimNode *node = some_node(u);
        Process *p = &node->slots[sim_draw(&u->sim, (uint32_t)node->n_slots)];
        if (p->alive)
            return p;
    }
    return NULL;
}

/* From moments to several TTL. */
static uint64_t some_while(Universe *u)
{
    uint64_t ttl = u->options.ttl_usec;
    switch (sim_draw(&u->sim, 4)) {
    case 0:
        return sim_between(&u->sim, MSEC(50), ttl / 2);
    case 1:
    case 2:
        return sim_between(&u->sim, ttl / 2, 2 * ttl);
    default:
        return sim_between(&u->sim, 2 * ttl, 5 * ttl);
    }
}

static void later(Universe *u, uint64_t usec, SimHandler handler, void *who)
{
    sim_after(&u->sim, NULL, usec, handler, who, 0);
}

/* ---- machines ---- */

static void on_boot(_unused_ Universe *u, void *who, _unused_ uint64_t token) { node_boot(who); }

static void lose_power(Universe *u)
{
    SimNode *node = some_node(u);
    if (!node->host_up)
        return;
    node_lose_power(node);
    later(u, some_while(u), on_boot, node);
}

static void lose_power_of_many(Universe *u)
{
    int n = (int)sim_draw(&u->sim, (uint32_t)u->options.n_nodes) + 1;
    for (int i = 0; i < n; i++)
        lose_power(u);
}

static void replace_machine(Universe *u)
{
    SimNode *node = some_node(u);
    bool was_up = node->host_up;
    node_replace(node);
    if (was_up) /* else it boots already */
        later(u, some_while(u), on_boot, node);
}

static void crash_daemon(Universe *u) { node_crash(some_node(u)); }
static void freeze_host(Universe *u) { node_freeze(some_node(u), some_while(u)); }

static void freeze_many_hosts(Universe *u)
{
    uint64_t usec = some_while(u);
    for (int i = 0; i < u->options.n_nodes; i++)
        if (sim_chance(&u->sim, 600))
            node_freeze(&u->nodes[i], usec + sim_between(&u->sim, 0, MSEC(300)));
}

static void freeze_daemon(Universe *u) { node_freeze_daemon(some_node(u), some_while(u)); }

static void on_restart(Universe *u, void *who, uint64_t token)
{
    SimNode *node = who;
    if (node->host_up && node->has_left && !node->actor.alive)
        node_boot(node);
    else if (node->draining && !u->swarm.healed)
        sim_after(&u->sim, NULL, SEC(1), on_restart, node, token);
}

static void drain_node(Universe *u)
{
    SimNode *node = some_node(u);
    node_drain(node);
    later(u, some_while(u), on_restart, node);
}

static void on_verdict(_unused_ Universe *u, void *who, _unused_ uint64_t token)
{
    node_set_verdict(who, NODE_HEALTHY);
}

static void change_verdict(Universe *u)
{
    SimNode *node = some_node(u);
    node_set_verdict(node, (NodeVerdict)(1 + sim_draw(&u->sim, 3)));
    later(u, some_while(u), on_verdict, node);
}

static void step_clock(Universe *u)
{
    int64_t by = (int64_t)sim_between(&u->sim, 0, SEC(1200)) - (int64_t)SEC(600);
    if (sim_chance(&u->sim, 500))
        some_node(u)->real_offset_usec += by;
    else
        some_controller(u)->real_offset_usec += by;
}

static void differ_in_numerics(Universe *u) { some_node(u)->refuses_numerics = true; }

/* ---- network ---- */

static void on_link_mended(_unused_ Universe *u, void *who, _unused_ uint64_t token)
{
    ModelClient *client = who;
    client->link = (Link){0};
}

static ModelClient *some_client(Universe *u)
{
    return sim_chance(&u->sim, 700) ? &some_node(u)->client : &some_controller(u)->client;
}

static void cut_link(Universe *u)
{
    ModelClient *client = some_client(u);
    uint32_t how = sim_draw(&u->sim, 4);
    client->link.cut_up = how != 0;
    client->link.cut_down = how != 1;
    later(u, some_while(u), on_link_mended, client);
}

static void clog_link(Universe *u)
{
    ModelClient *client = some_client(u);
    client->link.clog_usec = sim_between(&u->sim, MSEC(10), SEC(3));
    later(u, some_while(u), on_link_mended, client);
}

static void cut_many_links(Universe *u)
{
    uint64_t usec = some_while(u);
    for (int i = 0; i < u->options.n_nodes; i++)
        if (sim_chance(&u->sim, 600)) {
            u->nodes[i].client.link.cut_up = u->nodes[i].client.link.cut_down = true;
            later(u, usec, on_link_mended, &u->nodes[i].client);
        }
}

static void on_peers_mended(_unused_ Universe *u, void *who, _unused_ uint64_t token)
{
    ((SimNode *)who)->island = 0;
}

static void part_peers(Universe *u)
{
    SimNode *node = some_node(u);
    node->island = node->index + 1;
    later(u, some_while(u), on_peers_mended, node);
}

/* ---- etcd ---- */

static void on_fast(Universe *u, _unused_ void *who, _unused_ uint64_t token)
{
    u->etcd_slow_usec = 0;
}

static void slow_etcd(Universe *u)
{
    u->etcd_slow_usec = sim_between(&u->sim, MSEC(5), MSEC(800));
    later(u, some_while(u), on_fast, NULL);
}

static void on_found(Universe *u, _unused_ void *who, _unused_ uint64_t token)
{
    u->lost_answer_permille = u->lost_request_permille = 0;
}

static void lose_answers(Universe *u)
{
    u->lost_answer_permille = sim_draw(&u->sim, 300);
    u->lost_request_permille = sim_draw(&u->sim, 300);
    later(u, some_while(u), on_found, NULL);
}

static void on_quorum(Universe *u, _unused_ void *who, uint64_t token)
{
    if (u->etcd.down && u->etcd.n_downs == token)
        etcd_regain_quorum(&u->etcd);
}

static void lose_quorum(Universe *u)
{
    sim_say(&u->sim, "etcd: no quorum");
    etcd_lose_quorum(&u->etcd);
    sim_after(&u->sim, NULL, some_while(u), on_quorum, NULL, u->etcd.n_downs);
}

static void revoke_all(Universe *u)
{
    sim_say(&u->sim, "etcd: every lease is revoked");
    etcd_revoke_all(&u->etcd);
}

static void revoke_one(Universe *u)
{
    ModelClient *client = some_client(u);
    if (client->lease < 0)
        return;
    sim_say(&u->sim, "etcd: lease %d is revoked", client->lease);
    etcd_lease_revoke(&u->etcd, client->lease);
}

static void compact(Universe *u) { etcd_compact(&u->etcd); }

/* Another cluster's keys: revisions that no watch of ours shows. */
static void write_elsewhere(Universe *u) { u->etcd.revision += 1 + sim_draw(&u->sim, 20); }

static void cut_watches(Universe *u)
{
    ModelClient *client = some_client(u);
    for (size_t i = 0; i < client->n_watches; i++)
        if (sim_chance(&u->sim, 600))
            watch_cut(&client->watches[i]);
}

/* ---- controllers ---- */

static void crash_controller(Universe *u) { controller_crash(some_controller(u)); }
static void stop_controller(Universe *u) { controller_leave(some_controller(u)); }
static void freeze_controller(Universe *u) { controller_freeze(some_controller(u), some_while(u)); }
static void reload_controller(Universe *u) { controller_reload(some_controller(u)); }

/* ---- trainers and the store ---- */

static void exit_trainer(Universe *u)
{
    static const struct {
        int code;
        const char *text;
    } ends[] = {{-9, ""},
                {-11, ""},
                {-7, ""},
                {1, "traceback"},
                {75, "again"},
                {80, "XID 79"},
                {81, "a peer is gone"},
                {83, "the store does not answer"}};
    Process *p = some_process(u);
    uint32_t i = sim_draw(&u->sim, ELEMENTSOF(ends));
    if (p)
        trainer_exit(p, ends[i].code, ends[i].text);
}

static void hang_trainer(Universe *u)
{
    Process *p = some_process(u);
    if (!p)
        return;
    sim_say(&u->sim, "%s slot %d: its trainer hangs", p->node->name, p->slot);
    p->stuck = true;
}

static void stop_trainer(Universe *u)
{
    Process *p = some_process(u);
    if (!p)
        return;
    sim_say(&u->sim, "%s slot %d: its trainer is stopped", p->node->name, p->slot);
    p->stopped = true;
    trainer_arm_deadman(p);
}

static void on_killable(_unused_ Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    if (p->life != life)
        return;
    p->unkillable = false;
    if (p->killing)
        trainer_kill(p);
}

static void make_unkillable(Universe *u)
{
    Process *p = some_process(u);
    if (!p)
        return;
    sim_say(&u->sim, "%s slot %d: its trainer will survive SIGKILL", p->node->name, p->slot);
    p->unkillable = p->stuck = true;
    sim_after(&u->sim, NULL, some_while(u) + SEC(2), on_killable, p, p->life);
}

static void poison(Universe *u)
{
    int job = some_job(u);
    if (u->poisoned_step[job])
        return;
    u->poisoned_step[job] = u->checker.jobs[job].trained_step + 1 + (int64_t)sim_draw(&u->sim, 50);
    sim_say(&u->sim, "%s: step %lld is poisoned", universe_job_name(job),
            (long long)u->poisoned_step[job]);
}

static void on_store(Universe *u, _unused_ void *who, uint64_t token)
{
    if (u->store.n_outs == token)
        u->store.out = false;
}

static void cut_node_from_store(Universe *u) { node_lose_store(some_node(u), some_while(u)); }

static void lose_store(Universe *u)
{
    store_lose(&u->store, u->sim.now_usec);
    sim_after(&u->sim, NULL, some_while(u), on_store, NULL, u->store.n_outs);
}

static void corrupt_checkpoint(Universe *u)
{
    if (u->store.n)
        u->store.manifests[u->store.n - 1].corrupt =
            u->store.manifests[u->store.n - 1].was_corrupt = true;
}

/* ---- people ---- */

static void want(Universe *u, int job, DesiredState state, int target)
{
    DesiredRecord record = {.state = state,
                            .min = u->options.jobs[job].min,
                            .max = u->options.jobs[job].max,
                            .priority = job == 1, /* the second comes first */
                            .target = target};
    if (!etcd_find(&u->etcd, KEY_SPECS, universe_job_name(job)))
        return;
    sim_say(&u->sim, "user: %s %s, target %d", universe_job_name(job),
            state == DESIRED_RUNNING   ? "runs"
            : state == DESIRED_STOPPED ? "stops"
                                       : "is deleted",
            target);
    etcd_put(&u->etcd, KEY_DESIRED, universe_job_name(job), value_new(&record, sizeof(record)));
}

static void submit(Universe *u, int job)
{
    JobFacts facts = u->options.jobs[job].facts;
    const char *name = universe_job_name(job);
    if (etcd_find(&u->etcd, KEY_SPECS, name) || etcd_find(&u->etcd, KEY_DESIRED, name) ||
        etcd_find(&u->etcd, KEY_WORLDS, name) || etcd_find(&u->etcd, KEY_PHASES, name))
        return; /* the name is taken */
    facts.arrival = (int64_t)u->sim.now_usec;
    (void)snprintf(facts.submission, sizeof(facts.submission), "%032llx",
                   (unsigned long long)sim_serial(&u->sim));
    sim_say(&u->sim, "user: submits %s", name);
    u->taken_over[job] = false; /* in a folder of its own */
    etcd_put(&u->etcd, KEY_SPECS, name, value_new(&facts, sizeof(facts)));
    want(u, job, DESIRED_RUNNING, 0);
}

static void resize(Universe *u)
{
    int job = some_job(u);
    want(u, job, DESIRED_RUNNING, (int)sim_draw(&u->sim, (uint32_t)u->options.jobs[job].max + 1));
}

static void stop_and_start(Universe *u)
{
    want(u, some_job(u), sim_chance(&u->sim, 400) ? DESIRED_STOPPED : DESIRED_RUNNING, 0);
}

static void on_submit(Universe *u, void *who, uint64_t token)
{
    int job = (int)((JobPlan *)who - u->options.jobs);
    if (u->swarm.healed)
        return;
    submit(u, job);
    if (token < 20 && !etcd_find(&u->etcd, KEY_SPECS, universe_job_name(job)))
        sim_after(&u->sim, NULL, SEC(1), on_submit, who, token + 1);
}

static void delete_job(Universe *u)
{
    int job = some_job(u);
    want(u, job, DESIRED_DELETED, 0);
    later(u, some_while(u), on_submit, &u->options.jobs[job]);
}

/* As sdctl does it, in one moment: cordon, drain, or an uncordon whose check finds nothing. */
static void on_cordon(Universe *u, void *who, _unused_ uint64_t token)
{
    SimNode *node = who;
    if (u->swarm.healed)
        return;
    CordonMode mode = (CordonMode)(sim_draw(&u->sim, 4) % 3);
    const CordonRecord *old = etcd_record(&u->etcd, KEY_CORDONS, node->name);
    CordonRecord record = {0};
    char machine[33];
    if (old)
        record = *old;
    memcpy(record.node, node->name, sizeof(record.node));
    if (mode != CORDON_NONE)
        (void)cordon_set(&record, &(CordonCause){.owner = CORDON_OPERATOR,
                                                 .mode = mode,
                                                 .since_usec = u->sim.now_usec});
    for (size_t i = record.n_causes; mode == CORDON_NONE && i-- > 0;)
        if (cause_is_of(&record.causes[i], node_machine(node, machine)))
            cordon_drop(&record, i);
    etcd_put(&u->etcd, KEY_CORDONS, node->name,
             record.n_causes == 0 ? NULL : value_new(&record, sizeof(record)));
}

/* Somebody sees trainers die there, and so does the leader: both write about the node. */
static void cordon(Universe *u)
{
    SimNode *node = some_node(u);
    Process *p = &node->slots[sim_draw(&u->sim, (uint32_t)node->n_slots)];
    if (p->alive && sim_chance(&u->sim, 500))
        trainer_exit(p, -11, "");
    later(u, sim_between(&u->sim, 0, MSEC(60)), on_cordon, node);
}

/* ---- the faults there are ---- */

static const struct {
    const char *name;
    void (*strike)(Universe *u);
} faults[] = {
    {"crash-daemon", crash_daemon},
    {"lose-power", lose_power},
    {"lose-power-of-many", lose_power_of_many},
    {"freeze-host", freeze_host},
    {"freeze-many-hosts", freeze_many_hosts},
    {"freeze-daemon", freeze_daemon},
    {"drain-node", drain_node},
    {"change-verdict", change_verdict},
    {"step-clock", step_clock},
    {"differ-in-numerics", differ_in_numerics},
    {"cut-link", cut_link},
    {"clog-link", clog_link},
    {"cut-many-links", cut_many_links},
    {"part-peers", part_peers},
    {"slow-etcd", slow_etcd},
    {"lose-answers", lose_answers},
    {"lose-quorum", lose_quorum},
    {"revoke-all", revoke_all},
    {"revoke-one", revoke_one},
    {"compact", compact},
    {"write-elsewhere", write_elsewhere},
    {"cut-watches", cut_watches},
    {"crash-controller", crash_controller},
    {"stop-controller", stop_controller},
    {"freeze-controller", freeze_controller},
    {"reload-controller", reload_controller},
    {"exit-trainer", exit_trainer},
    {"hang-trainer", hang_trainer},
    {"stop-trainer", stop_trainer},
    {"make-unkillable", make_unkillable},
    {"poison", poison},
    {"lose-store", lose_store},
    {"corrupt-checkpoint", corrupt_checkpoint},
    {"resize", resize},
    {"stop-and-start", stop_and_start},
    {"delete-job", delete_job},
    {"cordon", cordon},
    {"replace-machine", replace_machine},
    {"cut-node-from-store", cut_node_from_store},
    {"lose-record", lost_strike},
    {"take-over", lost_take_over},
};

static void on_fault(Universe *u, _unused_ void *who, _unused_ uint64_t token)
{
    uint32_t which = sim_draw(&u->sim, ELEMENTSOF(faults));
    if (u->swarm.healed)
        return;
    if (u->options.faults >> which & 1) {
        u->swarm.n_faults++;
        sim_say(&u->sim, "fault: %s", faults[which].name);
        faults[which].strike(u);
    }
    later(u, sim_between(&u->sim, 0, 2 * u->options.gap_usec), on_fault, NULL);
}

size_t swarm_n_faults(void) { return ELEMENTSOF(faults); }

void swarm_describe(const Universe *u)
{
    const Options *o = &u->options;
    printf("seed %llu: %d nodes of %d slots, %d jobs, %d controllers, TTL %llu s, a fault each "
           "%llu ms for %llu s:",
           (unsigned long long)u->sim.seed, o->n_nodes, o->n_slots, o->n_jobs, o->n_controllers,
           (unsigned long long)(o->ttl_usec / USEC_PER_SEC),
           (unsigned long long)(o->gap_usec / USEC_PER_MSEC),
           (unsigned long long)(o->faults_usec / USEC_PER_SEC));
    for (size_t i = 0; i < ELEMENTSOF(faults); i++)
        if (o->faults >> i & 1)
            printf(" %s", faults[i].name);
    printf("\n");
}

/* ---- healing ---- */

static const PhaseRecord *phase_of(Universe *u, int job)
{
    return etcd_record(&u->etcd, KEY_PHASES, universe_job_name(job));
}

static void heal_network(Universe *u)
{
    u->etcd_slow_usec = 0;
    u->lost_answer_permille = u->lost_request_permille = 0;
    if (u->etcd.down)
        etcd_regain_quorum(&u->etcd);
    for (int i = 0; i < u->options.n_nodes; i++) {
        u->nodes[i].client.link = (Link){0};
        u->nodes[i].island = 0;
    }
    for (int i = 0; i < u->options.n_controllers; i++)
        u->controllers[i].client.link = (Link){0};
}

static void heal_node(Universe *u, SimNode *node)
{
    node->refuses_numerics = node->has_no_store = false;
    for (int i = 0; i < node->n_slots; i++) {
        node->slots[i].stopped = false;
        on_killable(u, &node->slots[i], node->slots[i].life);
        u->swarm.hangs |= node->slots[i].stuck; /* nobody but the watchdog ends it */
    }
    if (node->verdict != NODE_HEALTHY)
        node_set_verdict(node, NODE_HEALTHY);
    node_fill_slots(node);
    if (etcd_find(&u->etcd, KEY_CORDONS, node->name))
        etcd_put(&u->etcd, KEY_CORDONS, node->name, NULL);
    if (node->draining && node->actor.alive)
        node_crash(node); /* told twice; it starts again */
    node_boot(node);
}

/* Faults have ended when the last frozen one has woken. */
static void wait_for_thaw(Universe *u)
{
    uint64_t until = u->sim.now_usec;
    u->swarm.healed = true;
    for (int i = 0; i < u->options.n_nodes; i++)
        until = MAX(until, u->nodes[i].actor.frozen_until_usec);
    for (int i = 0; i < u->options.n_controllers; i++)
        until = MAX(until, u->controllers[i].actor.frozen_until_usec);
    sim_run(u, until + 1);
}

static void heal(Universe *u)
{
    sim_say(&u->sim, "healing");
    heal_network(u);
    u->store.out = false;
    u->swarm.pause_usec = outage_pause_usec(u);
    for (int i = 0; i < u->store.n; i++)
        u->store.manifests[i].corrupt = false;
    memset(u->poisoned_step, 0, sizeof(u->poisoned_step));
    lost_heal(u);
    for (int i = 0; i < u->options.n_nodes; i++)
        heal_node(u, &u->nodes[i]);
    for (int i = 0; i < u->options.n_controllers; i++)
        controller_start(&u->controllers[i]);
    for (int i = 0; i < u->options.n_controllers; i++)
        controller_welcome(&u->controllers[i]);
    for (int job = 0; job < u->options.n_jobs; job++) {
        int share = u->options.n_nodes * u->options.n_slots / u->options.n_jobs;
        u->options.jobs[job].max = CLAMP(u->options.jobs[job].max, 1, share);
        u->options.jobs[job].min = 1;
        lost_give_back(u, job);
        submit(u, job);
        want(u, job, DESIRED_RUNNING, 0);
    }
}

/* ---- liveness: I11 ---- */

/* Running, with a step lately; or done; or lost for good. */
static bool is_well(Universe *u, int job)
{
    const PhaseRecord *phase = phase_of(u, job);
    const JobBooks *books = &u->checker.jobs[job];
    if (!phase)
        return false;
    if (phase->phase == PHASE_SUCCEEDED)
        return true;
    if (phase->phase == PHASE_FAILED && strstr(phase->reason, "no checkpoint of the job verifies"))
        return true;
    return phase->phase == PHASE_RUNNING && books->trained_generation == phase->generation &&
           u->sim.now_usec - books->trained_usec < 4 * u->options.step_usec + SEC(1);
}

/* The last of the faults may have been one too many, or the deletion came first. */
static void start_what_failed(Universe *u, int *n_starts)
{
    for (int job = 0; job < u->options.n_jobs; job++) {
        const PhaseRecord *phase = phase_of(u, job);
        lost_give_back(u, job);
        submit(u, job);
        const ModelKey *desired = etcd_find(&u->etcd, KEY_DESIRED, universe_job_name(job));
        if (phase && (phase->phase == PHASE_FAILED || phase->phase == PHASE_STOPPED) && desired &&
            desired->mod_revision <= phase->tried_revision && /* else it is on its way */
            !is_well(u, job) && n_starts[job]++ < 3)
            want(u, job, DESIRED_RUNNING, 0);
    }
}

/* 3 TTL and the start deadline, and what is documented beside them: a store that is suspected holds
 * decisions for ten TTL, a world that was asked to leave has its deadline, a hang the watchdog's, and
 * after some failures there is a pause. */
static uint64_t liveness_bound(Universe *u)
{
    const ClusterConfig *core = &u->options.core;
    uint64_t usec = 3 * core->ttl_usec + core->start_deadline_usec + core->leave_deadline_usec;
    usec += u->swarm.pause_usec;
    usec += u->swarm.hangs ? u->options.watchdog.startup_usec : 0;
    for (int i = 0; i < u->options.n_controllers; i++)
        if (cluster_hold_until(u->controllers[i].cluster) > u->sim.now_usec)
            return usec + 11 * core->ttl_usec;
    return usec;
}

static void check_liveness(Universe *u)
{
    uint64_t until = u->sim.now_usec + liveness_bound(u);
    int n_starts[JOBS_MAX] = {0};
    int well = 0;
    while (!u->sim.failed && u->sim.now_usec < until && well < u->options.n_jobs) {
        sim_run(u, u->sim.now_usec + MSEC(100));
        start_what_failed(u, n_starts);
        well = 0;
        for (int job = 0; job < u->options.n_jobs; job++)
            well += is_well(u, job);
    }
    for (int job = 0; job < u->options.n_jobs && !u->sim.failed; job++) {
        const PhaseRecord *phase = phase_of(u, job);
        if (!is_well(u, job))
            sim_fail(&u->sim, "I11", "%s is %s %lld s after all healed: %s", universe_job_name(job),
                     phase ? job_phase_name(phase->phase) : "nowhere",
                     (long long)(liveness_bound(u) / USEC_PER_SEC), phase ? phase->reason : "");
    }
}

void swarm_run(Universe *u)
{
    Sim *sim = &u->sim;
    for (int i = 0; i < u->options.n_controllers; i++)
        controller_start(&u->controllers[i]);
    for (int i = 0; i < u->options.n_nodes; i++)
        node_boot(&u->nodes[i]);
    sim_run(u, sim->now_usec + SEC(2));
    for (int job = 0; job < u->options.n_jobs; job++)
        submit(u, job);
    later(u, SEC(1 + sim_draw(sim, 8)), on_fault, NULL);
    sim_run(u, sim->now_usec + u->options.faults_usec);
    wait_for_thaw(u);
    if (sim->failed)
        return;
    heal(u);
    check_liveness(u);
    if (sim->failed)
        return;
    sim_run(u, sim->now_usec + 2 * u->options.ttl_usec + SEC(2));
    if (!sim->failed)
        checker_end(u);
    if (!sim->failed && sim_chance(sim, 300))
        outage_run(u);
}
