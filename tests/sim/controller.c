/* SPDX-License-Identifier: Apache-2.0 */
/* controller.c - see controller.h. */
#include "tests/sim/controller.h"

#include "tests/sim/checker.h"
#include "tests/sim/universe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GATHER_MSEC = 5,
    STALL_MSEC = 250,
    RETRY_MSEC_MIN = 20,
    RETRY_DOUBLINGS_MAX = 6,
    CAMPAIGN_AGAIN_MSEC = 200,
    STEPS_MAX = 10000,
    CHECKED_NODES_MAX = 100, /* the core's own checks are quadratic */
};

static Sim *sim_of(const ModelController *c) { return &c->universe->sim; }

uint64_t controller_real_usec(const ModelController *c)
{
    return sim_of(c)->now_usec + (uint64_t)c->real_offset_usec;
}

/* ---- steps ---- */

static void begin_decision(ModelController *c, const Decision *d);
static void tick(ModelController *c);

static void on_timer(_unused_ Universe *u, void *who, uint64_t token)
{
    ModelController *c = who;
    if (token == c->wake_token)
        tick(c);
}

static void arm_timer(ModelController *c, uint64_t wake_usec)
{
    uint64_t now = sim_of(c)->now_usec;
    if (wake_usec == c->wake_usec && wake_usec > now)
        return; /* armed already */
    c->wake_usec = wake_usec;
    c->wake_token = sim_serial(sim_of(c));
    if (wake_usec != USEC_INFINITY)
        sim_timer(sim_of(c), &c->actor, wake_usec > now ? wake_usec - now : 0, on_timer, c,
                  c->wake_token);
}

static void stamp_event(const ModelController *c, Event *event)
{
    event->now_usec = sim_of(c)->now_usec;
    event->real_usec = controller_real_usec(c);
    event->stalled = c->wake_usec != USEC_INFINITY &&
                     event->now_usec > c->wake_usec + STALL_MSEC * USEC_PER_MSEC;
}

static void step(ModelController *c, Event *event)
{
    static Actions actions; /* large; one thread */
    for (int i = 0; i < STEPS_MAX; i++) {
        stamp_event(c, event);
        cluster_step(c->cluster, event, &actions);
        if (event->more)
            return;
        c->decided_usec = sim_of(c)->now_usec;
        if (actions.read)
            sim_fail(sim_of(c), "rest", "%s: records did not fit the limits", c->name);
        if (c->universe->options.n_nodes <= CHECKED_NODES_MAX)
            cluster_check(c->cluster);
        if (actions.decision.id)
            begin_decision(c, &actions.decision);
        if (!actions.again) {
            arm_timer(c, actions.wake_usec);
            return;
        }
        *event = (Event){.kind = EVENT_TICK};
    }
    sim_fail(sim_of(c), "rest", "%s: the core does not come to rest", c->name);
}

static void step_kind(ModelController *c, Event event) { step(c, &event); }
static void tick(ModelController *c) { step_kind(c, (Event){.kind = EVENT_TICK}); }

static void on_gathered(_unused_ Universe *u, void *who, uint64_t token)
{
    ModelController *c = who;
    if (token != c->gather_token)
        return;
    c->gather_token = 0;
    tick(c);
}

/* One decision for all that comes within GATHER_MSEC of the last. */
static void tick_soon(ModelController *c)
{
    uint64_t now = sim_of(c)->now_usec, next = c->decided_usec + GATHER_MSEC * USEC_PER_MSEC;
    if (now >= next) {
        tick(c);
    } else if (c->gather_token == 0) {
        c->gather_token = sim_serial(sim_of(c));
        sim_timer(sim_of(c), &c->actor, next - now, on_gathered, c, c->gather_token);
    }
}

/* ---- the feed ---- */

static int key_for(ModelController *c, KeyKind kind, const char *name)
{
    return etcd_key(&c->universe->etcd, kind, name, 0, -1);
}

