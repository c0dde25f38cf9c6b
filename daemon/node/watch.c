/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - see watch.h. */
#include "daemon/node/watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "cluster/cordon.h"
#include "cluster/keys.h"
#include "daemon/node/requests.h"
#include "daemon/world/rank.h"

#include <string.h>

static void on_world(const Watches *w, const EtcdEvent *e, const char *name)
{
    if (e->kind == ETCD_EVENT_DELETE) {
        LocalJob *job = job_find(w->workload, name);
        if (job)
            job_set_world(job, NULL, e->kv.mod_revision);
        return;
    }
    WorldRecord world;
    Error err = ERROR_INIT;
    int r = world_record_decode(e->kv.key, e->kv.value, e->kv.n_value, &world, &err);
    LocalJob *job = r == 0 ? NULL : job_find(w->workload, name);
    if (r < 0) {
        log_error("%s; this node takes no part in that world", err.text);
        if (job)
            job_lose_world(job, e->kv.mod_revision);
        return;
    }
    job = job_get(w->workload, name);
    if (job)
        job_set_world(job, &world, e->kv.mod_revision);
    world_record_clear(&world);
}

static void on_phase(const Watches *w, const EtcdEvent *e, const char *name)
{
    PhaseRecord phase;
    Error err = ERROR_INIT;
    if (e->kind == ETCD_EVENT_DELETE) {
        LocalJob *job = job_find(w->workload, name);
        if (job)
            job_set_phase(job, NULL);
        return;
    }
    if (phase_record_decode(e->kv.key, e->kv.value, e->kv.n_value, &phase, &err) < 0) {
        log_error("%s", err.text);
        return;
    }
    LocalJob *job = job_get(w->workload, name);
    if (job)
        job_set_phase(job, &phase);
    phase_record_clear(&phase);
}

static void on_rendezvous(const Watches *w, const EtcdEvent *e, const char *rest)
{
    char name[RECORD_JOB_MAX + 1];
    int64_t generation;
    if (key_parse_rendezvous(rest, name, sizeof(name), &generation) < 0)
        return;
    if (e->kind == ETCD_EVENT_DELETE) {
        LocalJob *job = job_find(w->workload, name);
        if (job)
            job_set_rendezvous(job, generation, e->kv.mod_revision, NULL);
        return;
    }
    RendezvousRecord record;
    Error err = ERROR_INIT;
    if (rendezvous_record_decode(e->kv.key, e->kv.value, e->kv.n_value, &record, &err) < 0) {
        log_error("%s", err.text);
        return;
    }
    LocalJob *job = job_get(w->workload, name);
    if (job)
        job_set_rendezvous(job, generation, e->kv.mod_revision, &record);
    rendezvous_record_clear(&record);
}

/* Kills the ranks of a quarantined node at once, without waiting for a new world: their results may be wrong. A cause
 * against another machine that had this name, or for another job than the rank's, does not count. */
static void on_cordon(const Watches *w, const EtcdEvent *e, const char *name)
{
    CordonRecord cordon;
    Error err = ERROR_INIT;
    if (strcmp(name, w->config->node) != 0 || e->kind == ETCD_EVENT_DELETE)
        return;
    if (cordon_record_decode(e->kv.key, e->kv.value, e->kv.n_value, &cordon, &err) < 0) {
        log_error("%s", err.text);
        return;
    }
    for (size_t i = 0; i < ELEMENTSOF(w->workload->slots.of); i++) {
        const CordonCause *cause =
            w->workload->slots.of[i]
                ? cordon_strongest(&cordon, w->config->machine_id, w->workload->slots.of[i]->job,
                                   clock_realtime_usec())
                : NULL;
        if (cause && cause->mode == CORDON_QUARANTINE)
            rank_kill(w->workload->slots.of[i], "node is quarantined: %.100s", cause->reason);
    }
    cordon_record_clear(&cordon);
}

/* Handles a change of our own record. If the record was deleted, checks the lease at once: it may have been
 * revoked, and the next renewal may be a quarter of a TTL away, but the leader waits only half a second. */
static void on_node(const Watches *w, const EtcdEvent *e, const char *name)
{
    bool removed = e->kind == ETCD_EVENT_DELETE;
    if (strcmp(name, w->config->node) != 0)
        return;
    if (removed)
        etcd_lease_check(w->lease);
    node_disturbed(w->node, e->kv.mod_revision, removed);
}

static const KeyKind watched[WATCHED_KINDS] = {KEY_WORLDS, KEY_PHASES, KEY_RENDEZVOUS, KEY_CORDONS,
                                               KEY_REQUESTS};

static void on_node_events(const EtcdEvent *events, size_t n_events, _unused_ int64_t revision,
                           _unused_ bool initial, void *userdata)
{
    const Watches *w = userdata;
    fence_note_contact(w->fence);
    for (size_t i = 0; i < n_events; i++) {
        KeyKind kind;
        const char *rest;
        if (key_parse(w->config->cluster, events[i].kv.key, &kind, &rest) < 0)
            continue; /* an unknown key under our prefix */
        if ((kind == KEY_WORLDS || kind == KEY_PHASES) && !name_is_valid(rest))
            log_error("%s: not the name of a job; skipped", events[i].kv.key);
        else if (kind == KEY_WORLDS)
            on_world(w, &events[i], rest);
        else if (kind == KEY_PHASES)
            on_phase(w, &events[i], rest);
        else if (kind == KEY_RENDEZVOUS)
            on_rendezvous(w, &events[i], rest);
        else if (kind == KEY_NODES)
            on_node(w, &events[i], rest);
        else if (kind == KEY_CORDONS)
            on_cordon(w, &events[i], rest);
        else if (kind == KEY_REQUESTS)
            requests_on_event(w->requests, &events[i]);
    }
}

int watches_open(Watches *w, Error *err)
{
    for (size_t i = 0; i < WATCHED_KINDS; i++) {
        char prefix[KEY_MAX];
        assert(!w->watch[i]);
        (void)key_prefix(w->config->cluster, (int)watched[i], prefix);
        int r = etcd_watch_prefix(w->etcd, prefix, on_node_events, w, &w->watch[i]);
        if (r < 0)
            return error_errno(err, r, "cannot watch %s", prefix);
    }
    char own[KEY_MAX];
    int r = etcd_watch_key(w->etcd, key_of(w->config->cluster, KEY_NODES, w->config->node, own),
                           on_node_events, w, &w->own);
    return r < 0 ? error_errno(err, r, "cannot watch %s", own) : 0;
}

void watches_clear(Watches *w)
{
    for (size_t i = 0; i < WATCHED_KINDS; i++)
        w->watch[i] = etcd_watch_free(w->watch[i]);
    w->own = etcd_watch_free(w->own);
}
