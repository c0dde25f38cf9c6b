/* SPDX-License-Identifier: Apache-2.0 */
/* node.c - see node.h: the process sdtraind, its record, its lease, its fence and its end. */
#include "tests/sim/node.h"

#include "daemon/world/fence-rule.h"
#include "tests/sim/universe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HANG_TICK_MSEC = 200,
    STOOD_STILL_MSEC = 1000,
    PUT_AGAIN_MSEC = 200,
    KILL_CONFIRM_MSEC = 2000,
    LAST_WORDS_SEC = 2, /* after a drain: etcd may not answer */
};

static Sim *sim_of(const SimNode *node) { return &node->universe->sim; }

uint64_t node_real_usec(const SimNode *node)
{
    return sim_of(node)->now_usec + (uint64_t)node->real_offset_usec;
}

void node_note_contact(SimNode *node)
{
    node->contact_usec = sim_of(node)->now_usec;
    node->fenced = false;
}

bool node_is_registered(const SimNode *node)
{
    return etcd_find(&node->universe->etcd, KEY_NODES, node->name) != NULL;
}

/* ---- its record ---- */

const char *node_machine(const SimNode *node, char ret[33])
{
    (void)snprintf(ret, 33, "%016x%016x", (unsigned)node->index, (unsigned)node->n_machines);
    return ret;
}

static void encode(const SimNode *node, NodeRecord *ret)
{
    char machine[33];
    memset(ret, 0, sizeof(*ret)); /* padding too: records are compared as bytes */
    memcpy(ret->name, node->name, sizeof(ret->name));
    (void)snprintf(ret->machine_id, sizeof(ret->machine_id), "%s", node_machine(node, machine));
    ret->incarnation = node->incarnation;
    ret->n_slots = node->n_slots;
    ret->state = node->state;
    ret->verdict = node->verdict;
    ret->lost_slots = node->lost_slots;
    ret->n_gpus = node->n_gpus;
    if (node->draining && ret->verdict < NODE_DRAIN) {
        ret->verdict = NODE_DRAIN;
        (void)snprintf(ret->evidence, sizeof(ret->evidence), "sdtraind is told to stop");
    }
    const Team *team = team_running(node);
    if (team) {
        (void)snprintf(ret->job, sizeof(ret->job), "%s", universe_job_name(team->job));
        ret->world_revision = team->world_revision;
        ret->generation = team->generation;
    }
}

static void put_record(SimNode *node);

static void on_put_again(_unused_ Universe *u, void *who, uint64_t token)
{
    SimNode *node = who;
    if (token != node->put_retry)
        return;
    node->put_retry = 0;
    put_record(node);
}

static void put_later(SimNode *node)
{
    if (node->put_retry)
        return;
    node->put_retry = sim_serial(sim_of(node));
    sim_timer(sim_of(node), &node->actor, PUT_AGAIN_MSEC * USEC_PER_MSEC, on_put_again, node,
              node->put_retry);
}

static void on_looked(_unused_ Universe *u, void *who, uint64_t token, const CallResult *result)
{
    SimNode *node = who;
    if (token != node->put_call)
        return;
    node->put_call = 0;
    if (result->r < 0) {
        put_later(node);
        return;
    }
    node_note_contact(node);
    const NodeRecord *tenant = result->n_items ? value_record(result->items[0].value) : NULL;
    char machine[33];
    if (tenant && strcmp(tenant->machine_id, node_machine(node, machine)) != 0) {
        node_crash(node); /* the name belongs to another, until its lease has run out */
        return;
    }
    node->revision = result->n_items ? result->items[0].mod_revision : 0;
    put_record(node);
}

static void look(SimNode *node)
{
    int key = etcd_key(&node->universe->etcd, KEY_NODES, node->name, 0, -1);
    node->put_call = sim_serial(sim_of(node));
    client_read(&node->client, &key, 1, on_looked, node, node->put_call);
}

