/* SPDX-License-Identifier: Apache-2.0 */
/* node.c - see node.h. */
#include "daemon/node/node.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/message-id.h"
#include "cluster/keys.h"
#include "daemon/node/occupant.h"
#include "daemon/world/exit.h"
#include "daemon/world/local-world.h"
#include "daemon/world/rank.h"

#include <string.h>

/* A transaction has at most 120 compares. One is for the node and two are for each world, so 59 worlds fit. */
enum {
    RETRY_MSEC = 200,
    RIGHTS_MSEC = 30000,
    TOGETHER_MAX = 59,
    RESTORE_MSEC = 1000, /* the least time between two writes over a record of another writer */
    RACE_MSEC = 20,      /* delay of the next try if the other writer was faster */
    WAIT_MSEC = 1000,    /* delay of the next check whether another machine's lease has ended */
    QUIET_LEASES = 3     /* number of lease_sec after which a silent writer is forgotten */
};

static void node_put(OwnNode *node);
static void node_look(OwnNode *node);
static void make_good(OwnNode *node);
static void node_update(OwnNode *node);

void node_clear(OwnNode *node)
{
    node->call = etcd_call_free(node->call);
    timer_stop(&node->retry);
    timer_stop(&node->quiet);
    node->rights_call = etcd_call_free(node->rights_call);
    timer_stop(&node->rights_retry);
    node->programs_call = etcd_call_free(node->programs_call);
    timer_stop(&node->programs_retry);
}

/* ---- the content of the record ---- */

/* Returns {"labels": {...}}. The codec of the record does not know this field and copies it unchanged. */
static char *labels_text(const OwnNode *node)
{
    if (!node->needs.config->labels)
        return NULL;
    _cleanup_json_ json_t *root = json_pack("{sO}", "labels", node->needs.config->labels);
    return root ? json_dumps(root, JSON_COMPACT) : NULL;
}

static NodeRecord node_record(const OwnNode *node)
{
    NodeRecord record = {.incarnation = node->needs.incarnation,
                         .n_slots = (int)node->needs.config->slots,
                         .state = node->state,
                         .verdict = node->verdict,
                         .lost_slots = node->needs.workload->slots.lost,
                         .bad_slots = node->bad_slots,
                         .startup_usec = (uint64_t)(node->needs.config->startup_sec * 1e6),
                         .memory_bytes = node->needs.memory_bytes(node->needs.userdata),
                         .n_gpus = node->gpus.n,
                         .lease_sec = (int)node->needs.config->lease_sec,
                         .stranger_lease = node->stranger_lease,
                         .stranger_revision = node->stranger_revision};
    (void)snprintf(record.name, sizeof(record.name), "%s", node->needs.config->node);
    (void)snprintf(record.machine_id, sizeof(record.machine_id), "%s",
                   node->needs.config->machine_id);
    (void)snprintf(record.boot_id, sizeof(record.boot_id), "%s", node->needs.boot_id);
    (void)snprintf(record.address, sizeof(record.address), "%s", node->needs.config->address);
    (void)snprintf(record.version, sizeof(record.version), "%s", SDTRAIN_VERSION);
    (void)snprintf(record.evidence, sizeof(record.evidence), "%s", node->evidence);
    (void)snprintf(record.log_dir, sizeof(record.log_dir), "%s", node->needs.config->log_dir);
    if (*node->needs.draining && record.verdict < NODE_DRAIN) {
        record.verdict = NODE_DRAIN;
        (void)snprintf(record.evidence, sizeof(record.evidence), "sdtraind is told to stop");
    }
    const char *price = json_string_value(json_object_get(node->needs.config->labels, "price"));
    (void)snprintf(record.price_class, sizeof(record.price_class), "%s", price ? price : "");
    exit_repair_text(record.evidence);
    history_write(node->needs.history, &record);
    (void)snprintf(record.features, sizeof(record.features), "%s%s%s%s%s",
                   FEATURE_DOCTOR " " FEATURE_EVALS,
                   node->needs.config->allow_exec && node->knows_programs ? " " FEATURE_PROGRAMS
                                                                          : "",
                   node->knows_secrets ? " " FEATURE_SECRETS : "",
                   node->knows_logs ? " " FEATURE_LOGS : "",
                   node->is_shared ? " " FEATURE_SHARED : "");
    const LocalWorld *local = workload_running(node->needs.workload);
    if (local) {
        (void)snprintf(record.job, sizeof(record.job), "%s", local->job->name);
        record.world_revision = local->world_revision;
        record.generation = local->generation;
    }
    return record;
}