static const EventKind event_kinds[KEY_KINDS] = {
    [KEY_NODES] = EVENT_NODE,
    [KEY_CORDONS] = EVENT_CORDON,
    [KEY_SPECS] = EVENT_SPEC,
    [KEY_DESIRED] = EVENT_DESIRED,
    [KEY_WORLDS] = EVENT_WORLD,
    [KEY_PHASES] = EVENT_PHASE,
    [KEY_RANKS] = EVENT_RANKS,
    [KEY_RENDEZVOUS] = EVENT_RENDEZVOUS,
    [KEY_CHECKPOINTS] = EVENT_CHECKPOINTS,
    [KEY_PROGRESS] = EVENT_PROGRESS,
    [KEY_INCIDENTS] = EVENT_INCIDENT,
    [KEY_REQUESTS] = EVENT_REQUEST,
};

static void remember(ModelController *c, int key, bool there)
{
    if (key >= c->n_fed) {
        int n = MAX(2 * key, 256);
        c->fed = sim_more(c->fed, (size_t)n);
        memset(c->fed + c->n_fed, 0, (size_t)(n - c->n_fed));
        c->n_fed = n;
    }
    c->fed[key] = there;
}

/* A job that is removed loses all of them at once; of one that has lost some the file is still wanted. */
static void remember_spec(ModelController *c, int n, const ModelValue *value)
{
    static const KeyKind all[] = {KEY_SPECS, KEY_DESIRED, KEY_WORLDS, KEY_PHASES, KEY_CHECKPOINTS};
    const ModelKey key = c->universe->etcd.keys[n]; /* looking for others may move it */
    bool is_one = false, is_left = false;
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        is_one |= key.kind == all[i];
    if (!is_one)
        return;
    JobFacts *facts = &c->specs[universe_job_index(key.name)];
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        int other = key_for(c, all[i], key.name);
        is_left |= other < c->n_fed && c->fed[other];
    }
    if (!is_left)
        *facts = (JobFacts){0};
    else if (key.kind == KEY_SPECS && value_record(value))
        *facts = *(const JobFacts *)value_record(value);
}

static void feed(ModelController *c, int n, const ModelValue *value, int64_t revision)
{
    EventKind kind = event_kinds[c->universe->etcd.keys[n].kind];
    if (kind == EVENT_TICK)
        return; /* not the core's business */
    remember(c, n, value != NULL);
    remember_spec(c, n, value);
    const ModelKey *key = &c->universe->etcd.keys[n];
    Event event = {.kind = kind,
                   .more = true,
                   .revision = revision,
                   .generation = key->generation,
                   .health = value ? value->health : RECORD_READABLE,
                   .record = value_record(value)};
    checker_fed(c, n, value, revision);
    memcpy(event.name, key->name, sizeof(event.name));
    if (key->node >= 0)
        memcpy(event.node, c->universe->nodes[key->node].name, sizeof(event.node));
    step(c, &event);
}

static void begin_to_lead(ModelController *c)
{
    c->led_usec = sim_of(c)->now_usec;
    sim_say(sim_of(c), "%s: leads, term %lld", c->name, (long long)c->term);
    step_kind(c, (Event){.kind = EVENT_LEADING, .term = c->term});
}

static void depose(ModelController *c)
{
    sim_say(sim_of(c), "%s: deposed", c->name);
    c->term = 0;
    if (c->loaded)
        step_kind(c, (Event){.kind = EVENT_DEPOSED});
}

/* As the shell does it: what only a read had shown, and the list has not. */
static void forget_unlisted(ModelController *c, Watch *watch)
{
    c->n_lists = watch->n_lists;
    if (c->read_revision == 0 || watch->list_revision < c->read_revision)
        return;
    for (int key = 0; key < c->n_fed; key++)
        if (c->fed[key] && !client_watch_knows(watch, key))
            feed(c, key, NULL, watch->list_revision);
}

static void on_watch(_unused_ Universe *u, void *who, const WatchEvent *events, size_t n,
                     bool initial)
{
    ModelController *c = who;
    for (size_t i = 0; i < n; i++)
        if (events[i].revision > c->read_revision)
            feed(c, events[i].key, events[i].value, events[i].revision);
    Watch *watch = &c->client.watches[0]; /* of everything */
    if (watch->n_lists != c->n_lists)
        forget_unlisted(c, watch);
    if (initial && !c->loaded) {
        c->loaded = true;
        if (c->term) {
            begin_to_lead(c);
            return;
        }
    }
    tick_soon(c);
}