/* etcd knows of them: their ranks are reported as ended. */
static void lost_slots_told(SimNode *node)
{
    for (int i = 0; i < node->n_slots; i++)
        if (node->slots[i].used && node->slots[i].lost)
            team_note_exit(&node->slots[i]);
}

static void on_put(_unused_ Universe *u, void *who, uint64_t token, const CallResult *result)
{
    SimNode *node = who;
    if (token != node->put_call)
        return;
    node->put_call = 0;
    if (result->r < 0 || !result->succeeded) {
        node->put_lease = -1;
        node->put_wanted = true;
        if (node->with_ranks) /* their world may have moved: they die first */
            put_later(node);
        look(node);
        return;
    }
    node_note_contact(node);
    node->with_ranks = false;
    node->revision = result->revision;
    node->registered = true;
    if (node->put_wanted)
        put_record(node);
    else
        lost_slots_told(node);
    node_touch(node);
}

/* Nobody would know of them if the node came back now. */
static bool old_ranks_live(const SimNode *node)
{
    for (int i = 0; i < node->n_slots; i++) {
        const Process *p = &node->slots[i];
        if (p->used && !p->lost && (!p->team || p->team->over))
            return true;
    }
    return false;
}

static void put_record(SimNode *node)
{
    ModelEtcd *etcd = &node->universe->etcd;
    int lease = node->client.lease;
    if (node->put_call || node->put_retry || lease < 0) {
        node->put_wanted = true;
        return;
    }
    if (node->with_ranks && old_ranks_live(node)) {
        node->put_wanted = true;
        put_later(node);
        return;
    }
    Txn txn = {.node = node};
    int key = etcd_key(etcd, KEY_NODES, node->name, 0, -1);
    encode(node, &node->last_put);
    txn_compare(&txn, COMPARE_MOD, key, node->revision);
    txn_put(&txn, key, value_new(&node->last_put, sizeof(NodeRecord)), lease);
    if (node->with_ranks) /* together, so that nobody sees one without the other */
        team_add_records(node, &txn, lease);
    node->put_call = sim_serial(sim_of(node));
    node->put_wanted = false;
    node->put_lease = lease;
    client_txn(&node->client, &txn, on_put, node, node->put_call);
}

static bool is_settled(const SimNode *node)
{
    return !node->put_call && !node->put_retry && !node->put_wanted && node->put_lease >= 0;
}

static void on_lease(_unused_ Universe *u, void *who, LeaseState state)
{
    SimNode *node = who;
    node_note_contact(node);
    if (state == LEASE_LOST) {
        sim_say(sim_of(node), "%s: its lease is gone; ranks run on", node->name);
        node->revision = 0;
        node->put_lease = -1;
        return;
    }
    if (state != LEASE_GRANTED)
        return;
    node->put_lease = -1;
    node->with_ranks = node->registered;
    put_record(node);
    team_report_all(node); /* each for itself too: guards may differ */
}

/* ---- slots ---- */

bool node_is_idle(const SimNode *node)
{
    for (int i = 0; i < node->n_slots; i++)
        if (node->slots[i].used && !node->slots[i].lost)
            return false;
    for (int job = 0; job < JOBS_MAX; job++)
        if (node->jobs[job].team && team_is_live(node->jobs[job].team))
            return false;
    return true;
}

static void clear_slot(Process *p)
{
    SimNode *node = p->node;
    node->lost_slots &= ~(UINT64_C(1) << p->slot);
    *p = (Process){.node = node, .slot = p->slot};
    node_advance(node);
}

static void on_kill_confirm(_unused_ Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    if (!p->used || p->life != life || !p->alive || p->lost)
        return;
    p->lost = true;
    p->node->lost_slots |= UINT64_C(1) << p->slot;
    sim_say(sim_of(p->node), "%s slot %d: survives SIGKILL, the slot is lost", p->node->name,
            p->slot);
    node_advance(p->node);
}