/* ---- rights ---- */

static void request_right_to_secrets(OwnNode *node);

static void on_rights_retry(void *userdata)
{
    OwnNode *node = userdata;
    request_right_to_secrets(node);
}

static bool request_right(OwnNode *node, KeyKind kind, EtcdTxnHandler handler)
{
    char key[KEY_MAX];
    assert(!node->rights_call);
    return etcd_request_rights(node->needs.etcd,
                               key_of(node->needs.config->cluster, kind, ".rights", key), handler,
                               node, &node->rights_call) == 0;
}

/* Finds out whether nodes share the etcd user. A user that may also write specs is an administrator, or etcd checks no
 * rights at all; such a user does not count as shared. */
static void on_right_to_specs(int r, _unused_ const Error *err,
                              _unused_ const EtcdTxnResult *result, void *userdata)
{
    OwnNode *node = userdata;
    node->rights_call = NULL; /* the call frees itself */
    node->is_shared = r == -EACCES;
    node_update(node);
}

/* Checks once, at the start, whether this user may write other nodes' records. The result is only shown to
 * operators. */
static void on_right_to_others(int r, _unused_ const Error *err,
                               _unused_ const EtcdTxnResult *result, void *userdata)
{
    OwnNode *node = userdata;
    node->rights_call = NULL; /* the call frees itself */
    if (r == 0)
        (void)request_right(node, KEY_SPECS, on_right_to_specs); /* a failure is not reported */
}

static void on_rights(int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                      void *userdata)
{
    OwnNode *node = userdata;
    node->rights_call = NULL; /* the call frees itself */
    if (r < 0) {              /* an operator may update the roles meanwhile */
        timer_start(node->needs.timers, &node->rights_retry,
                    (r == -EACCES ? RIGHTS_MSEC : RETRY_MSEC) * USEC_PER_MSEC, on_rights_retry,
                    node);
        return;
    }
    node->knows_secrets = true;
    node_update(node);
    (void)request_right(node, KEY_NODES, on_right_to_others); /* a failure is not reported */
}

static void request_programs(OwnNode *node);

static void on_programs_retry(void *userdata)
{
    OwnNode *node = userdata;
    request_programs(node);
}

static void on_right_to_programs(int r, const Error *err, _unused_ const EtcdRange *range,
                                 void *userdata)
{
    OwnNode *node = userdata;
    node->programs_call = NULL; /* the call frees itself */
    if (r == 0) {
        node->knows_programs = true;
        node_update(node);
        return;
    }
    if (r == -EACCES)
        log_warning("allow_exec has no effect yet: %s; ops/etcd-roles brings the roles up to date "
                    "NODE=%s",
                    err->text, node->needs.config->node);
    timer_start(node->needs.timers, &node->programs_retry,
                (r == -EACCES ? RIGHTS_MSEC : RETRY_MSEC) * USEC_PER_MSEC, on_programs_retry, node);
}

/* A node whose role is of an older version could not read what it has to run, so it must not say that it runs
 * programs. */
static void request_programs(OwnNode *node)
{
    char key[KEY_MAX];
    if (!node->needs.config->allow_exec || node->knows_programs || node->programs_call)
        return;
    int r = etcd_get(node->needs.etcd,
                     key_of(node->needs.config->cluster, KEY_PROGRAMS, ".rights", key), false,
                     on_right_to_programs, node, &node->programs_call);
    if (r < 0)
        timer_start(node->needs.timers, &node->programs_retry, RETRY_MSEC * USEC_PER_MSEC,
                    on_programs_retry, node);
}

static void request_right_to_secrets(OwnNode *node)
{
    char key[KEY_MAX];
    assert(!node->rights_call);
    int r =
        etcd_get(node->needs.etcd, key_of(node->needs.config->cluster, KEY_SECRETS, ".rights", key),
                 false, on_rights, node, &node->rights_call);
    if (r < 0)
        timer_start(node->needs.timers, &node->rights_retry, RETRY_MSEC * USEC_PER_MSEC,
                    on_rights_retry, node);
}