/* ---- decisions into transactions: controller/leader/execute.c ---- */

static void guard(ModelController *c, Txn *txn, KeyKind kind, const char *name, int64_t revision)
{
    if (revision != REVISION_ANY)
        txn_compare(txn, COMPARE_MOD, key_for(c, kind, name), revision);
}

static void put(ModelController *c, Txn *txn, KeyKind kind, const char *name, const void *record,
                size_t bytes)
{
    txn_put(txn, key_for(c, kind, name), value_new(record, bytes), -1);
}

/* As it was last read: the shell has the text, the core asks for it. */
static void put_spec(ModelController *c, Txn *txn, const Decision *d)
{
    const JobFacts *facts = &c->specs[universe_job_index(d->job)];
    guard(c, txn, KEY_SPECS, d->job, d->spec_revision);
    if (facts->n_grains == 0)
        sim_fail(sim_of(c), "lost", "%s puts back the spec of %s, which it never read", c->name,
                 d->job);
    put(c, txn, KEY_SPECS, d->job, facts, sizeof(*facts));
}

static void draft_job(ModelController *c, Txn *txn, const Decision *d)
{
    static const KeyKind all[] = {KEY_SPECS,  KEY_DESIRED,     KEY_WORLDS,
                                  KEY_PHASES, KEY_CHECKPOINTS, KEY_PROGRESS};
    if (d->put_world)
        txn_put(txn, key_for(c, KEY_WORLDS, d->job), value_new_world(&d->world), -1);
    if (d->put_desired)
        put(c, txn, KEY_DESIRED, d->job, &d->desired, sizeof(d->desired));
    if (d->put_spec)
        put_spec(c, txn, d);
    if (d->put_phase)
        put(c, txn, KEY_PHASES, d->job, &d->phase, sizeof(d->phase));
    if (d->put_checkpoints)
        put(c, txn, KEY_CHECKPOINTS, d->job, &d->checkpoints, sizeof(d->checkpoints));
    for (size_t i = 0; d->remove_job && i < ELEMENTSOF(all); i++)
        txn_delete(txn, key_for(c, all[i], d->job));
    if (d->remove_job || d->remove_generation) {
        assert(txn->n_ops < TXN_OPS_MAX);
        txn->ops[txn->n_ops++] = (Op){.kind = OP_DELETE_RANKS,
                                      .key = key_for(c, KEY_WORLDS, d->job),
                                      .lease = -1,
                                      .generation = d->remove_job ? 0 : d->remove_generation};
    }
}

static void draft_cluster(ModelController *c, Txn *txn, const Decision *d)
{
    for (int i = 0; i < d->n_cordons; i++) {
        const CordonRecord *cordon = &d->cordons[i];
        guard(c, txn, KEY_CORDONS, cordon->node, d->cordon_revisions[i]);
        if (cordon->n_causes == 0)
            txn_delete(txn, key_for(c, KEY_CORDONS, cordon->node));
        else
            put(c, txn, KEY_CORDONS, cordon->node, cordon, sizeof(*cordon));
    }
    if (d->remove_incident[0])
        txn_delete(txn, key_for(c, KEY_INCIDENTS, d->remove_incident));
    if (d->put_incident) {
        guard(c, txn, KEY_INCIDENTS, d->incident.id, d->incident_revision);
        put(c, txn, KEY_INCIDENTS, d->incident.id, &d->incident, sizeof(d->incident));
    }
    if (!d->put_request && !d->remove_request)
        return;
    guard(c, txn, KEY_REQUESTS, d->request.id, d->request_revision);
    if (d->remove_request)
        txn_delete(txn, key_for(c, KEY_REQUESTS, d->request.id));
    else
        put(c, txn, KEY_REQUESTS, d->request.id, &d->request, sizeof(d->request));
}