void process_kill(Process *p, const char *why)
{
    if (!p->used || p->killing || p->exited)
        return;
    p->killing = true;
    (void)snprintf(p->why, sizeof(p->why), "%s", why);
    trainer_kill(p);
    sim_timer(sim_of(p->node), &p->node->actor, KILL_CONFIRM_MSEC * USEC_PER_MSEC, on_kill_confirm,
              p, p->life);
}

void node_kill_all(SimNode *node, const char *why)
{
    for (int i = 0; i < node->n_slots; i++)
        process_kill(&node->slots[i], why);
}

void node_hears(_unused_ Universe *u, void *who, uint64_t token)
{
    Process *p = who;
    ModelWord word = (ModelWord)(token % 8);
    if (!p->used || p->life != token / 8)
        return;
    if (word != WORD_EXIT) {
        team_hears(p, word);
        return;
    }
    p->exited = true;
    team_note_exit(p);
    clear_slot(p);
}

/* ---- hangs and the fence ---- */

static bool is_watched(const Process *p)
{
    return p->used && p->team && !p->team->over && !p->exited && !p->killing;
}

static bool waits_for_a_teammate(const SimNode *node, const Process *p)
{
    for (int i = 0; i < node->n_slots; i++) {
        const Process *o = &node->slots[i];
        const Watchdog *a = &o->watchdog, *b = &p->watchdog;
        if (o != p && is_watched(o) && o->team == p->team && a->stage != STAGE_READY &&
            (a->step < b->step || (a->step == b->step && a->stage < b->stage)))
            return true;
    }
    return false;
}

static void check_hangs(SimNode *node, uint64_t stood_still_usec)
{
    const WatchdogLimits *limits = &node->universe->options.watchdog;
    uint64_t hung = 0;
    for (int i = 0; i < node->n_slots; i++) {
        Process *p = &node->slots[i];
        if (!is_watched(p))
            continue;
        if (stood_still_usec > 0)
            watchdog_forgive(&p->watchdog, stood_still_usec);
        else if (watchdog_is_hung(&p->watchdog, limits, sim_of(node)->now_usec) &&
                 !waits_for_a_teammate(node, p))
            hung |= UINT64_C(1) << i;
    }
    for (int i = 0; i < node->n_slots; i++)
        if (hung >> i & 1) {
            Process *p = &node->slots[i];
            RankReport *report = NULL;
            for (size_t k = 0; k < p->team->n_seats; k++)
                if (p->team->seats[k].report.slot == i)
                    report = &p->team->seats[k].report;
            assert(report); /* it is in a team */
            report->hung = true;
            report->step = MAX(report->step, p->watchdog.step);
            report->stage = (int)p->watchdog.stage;
            sim_say(sim_of(node), "%s slot %d: hangs at step %lld, %s", node->name, i,
                    (long long)report->step, train_stage_name(p->watchdog.stage));
            team_report(node, p->team);
            process_kill(p, "no progress");
        }
}

static void on_hang_tick(Universe *u, void *who, uint64_t token)
{
    SimNode *node = who;
    uint64_t gap = u->sim.now_usec - node->hang_tick_usec;
    uint64_t stood_still = gap > STOOD_STILL_MSEC * USEC_PER_MSEC ? gap : 0;
    node->hang_tick_usec = u->sim.now_usec;
    check_hangs(node, stood_still);
    if (!node->fenced &&
        fence_is_due(u->sim.now_usec, node->contact_usec, u->options.fence_usec, stood_still)) {
        node->fenced = true;
        sim_say(&u->sim, "%s: fences itself", node->name);
        node_kill_all(node, "no word from etcd for fence_sec");
    }
    sim_timer(&u->sim, &node->actor, HANG_TICK_MSEC * USEC_PER_MSEC, on_hang_tick, node, token);
}

/* ---- leaving ---- */