void node_request_rights(OwnNode *node)
{
    request_programs(node);
    request_right_to_secrets(node);
}

/* ---- retries ---- */

static void on_node_retry(void *userdata)
{
    OwnNode *node = userdata;
    if (node->looks && !node->call)
        node_look(node);
    else
        node_put(node);
}

static void look_later(OwnNode *node, uint64_t after_usec)
{
    node->looks = node->wanted = true;
    timer_start(node->needs.timers, &node->retry, after_usec, on_node_retry, node);
}

static void retry_later(OwnNode *node)
{
    if (!timer_runs(&node->retry))
        timer_start(node->needs.timers, &node->retry, RETRY_MSEC * USEC_PER_MSEC, on_node_retry,
                    node);
}

/* Logs a missing right once. Only an operator can grant the right; until then the write is repeated every
 * RETRY_MSEC. */
static bool is_refused(OwnNode *node, int r, const Error *err)
{
    if (r == -EACCES && !node->refused)
        log_error("etcd refuses this node's record: %s; what may this certificate's or user's name "
                  "do there? NODE=%s",
                  err->text, node->needs.config->node);
    node->refused = r == -EACCES;
    return node->refused;
}

/* ---- the owner of the record ---- */

static bool has_our_words(const OwnNode *node, int r, const NodeRecord *record)
{
    return r == 0 && strcmp(record->machine_id, node->needs.config->machine_id) == 0 &&
           record->incarnation == node->needs.incarnation;
}

static void on_quiet(void *userdata)
{
    OwnNode *node = userdata;
    log_info("no other writer has put this node's record for a while NODE=%s",
             node->needs.config->node);
    node->stranger_lease = node->stranger_revision = 0;
    node_touch(node);
}

/* Puts our record back at once, unless it was put back less than a second ago: then waits and reads the key again
 * first, since the key may be written again meanwhile. */
static void put_back(OwnNode *node, const EtcdKeyValue *kv)
{
    const uint64_t now = clock_boottime_usec();
    const uint64_t next_usec = node->restored_usec + RESTORE_MSEC * USEC_PER_MSEC;
    assert(etcd_lease_id(node->needs.lease) != 0); /* without a lease the node yields instead */
    if (node->stranger_revision == 0 || node->stranger_lease != kv->lease)
        log_event(LOG_LEVEL_WARNING, MESSAGE_STRANGER,
                  "another writer has put %s, under lease %llx, at revision %lld, while this "
                  "node's own lease lives; its record is put back, its ranks run on NODE=%s",
                  kv->key, (unsigned long long)kv->lease, (long long)kv->mod_revision,
                  node->needs.config->node);
    node->stranger_lease = kv->lease;
    node->stranger_revision = kv->mod_revision;
    timer_start(node->needs.timers, &node->quiet,
                (uint64_t)QUIET_LEASES * (uint64_t)node->needs.config->lease_sec * USEC_PER_SEC,
                on_quiet, node);
    if (node->restored_usec != 0 && now < next_usec) {
        look_later(node, next_usec - now);
        return;
    }
    node->restores = true;
    node->revision = kv->mod_revision;
    node_put(node);
}

static void yield(OwnNode *node, const EtcdKeyValue *kv, const NodeRecord *record)
{
    Error err = ERROR_INIT;
    assert(kv->lease != 0); /* the node waits until this lease ends */
    if (!node->yields) {
        (void)error_set(
            &err, -EEXIST,
            "%s is held under lease %llx%s%.40s%s%.60s; this machine is %s. Waiting until "
            "that lease has run out; if both machines are to be here, give one another "
            "name",
            kv->key, (unsigned long long)kv->lease, record ? ", by machine " : "",
            record ? record->machine_id : "", record ? " at " : "", record ? record->address : "",
            node->needs.config->machine_id);
        node->yields = true;
        node->has_name = false;
        node->needs.name_is_taken(node->needs.userdata, &err);
    }
    look_later(node, WAIT_MSEC * USEC_PER_MSEC);
}