static void draft(ModelController *c, const Decision *d, Txn *ret)
{
    *ret = (Txn){.leader = c, .term = d->term};
    txn_compare(ret, COMPARE_CREATE, c->leader_key, d->term); /* I1 */
    if (d->job[0]) {
        guard(c, ret, KEY_WORLDS, d->job, d->world_revision);
        guard(c, ret, KEY_PHASES, d->job, d->phase_revision);
        guard(c, ret, KEY_CHECKPOINTS, d->job, d->checkpoints_revision);
        guard(c, ret, KEY_DESIRED, d->job, d->desired_revision);
    }
    draft_job(c, ret, d);
    draft_cluster(c, ret, d);
}

/* ---- what became of them: controller/leader/transactions.c ---- */

static ModelPending *find_pending(ModelController *c, uint64_t token)
{
    for (size_t i = 0; i < PENDING_MAX; i++)
        if (c->pending[i].id && c->pending[i].token == token)
            return &c->pending[i];
    return NULL;
}

static void finish(ModelController *c, ModelPending *p, Outcome outcome, int64_t revision)
{
    Event event = {.kind = EVENT_OUTCOME, .id = p->id, .outcome = outcome, .revision = revision};
    if (outcome == OUTCOME_DONE)
        c->refusals = 0;
    *p = (ModelPending){0};
    step_kind(c, event);
}

static void on_retry(Universe *u, void *who, uint64_t token);

static void read_again_later(ModelController *c, ModelPending *p)
{
    unsigned doublings = MIN(c->refusals, (unsigned)RETRY_DOUBLINGS_MAX);
    c->refusals++;
    p->token = sim_serial(sim_of(c));
    sim_timer(sim_of(c), &c->actor, (RETRY_MSEC_MIN << doublings) * USEC_PER_MSEC, on_retry, c,
              p->token);
}

static bool still_leads(const ModelController *c, const CallResult *result)
{
    if (result->revision < c->term)
        return true; /* it is older than the term */
    for (size_t i = 0; i < result->n_items; i++)
        if (result->items[i].key == c->leader_key)
            return result->items[i].create_revision == c->term;
    return false;
}

static void feed_all(ModelController *c, const CallResult *result)
{
    c->read_revision = result->revision;
    bool *listed = sim_new((size_t)c->n_fed);
    int n_before = c->n_fed;
    for (size_t i = 0; i < result->n_items; i++) {
        if (result->items[i].key < n_before)
            listed[result->items[i].key] = true;
        feed(c, result->items[i].key, result->items[i].value, result->items[i].mod_revision);
    }
    for (int key = 0; key < n_before; key++)
        if (c->fed[key] && !listed[key])
            feed(c, key, NULL, result->revision);
    free(listed);
}

static void on_read(_unused_ Universe *u, void *who, uint64_t token, const CallResult *result)
{
    ModelController *c = who;
    ModelPending *p = find_pending(c, token);
    if (!p)
        return;
    if (result->r < 0) {
        read_again_later(c, p);
        return;
    }
    if (result->revision > c->read_revision)
        feed_all(c, result);
    if (c->term && !still_leads(c, result))
        depose(c);
    finish(c, p, p->outcome, 0);
}

static void on_retry(_unused_ Universe *u, void *who, uint64_t token)
{
    ModelController *c = who;
    ModelPending *p = find_pending(c, token);
    if (!p)
        return;
    p->token = sim_serial(sim_of(c));
    client_list(&c->client, KEY_KINDS, on_read, c, p->token);
}

static void on_txn(_unused_ Universe *u, void *who, uint64_t token, const CallResult *result)
{
    ModelController *c = who;
    ModelPending *p = find_pending(c, token);
    if (!p)
        return;
    if (result->r == 0 && result->succeeded) {
        finish(c, p, OUTCOME_DONE, result->revision);
        return;
    }
    p->outcome = result->r == 0 ? OUTCOME_REFUSED : OUTCOME_UNKNOWN;
    read_again_later(c, p);
}

static void check_admission(ModelController *c, const WorldRecord *world)
{
    for (size_t i = 0; i < world->n_runs; i++)
        if (!admission_allows(c->config.admit, world->runs[i].node, ""))
            sim_fail(sim_of(c), "I5", "%s: world %lld has %s, which its list leaves out", c->name,
                     (long long)world->generation, world->runs[i].node);
}