static void end_daemon(SimNode *node)
{
    for (int i = 0; i < node->n_slots; i++) { /* PDEATHSIG, and the keeper for the rest */
        Process *p = &node->slots[i];
        if (p->used && p->alive) {
            p->unkillable = false; /* the next daemon waits until the keeper has done it */
            trainer_exit(p, -SIGKILL, "");
        }
        *p = (Process){.node = node, .slot = i};
    }
    team_forget_all(node);
    client_close(&node->client);
    node->actor.alive = false;
    node->actor.life++;
    node->actor.frozen_until_usec = 0;
}

static void on_last_words(_unused_ Universe *u, void *who, _unused_ uint64_t token)
{
    SimNode *node = who;
    sim_say(sim_of(node), "%s: leaves without a last word", node->name);
    node->has_left = true;
    end_daemon(node);
}

void node_advance_drain(SimNode *node)
{
    if (!node->draining || !node_is_idle(node) || !node->actor.alive)
        return;
    if (!node->leaving && (team_reports_are_written(node) || !node->registered)) {
        node->leaving = true;
        node->state = NODE_LEFT;
        sim_timer(sim_of(node), &node->actor, LAST_WORDS_SEC * USEC_PER_SEC, on_last_words, node,
                  0);
        node_touch(node);
        return;
    }
    if (node->leaving && is_settled(node)) {
        sim_say(sim_of(node), "%s: left", node->name);
        node->has_left = true;
        end_daemon(node);
    }
}

static void on_drain_deadline(_unused_ Universe *u, void *who, _unused_ uint64_t token)
{
    SimNode *node = who;
    node_kill_all(node, "sdtraind stops, and drain_sec has passed");
    node_advance_drain(node);
}

void node_drain(SimNode *node)
{
    if (!node->actor.alive || node->draining)
        return;
    sim_say(sim_of(node), "%s: told to stop", node->name);
    node->draining = true;
    sim_timer(sim_of(node), &node->actor, node->universe->options.drain_usec, on_drain_deadline,
              node, 0);
    node_touch(node);
    node_advance_drain(node);
}

void node_touch(SimNode *node)
{
    NodeRecord record;
    if (!node->actor.alive)
        return;
    encode(node, &record);
    if (node->put_lease < 0 || memcmp(&record, &node->last_put, sizeof(record)) != 0)
        put_record(node);
    if (node->leaving)
        node_advance_drain(node);
}

void node_advance(SimNode *node)
{
    for (int job = 0; job < JOBS_MAX; job++)
        team_advance(node, job);
    node_advance_drain(node);
}

/* ---- up and down ---- */

static void on_start(Universe *u, void *who, _unused_ uint64_t token)
{
    static const KeyKind watched[] = {KEY_WORLDS, KEY_PHASES, KEY_RENDEZVOUS, KEY_CORDONS};
    SimNode *node = who;
    if (!node->host_up || node->actor.alive)
        return;
    sim_say(&u->sim, "%s: sdtraind starts", node->name);
    node->actor.alive = true;
    node->incarnation = MAX(node->incarnation + 1, node_real_usec(node));
    node->registered = node->fenced = node->draining = node->leaving = node->has_left = false;
    node->state = NODE_UP;
    node->lost_slots = 0;
    node->revision = 0;
    node->put_lease = -1;
    node->put_call = node->put_retry = 0;
    node->put_wanted = node->with_ranks = false;
    memset(&node->last_put, 0, sizeof(node->last_put));
    node->contact_usec = node->hang_tick_usec = u->sim.now_usec;
    client_init(&node->client, u, &node->actor);
    client_lease(&node->client, u->options.ttl_usec, on_lease, node);
    for (size_t i = 0; i < ELEMENTSOF(watched); i++)
        client_watch(&node->client, (int)watched[i], team_watch, node);
    sim_timer(&u->sim, &node->actor, HANG_TICK_MSEC * USEC_PER_MSEC, on_hang_tick, node, 0);
}

static void start_soon(SimNode *node)
{
    sim_after(sim_of(node), NULL, sim_between(sim_of(node), 50000, 1500000), on_start, node, 0);
}