static void on_last_ended(_unused_ int r, _unused_ const Error *err,
                          _unused_ const EtcdTxnResult *result, void *userdata)
{
    OwnNode *node = userdata;
    node->call = NULL; /* the call frees itself */
    node_look(node);   /* reads the record again; if it still exists, it is overwritten */
}

/* Revokes the lease of the previous sdtraind of this node. All records of that sdtraind vanish with the lease at once,
 * so that the leader knows that another sdtraind runs now. */
static void end_last_life(OwnNode *node, const EtcdKeyValue *kv)
{
    assert(!node->call && kv->lease == node->last_lease);
    if (!node->last_is_ended) {
        node->last_is_ended = true;
        if (etcd_revoke(node->needs.etcd, kv->lease, on_last_ended, node, &node->call) == 0)
            return;
    }
    node->revision = kv->mod_revision;
    node_put(node);
}

static void judge_occupant(OwnNode *node, const EtcdKeyValue *kv)
{
    NodeRecord record;
    Error err = ERROR_INIT;
    int r = node_record_decode(kv->key, kv->value, kv->n_value, &record, &err);
    const OccupantFacts facts = {.lease = kv->lease,
                                 .has_our_words = has_our_words(node, r, &record),
                                 .own_lease = etcd_lease_id(node->needs.lease),
                                 .held_lease = node->held_lease,
                                 .last_lease = node->last_lease};
    switch (occupant_judge(&facts)) {
    case OCCUPANT_STRANGER:
        put_back(node, kv);
        return;
    case OCCUPANT_HOLDER:
        yield(node, kv, r == 0 ? &record : NULL);
        return;
    case OCCUPANT_LAST_LIFE:
        end_last_life(node, kv);
        return;
    case OCCUPANT_NOBODY:
        log_warning("%s, which nobody keeps alive, is written over%s%s NODE=%s", kv->key,
                    r < 0 ? ": " : "", r < 0 ? err.text : "", node->needs.config->node);
        break;
    case OCCUPANT_OURS:
        break;
    }
    node->revision = kv->mod_revision;
    node_put(node);
}

static void on_looked(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    OwnNode *node = userdata;
    node->call = NULL; /* the call frees itself */
    if (r < 0) {
        if (!is_refused(node, r, err))
            log_debug("cannot read this node's record: %s; trying again", err->text);
        retry_later(node);
        return;
    }
    fence_note_contact(node->needs.fence);
    node->revision = 0;
    if (range->n_kvs > 0) {
        judge_occupant(node, &range->kvs[0]);
    } else {
        node->with_ranks |= node->registered; /* the key is gone, even if no event said so */
        node_put(node);
    }
}

/* Reads our key again if another client has changed it. While a call is under way, does nothing: either the guard of
 * the call fails, or this function is called again after the call. */
static void make_good(OwnNode *node)
{
    if (node->yields && node->seen_removed && !node->call) { /* the other machine may have left */
        node->seen_removed = false;
        node_look(node);
        return;
    }
    if (!node->registered || node->call || timer_runs(&node->retry) ||
        node->seen_revision <= node->revision)
        return;
    node->lease = 0;
    node->wanted = true;
    node->with_ranks |= node->seen_removed; /* the leader may have moved the ranks' world */
    node_look(node);
}

void node_disturbed(OwnNode *node, int64_t revision, bool removed)
{
    node->seen_revision = revision;
    node->seen_removed |= removed; /* a later put by another client does not undo the deletion */
    make_good(node);
}

static void node_look(OwnNode *node)
{
    char key[KEY_MAX];
    assert(!node->call);
    if (node->looks)
        timer_stop(&node->retry); /* the timer was for this read */
    node->looks = false;
    int r = etcd_get(node->needs.etcd,
                     key_of(node->needs.config->cluster, KEY_NODES, node->needs.config->node, key),
                     false, on_looked, node, &node->call);
    if (r < 0)
        retry_later(node);
}

/* ---- the records of the ranks, which are put with the node's ---- */

static bool goes_along(const LocalJob *job) { return job->local && !job->local->over; }