static void begin_decision(ModelController *c, const Decision *d)
{
    Txn txn;
    size_t i = 0;
    if (d->put_world)
        check_admission(c, &d->world);
    while (i < PENDING_MAX && c->pending[i].id)
        i++;
    assert(i < PENDING_MAX); /* one per job and one for the house */
    c->pending[i] = (ModelPending){.id = d->id, .token = sim_serial(sim_of(c))};
    draft(c, d, &txn);
    client_txn(&c->client, &txn, on_txn, c, c->pending[i].token);
}

/* ---- the election: etcd/election.c ---- */

static void campaign(ModelController *c);

static void on_campaign_again(_unused_ Universe *u, void *who, uint64_t token)
{
    ModelController *c = who;
    if (token == c->campaign_token && c->leader_key >= 0 && c->own_create == 0)
        campaign(c);
}

static void on_campaign(_unused_ Universe *u, void *who, uint64_t token, const CallResult *result)
{
    ModelController *c = who;
    (void)result; /* the watch tells, and a look later makes sure */
    if (token != c->campaign_token)
        return;
    c->campaigning = false;
    c->campaign_token = sim_serial(sim_of(c));
    sim_timer(sim_of(c), &c->actor, CAMPAIGN_AGAIN_MSEC * USEC_PER_MSEC, on_campaign_again, c,
              c->campaign_token);
}

static void campaign(ModelController *c)
{
    Txn txn = {0};
    txn_compare(&txn, COMPARE_CREATE, c->leader_key, 0);
    txn_put(&txn, c->leader_key, value_new(c->name, sizeof(c->name)), c->client.lease);
    c->campaigning = true;
    c->campaign_token = sim_serial(sim_of(c));
    client_txn(&c->client, &txn, on_campaign, c, c->campaign_token);
}

static void judge(ModelController *c)
{
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < c->n_candidates; i++)
        if (c->candidates[i])
            lowest = MIN(lowest, c->candidates[i]);
    if (c->leader_key >= 0 && c->own_create == 0 && !c->campaigning)
        campaign(c);
    int64_t term = c->leader_key >= 0 && c->own_create == lowest ? lowest : 0;
    if (c->term && term != c->term)
        depose(c);
    if (!c->term && term) {
        c->term = term;
        if (c->loaded)
            begin_to_lead(c);
    }
}

static void on_candidates(Universe *u, void *who, const WatchEvent *events, size_t n,
                          _unused_ bool initial)
{
    ModelController *c = who;
    for (size_t i = 0; i < n; i++) {
        int at = u->etcd.keys[events[i].key].ordinal;
        if (at >= c->n_candidates) {
            c->candidates = sim_more(c->candidates, (size_t)(2 * at + 4) * sizeof(int64_t));
            while (c->n_candidates < 2 * at + 4)
                c->candidates[c->n_candidates++] = 0;
        }
        c->candidates[at] = events[i].value ? events[i].create_revision : 0;
        if (events[i].key == c->leader_key)
            c->own_create = c->candidates[at];
    }
    judge(c);
}

static void on_lease(Universe *u, void *who, LeaseState state)
{
    ModelController *c = who;
    char name[24];
    if (state == LEASE_GRANTED) {
        (void)snprintf(name, sizeof(name), "%d", c->client.lease);
        c->leader_key = etcd_key(&u->etcd, KEY_LEADER, name, 0, -1);
        c->own_create = 0;
        campaign(c);
    } else if (state == LEASE_LOST) {
        c->leader_key = -1;
        c->own_create = 0;
        c->campaign_token = 0;
        if (c->term)
            depose(c);
    }
}

/* ---- life ---- */