void node_boot(SimNode *node)
{
    node->host_up = true;
    node->frozen_until_usec = 0;
    if (!node->actor.alive)
        start_soon(node);
}

void node_crash(SimNode *node)
{
    if (!node->actor.alive)
        return;
    sim_say(sim_of(node), "%s: sdtraind dies", node->name);
    end_daemon(node);
    if (node->host_up)
        start_soon(node); /* systemd */
}

void node_lose_power(SimNode *node)
{
    sim_say(sim_of(node), "%s: power is lost", node->name);
    node->host_up = false;
    node->frozen_until_usec = 0;
    if (node->actor.alive)
        end_daemon(node);
}

void node_replace(SimNode *node)
{
    if (node->host_up)
        node_lose_power(node);
    sim_say(sim_of(node), "%s: another machine gets its name", node->name);
    node->n_machines++;
    node->n_gpus = swarm_gpus(&node->universe->options, node->index, node->n_machines);
    node->refuses_numerics = false;
    node->verdict = NODE_HEALTHY;
}

static void arm_deadman(SimNode *node)
{
    for (int i = 0; i < node->n_slots; i++)
        if (node->slots[i].used)
            trainer_arm_deadman(&node->slots[i]);
}

void node_freeze_daemon(SimNode *node, uint64_t usec)
{
    if (!node->actor.alive)
        return;
    sim_say(sim_of(node), "%s: sdtraind is frozen for %.1f s", node->name, (double)usec / 1e6);
    node->actor.frozen_until_usec =
        MAX(node->actor.frozen_until_usec, sim_of(node)->now_usec + usec);
    arm_deadman(node);
}

void node_freeze(SimNode *node, uint64_t usec)
{
    if (!node->actor.alive)
        return;
    sim_say(sim_of(node), "%s: the host is frozen for %.1f s", node->name, (double)usec / 1e6);
    /* what waits for the thaw waits for the last one */
    node->actor.frozen_until_usec = node->frozen_until_usec =
        MAX(node->actor.frozen_until_usec, sim_of(node)->now_usec + usec);
    /* its timers wake with it, unless its clock stood still: then its ranks are zombies */
    if (sim_chance(sim_of(node), 300))
        arm_deadman(node);
}

void node_set_verdict(SimNode *node, NodeVerdict verdict)
{
    node->verdict = verdict;
    sim_say(sim_of(node), "%s: verdict %d", node->name, (int)verdict);
    if (node->actor.alive)
        node_touch(node);
}

void node_fill_slots(SimNode *node)
{
    if (node->universe->options.gpu_key)
        node->n_gpus = node->n_slots;
    if (node->universe->options.gpu_key && node->actor.alive)
        node_touch(node);
}

void node_init(SimNode *node, Universe *u, int index)
{
    *node =
        (SimNode){.universe = u, .index = index, .n_slots = u->options.n_slots, .put_lease = -1};
    (void)snprintf(node->name, sizeof(node->name), "n%d", index);
    node->n_gpus = swarm_gpus(&u->options, index, 0);
    if (node->n_gpus > 0)
        sim_say(&u->sim, "%s: %d GPUs", node->name, node->n_gpus);
    node->slots = sim_new((size_t)node->n_slots * sizeof(Process));
    for (int i = 0; i < node->n_slots; i++)
        node->slots[i] = (Process){.node = node, .slot = i};
}

void node_clear(SimNode *node)
{
    team_forget_all(node);
    client_clear(&node->client);
    free(node->slots);
}

static void on_store_again(_unused_ Universe *u, void *who, _unused_ uint64_t token)
{
    ((SimNode *)who)->has_no_store = false;
}

void node_lose_store(SimNode *node, uint64_t usec)
{
    Sim *sim = sim_of(node);
    Process *p = &node->slots[sim_draw(sim, (uint32_t)node->n_slots)];
    node->has_no_store = true;
    if (p->alive && sim_chance(sim, 500))
        trainer_exit(p, -11, "");
    sim_after(sim, NULL, usec, on_store_again, node, 0);
}