/* Returns whether the guards of all the ranks' records are known. */
static bool observe_ranks(const OwnNode *node)
{
    bool is_known = true;
    for (LocalJob *job = node->needs.workload->jobs; job; job = job->next)
        if (goes_along(job))
            is_known &= record_writer_observe(&job->local->report);
    return is_known;
}

/* Adds the ranks' records to the transaction that puts the node's record back, so that no reader sees the node's record
 * without the ranks' records. Each record is also guarded by the revision of its own key: a delayed put must not
 * replace a newer record. */
static size_t add_ranks(const OwnNode *node, int64_t lease, EtcdCompare *guards, EtcdOp *ops,
                        char **texts, char (*keys)[KEY_MAX])
{
    size_t n = 0;
    for (LocalJob *job = node->needs.workload->jobs; job && n < TOGETHER_MAX; job = job->next) {
        LocalWorld *local = job->local;
        if (!goes_along(job))
            continue;
        texts[n] = local->report.encode(local);
        guards[2 * n] =
            (EtcdCompare){key_of(node->needs.config->cluster, KEY_WORLDS, job->name, keys[n]),
                          ETCD_MOD_REVISION, local->world_revision};
        guards[2 * n + 1] =
            (EtcdCompare){local->report.key, ETCD_MOD_REVISION, local->report.revision};
        ops[n] =
            (EtcdOp){.kind = ETCD_PUT, .key = local->report.key, .value = texts[n], .lease = lease};
        n++;
    }
    return n;
}

/* Stops the writers of the n ranks' records that are put together with the node's record. release_ranks() starts the
 * writers again. */
static void hold_ranks(const OwnNode *node, size_t n)
{
    for (LocalJob *job = node->needs.workload->jobs; job && n > 0; job = job->next)
        if (goes_along(job)) {
            record_writer_hold(&job->local->report);
            n--;
        }
    assert(n == 0); /* the writers of all n records are stopped */
}

static void release_report(RecordWriter *report, int64_t revision)
{
    if (!report->held)
        return;
    if (revision > 0)
        record_writer_note(report, revision);
    else
        record_writer_doubt(report);
    record_writer_release(report);
}

/* Lets the writers of the ranks' records go on. revision 0: it is unknown whether the records were written. */
static void release_ranks(const OwnNode *node, int64_t revision)
{
    for (LocalJob *job = node->needs.workload->jobs; job; job = job->next) {
        if (job->local)
            release_report(&job->local->report, revision);
        for (LocalWorld *t = job->over; t; t = t->next)
            release_report(&t->report, revision);
    }
}

/* ---- writing the record ---- */

static void on_node_put(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    OwnNode *node = userdata;
    node->call = NULL; /* the call frees itself */
    release_ranks(node, r == 0 && result->succeeded ? result->revision : 0);
    if (r < 0 || !result->succeeded) {
        node->lease = 0;
        node->wanted = true;
        if (is_refused(node, r, err)) {
            retry_later(node);
            return;
        }
        if (r < 0)
            log_debug("cannot put this node's record: %s; reading again", err->text);
        node->with_ranks |= node->seen_removed;
        if (node->with_ranks) { /* the world may have moved: its old ranks must end first */
            (void)observe_ranks(node);
            retry_later(node);
        }
        /* After a lost race the next try comes soon, since a leader might accept the other writer's record. */
        if (node->restores && !node->with_ranks && r == 0)
            look_later(node, RACE_MSEC * USEC_PER_MSEC);
        else
            node_look(node);
        node->restores = false;
        return;
    }
    if (node->restores)
        node->restored_usec = clock_boottime_usec();
    node->restores = false;

    fence_note_contact(node->needs.fence);
    node->with_ranks = false;
    node->refused = false;
    node->held_lease = node->put_lease;
    node->yields = false;
    node->has_name = true;
    node->revision = result->revision;
    if (node->seen_revision <= node->revision)
        node->seen_removed = false; /* the deletion is undone */
    if (!node->registered) {
        node->registered = true;
        log_event(LOG_LEVEL_INFO, MESSAGE_REGISTERED, "registered NODE=%s",
                  node->needs.config->node);
        node->needs.registered(node->needs.userdata);
    }
    if (node->wanted)
        node_put(node);
    else
        workload_note_node_written(node->needs.workload);
    make_good(node); /* the watch may have shown a change before etcd answered */
    node_touch(node);
}