void controller_start(ModelController *c)
{
    Universe *u = c->universe;
    if (c->actor.alive)
        return;
    sim_say(sim_of(c), "%s: starts", c->name);
    c->actor.alive = true;
    c->config = u->options.core;
    c->cluster = cluster_init(c->memory, &u->options.limits, &c->config);
    c->wake_usec = USEC_INFINITY;
    c->decided_usec = c->gather_token = 0;
    c->term = 0;
    c->leader_key = -1;
    c->loaded = false;
    c->read_revision = 0;
    c->n_lists = 0;
    c->refusals = 0;
    memset(c->pending, 0, sizeof(c->pending));
    for (int i = 0; i < c->n_fed; i++)
        c->fed[i] = false;
    for (int i = 0; i < c->n_candidates; i++)
        c->candidates[i] = 0;
    c->own_create = 0;
    c->campaign_token = 0;
    memset(c->specs, 0, sizeof(c->specs));
    memset(c->seen, 0, sizeof(c->seen));
    free(c->seen_cordons);
    c->seen_cordons = sim_new((size_t)u->options.n_nodes * sizeof(SeenCordon));
    client_init(&c->client, u, &c->actor);
    client_watch(&c->client, KEY_KINDS, on_watch, c);
    client_watch(&c->client, KEY_LEADER, on_candidates, c);
    client_lease(&c->client, u->options.ttl_usec, on_lease, c);
}

static void on_start(_unused_ Universe *u, void *who, _unused_ uint64_t token)
{
    controller_start(who);
}

static void end(ModelController *c)
{
    client_close(&c->client);
    c->actor.alive = false;
    c->actor.life++;
    c->actor.frozen_until_usec = 0;
    sim_after(sim_of(c), NULL, sim_between(sim_of(c), 100000, 3000000), on_start, c, 0);
}

void controller_crash(ModelController *c)
{
    if (!c->actor.alive)
        return;
    sim_say(sim_of(c), "%s: dies", c->name);
    end(c);
}

void controller_leave(ModelController *c)
{
    if (!c->actor.alive)
        return;
    sim_say(sim_of(c), "%s: leaves", c->name);
    if (c->client.lease >= 0 && !c->universe->etcd.down && !c->client.link.cut_up)
        etcd_lease_revoke(&c->universe->etcd, c->client.lease);
    end(c);
}

/* All nodes but one; each third time all of them. */
static void draw_list(ModelController *c)
{
    int n = c->universe->options.n_nodes, without = (int)sim_draw(sim_of(c), 3) ? n : n - 1;
    size_t used = 0;
    if (without < n)
        without = (int)sim_draw(sim_of(c), (uint64_t)n);
    c->config.admit[0] = '\0';
    for (int i = 0; without < n && i < n && used + 16 < sizeof(c->config.admit); i++)
        if (i != without)
            used += (size_t)snprintf(c->config.admit + used, sizeof(c->config.admit) - used, "%s%s",
                                     used ? "," : "", c->universe->nodes[i].name);
}

void controller_welcome(ModelController *c)
{
    c->config.admit[0] = '\0';
    if (!c->actor.alive)
        return;
    cluster_configure(c->cluster, &c->config);
    tick(c);
}

/* Deadlines stay: what must hold after the healing is counted by them. */
void controller_reload(ModelController *c)
{
    Sim *sim = sim_of(c);
    if (!c->actor.alive || c->actor.frozen_until_usec > sim->now_usec)
        return;
    sim_say(sim, "%s: reloads its settings", c->name);
    c->config.max_strikes = (int)sim_draw(sim, 6);
    c->config.quarantine_usec = sim_between(sim, USEC_PER_SEC, 60 * USEC_PER_SEC);
    c->config.incidents_kept = 10 + (int)sim_draw(sim, 100);
    draw_list(c);
    cluster_configure(c->cluster, &c->config);
    tick(c);
}

void controller_freeze(ModelController *c, uint64_t usec)
{
    if (!c->actor.alive)
        return;
    sim_say(sim_of(c), "%s: frozen for %.1f s", c->name, (double)usec / 1e6);
    c->actor.frozen_until_usec = MAX(c->actor.frozen_until_usec, sim_of(c)->now_usec + usec);
}

void controller_init(ModelController *c, Universe *u, int index)
{
    *c = (ModelController){.universe = u, .index = index, .leader_key = -1};
    (void)snprintf(c->name, sizeof(c->name), "c%d", index);
    c->memory = sim_new(cluster_bytes(&u->options.limits));
}

void controller_clear(ModelController *c)
{
    client_clear(&c->client);
    free(c->memory);
    free(c->fed);
    free(c->seen_cordons);
    free(c->candidates);
}