static void node_put(OwnNode *node)
{
    int64_t lease = etcd_lease_id(node->needs.lease);
    if (node->call || timer_runs(&node->retry) || lease == 0 || !*node->needs.is_probed) {
        node->wanted = true;
        return;
    }
    if (node->with_ranks &&
        (workload_has_old_ranks(node->needs.workload) || /* the old ranks must end first */
         !observe_ranks(node))) {
        node->wanted = true;
        retry_later(node);
        return;
    }

    char key[KEY_MAX], keys[TOGETHER_MAX][KEY_MAX];
    char *texts[TOGETHER_MAX] = {0};
    EtcdCompare guards[1 + 2 * TOGETHER_MAX];
    EtcdOp ops[1 + TOGETHER_MAX];
    const NodeRecord record = node_record(node);
    history_note_lease(node->needs.history, lease);
    _cleanup_free_ char *labels = labels_text(node);
    _cleanup_free_ char *text = node_record_encode(&record, labels);
    guards[0] =
        (EtcdCompare){key_of(node->needs.config->cluster, KEY_NODES, node->needs.config->node, key),
                      ETCD_MOD_REVISION, node->revision};
    ops[0] = (EtcdOp){.kind = ETCD_PUT, .key = key, .value = text, .lease = lease};
    size_t n = node->with_ranks ? add_ranks(node, lease, guards + 1, ops + 1, texts, keys) : 0;
    assert(n <= TOGETHER_MAX);
    int r =
        etcd_txn(node->needs.etcd, guards, 1 + 2 * n, ops, 1 + n, on_node_put, node, &node->call);
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    if (r < 0) {
        log_warning("cannot put this node's record: %s", strerror(-r));
        node->wanted = true;
        retry_later(node);
        return;
    }
    hold_ranks(node, n);
    node->wanted = false;
    node->lease = node->put_lease = lease;
    node->put = record;
}

static void node_update(OwnNode *node)
{
    const NodeRecord record = node_record(node);
    /* All fields of the record are set, and none is a pointer, so memcmp() finds every change. A record that differs
     * only in its padding is put once more. */
    if (node->lease == 0 || memcmp(&record, &node->put, sizeof(record)) != 0)
        node_put(node);
}

void node_touch(OwnNode *node)
{
    if (node->has_name && !timer_runs(&node->programs_retry))
        request_programs(node); /* the setting may have been reloaded */
    node_update(node);
    node->needs.touched(node->needs.userdata);
}

void node_note_health(OwnNode *node, NodeVerdict verdict, uint64_t bad_slots, const char *evidence,
                      const SlotGpus *gpus)
{
    assert(gpus->n >= 0 && gpus->n <= RECORD_SLOTS_MAX);
    node->gpus = *gpus;
    node->verdict = verdict;
    node->bad_slots = bad_slots;
    (void)snprintf(node->evidence, sizeof(node->evidence), "%s", evidence);
    node_touch(node);
}

void node_leave(OwnNode *node)
{
    assert(node->state != NODE_LEFT);
    node->state = NODE_LEFT;
    node_touch(node);
}

bool node_is_settled(const OwnNode *node)
{
    return !node->call && !timer_runs(&node->retry) && !node->wanted && node->lease != 0;
}

void node_lease_changed(OwnNode *node, EtcdLeaseState state)
{
    fence_note_contact(node->needs.fence);
    if (state != ETCD_LEASE_GRANTED)
        node->needs.lease_changed(node->needs.userdata, state == ETCD_LEASE_RENEWED);
    if (state == ETCD_LEASE_LOST) {
        log_event(LOG_LEVEL_WARNING, MESSAGE_LEASE_LOST,
                  "the lease is gone; taking a new one, ranks run on NODE=%s",
                  node->needs.config->node);
        node->revision = 0;
        node->lease = 0;
        workload_note_lease_lost(node->needs.workload);
        return;
    }
    if (state != ETCD_LEASE_GRANTED)
        return;

    node->lease = 0;
    node->with_ranks = node->registered;
    node_put(node);
    /* Each report of ranks is also written by itself, since the guards of the node's put may fail. */
    workload_note_lease(node->needs.workload);
}
