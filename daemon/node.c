/* node.c - see node.h. */
#include "daemon/node.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/message-id.h"
#include "cluster/keys.h"
#include "daemon/manager.h"
#include "daemon/world/exit.h"
#include "daemon/world/local-world.h"
#include "daemon/world/rank.h"

#include <fcntl.h>
#include <string.h>
#include <sys/sysinfo.h>

enum { RETRY_MSEC = 200, RIGHTS_MSEC = 30000, TOGETHER_MAX = RECORD_SLOTS_MAX };

static void node_put(Manager *m);
static void node_look(Manager *m);
static void make_good(Manager *m);

int node_open(OwnNode *node, Error *err)
{
    const char *path = "/proc/sys/kernel/random/boot_id";
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, node->boot_id, sizeof(node->boot_id) - 1);
    if (n < 0)
        return error_errno(err, -errno, "cannot read %s", path);
    node->boot_id[strcspn(node->boot_id, "\n")] = '\0';
    return 0;
}

void node_clear(OwnNode *node)
{
    node->call = etcd_call_free(node->call);
    timer_stop(&node->retry);
    node->rights_call = etcd_call_free(node->rights_call);
    timer_stop(&node->rights_retry);
    free(node->text);
    node->text = NULL;
}

/* ---- what it says ---- */

/* {"labels": {...}}: a field that the codec does not know and therefore keeps. */
static char *labels_text(const Manager *m)
{
    if (!m->config.labels)
        return NULL;
    _cleanup_json_ json_t *root = json_pack("{sO}", "labels", m->config.labels);
    return root ? json_dumps(root, JSON_COMPACT) : NULL;
}

/* 0: nobody knows. */
static uint64_t machine_memory(void)
{
    struct sysinfo info;
    return sysinfo(&info) < 0 ? 0 : ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
}

static int node_encode(const Manager *m, char **ret)
{
    const OwnNode *node = &m->node;
    NodeRecord record = {.incarnation = m->incarnation,
                         .n_slots = (int)m->config.slots,
                         .state = node->state,
                         .verdict = node->verdict,
                         .lost_slots = m->workload.slots.lost,
                         .bad_slots = node->bad_slots,
                         .startup_usec = (uint64_t)(m->config.startup_sec * 1e6),
                         .memory_bytes = machine_memory()};
    (void)snprintf(record.name, sizeof(record.name), "%s", m->config.node);
    (void)snprintf(record.machine_id, sizeof(record.machine_id), "%s", m->config.machine_id);
    (void)snprintf(record.boot_id, sizeof(record.boot_id), "%s", node->boot_id);
    (void)snprintf(record.address, sizeof(record.address), "%s", m->config.address);
    (void)snprintf(record.version, sizeof(record.version), "%s", SDTRAIN_VERSION);
    (void)snprintf(record.evidence, sizeof(record.evidence), "%s", node->evidence);
    (void)snprintf(record.log_dir, sizeof(record.log_dir), "%s", m->config.log_dir);
    if (m->draining && record.verdict < NODE_DRAIN) {
        record.verdict = NODE_DRAIN;
        (void)snprintf(record.evidence, sizeof(record.evidence), "sdtraind is told to stop");
    }
    exit_repair_text(record.evidence);
    history_tell(m, &record);
    if (node->knows_secrets)
        (void)snprintf(record.features, sizeof(record.features), "%s", FEATURE_SECRETS);
    const LocalWorld *local = workload_running(&m->workload);
    if (local) {
        (void)snprintf(record.job, sizeof(record.job), "%s", local->job->name);
        record.world_revision = local->world_revision;
        record.generation = local->generation;
    }
    _cleanup_free_ char *labels = labels_text(m);
    return node_record_encode(&record, labels, ret);
}

/* ---- what it may read ---- */

static void on_rights_retry(void *userdata)
{
    Manager *m = userdata;
    node_ask_rights(m);
}

static void on_rights(int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                      void *userdata)
{
    Manager *m = userdata;
    OwnNode *node = &m->node;
    node->rights_call = NULL; /* it frees itself */
    if (r < 0) {              /* roles may be brought up to date while it runs */
        timer_start(&m->timers, &node->rights_retry,
                    (r == -EACCES ? RIGHTS_MSEC : RETRY_MSEC) * USEC_PER_MSEC, on_rights_retry, m);
        return;
    }
    node->knows_secrets = true;
    node_update(m);
}

void node_ask_rights(Manager *m)
{
    char key[KEY_MAX];
    int r = etcd_get(m->etcd, key_of(m->config.cluster, KEY_SECRETS, ".rights", key), false,
                     on_rights, m, &m->node.rights_call);
    if (r < 0)
        timer_start(&m->timers, &m->node.rights_retry, RETRY_MSEC * USEC_PER_MSEC, on_rights_retry,
                    m);
}

/* ---- putting it ---- */

static void on_node_retry(void *userdata)
{
    Manager *m = userdata;
    node_put(m);
}

static void retry_later(Manager *m)
{
    if (!timer_runs(&m->node.retry))
        timer_start(&m->timers, &m->node.retry, RETRY_MSEC * USEC_PER_MSEC, on_node_retry, m);
}

/* Missing rights are a person's to give: said once, and tried again slowly. */
static bool is_refused(Manager *m, int r, const Error *err)
{
    OwnNode *node = &m->node;
    if (r == -EACCES && !node->refused)
        log_error("etcd refuses this node's record: %s; what may this certificate's or user's name "
                  "do there? NODE=%s",
                  err->text, m->config.node);
    node->refused = r == -EACCES;
    return node->refused;
}

/* Somebody's record lies under our name: ours of an earlier life or an earlier lease, or another
 * machine's. What is nobody's is written over: no record of a live node is without a lease, and what cannot be
 * read says of no other machine that it is there. */
static void judge_tenant(Manager *m, const EtcdKeyValue *kv)
{
    NodeRecord record;
    Error err = ERROR_INIT;
    int r = node_record_decode(kv->key, kv->value, kv->n_value, &record, &err);
    if (r == -EINVAL || kv->lease == 0) {
        log_warning("%s; writing this node's record over it NODE=%s",
                    r < 0 ? err.text : "this node's record has no lease: a stranger wrote it",
                    m->config.node);
        r = 0;
    } else if (r == 0 && strcmp(record.machine_id, m->config.machine_id) != 0)
        r = error_set(&err, -EEXIST,
                      "%s: machine %s (%s) is registered under this name; this one is %s. Give the "
                      "node another name, or wait until that one's lease has run out",
                      kv->key, record.machine_id, record.address, m->config.machine_id);
    else if (r == 0 && record.incarnation > m->incarnation)
        r = error_set(&err, -EEXIST, "%s: a later sdtraind of this machine runs under this name",
                      kv->key);
    if (r < 0) {
        workload_kill_all(&m->workload, "the node's name belongs to another");
        manager_fail(m, &err);
        return;
    }
    m->node.revision = kv->mod_revision;
    node_put(m);
}

static void on_looked(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Manager *m = userdata;
    m->node.call = NULL; /* it frees itself */
    if (r < 0) {
        if (!is_refused(m, r, err))
            log_debug("cannot read this node's record: %s; trying again", err->text);
        retry_later(m);
        return;
    }
    manager_note_contact(m);
    m->node.revision = 0;
    if (range->n_kvs > 0)
        judge_tenant(m, &range->kvs[0]);
    else
        node_put(m);
}

/* Our key is not as we put it. What is under way meanwhile learns of it by its guard, or has just ended. */
static void make_good(Manager *m)
{
    OwnNode *node = &m->node;
    if (!node->registered || node->call || timer_runs(&node->retry) ||
        node->seen_revision <= node->revision)
        return;
    node->lease = 0;
    node->wanted = true;
    node->with_ranks |= node->seen_removed; /* the leader may have moved their world by now */
    node_look(m);
}

void node_disturbed(Manager *m, int64_t revision, bool removed)
{
    m->node.seen_revision = revision;
    m->node.seen_removed = removed;
    make_good(m);
}

static void node_look(Manager *m)
{
    char key[KEY_MAX];
    int r = etcd_get(m->etcd, key_of(m->config.cluster, KEY_NODES, m->config.node, key), false,
                     on_looked, m, &m->node.call);
    if (r < 0)
        retry_later(m);
}

static void on_node_put(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Manager *m = userdata;
    OwnNode *node = &m->node;
    node->call = NULL; /* it frees itself */
    if (r < 0 || !result->succeeded) {
        node->lease = 0;
        node->wanted = true;
        if (is_refused(m, r, err)) {
            retry_later(m);
            return;
        }
        if (r < 0)
            log_debug("cannot put this node's record: %s; reading again", err->text);
        if (node->with_ranks) /* their world may have moved: they die first */
            retry_later(m);
        node_look(m);
        return;
    }

    manager_note_contact(m);
    node->with_ranks = false;
    node->refused = false;
    node->revision = result->revision;
    if (!node->registered) {
        node->registered = true;
        log_event(LOG_LEVEL_INFO, MESSAGE_REGISTERED, "registered NODE=%s", m->config.node);
        status_ready(m);
    }
    if (node->wanted)
        node_put(m);
    else
        workload_note_node_told(&m->workload);
    make_good(m); /* the watch may have been faster than the answer */
    manager_touch_node(m);
}

/* The node and what runs on it come back together, so that nobody sees one without the other. */
static size_t add_ranks(Manager *m, int64_t lease, EtcdCompare *guards, EtcdOp *ops, char **texts,
                        char (*keys)[KEY_MAX])
{
    size_t n = 0;
    for (LocalJob *job = m->workload.jobs; job && n < TOGETHER_MAX; job = job->next) {
        LocalWorld *local = job->local;
        if (!local || local->over || local->report.encode(local, &texts[n]) < 0)
            continue;
        guards[n] = (EtcdCompare){key_of(m->config.cluster, KEY_WORLDS, job->name, keys[n]),
                                  ETCD_MOD_REVISION, local->world_revision};
        ops[n] =
            (EtcdOp){.kind = ETCD_PUT, .key = local->report.key, .value = texts[n], .lease = lease};
        n++;
    }
    return n;
}

static void node_put(Manager *m)
{
    OwnNode *node = &m->node;
    int64_t lease = etcd_lease_id(m->lease);
    if (node->call || timer_runs(&node->retry) || lease == 0 || !m->probes.is_ready) {
        node->wanted = true;
        return;
    }
    if (node->with_ranks && workload_has_old_ranks(&m->workload)) { /* nobody would know of them if
 the node came back now */
        node->wanted = true;
        retry_later(m);
        return;
    }

    char key[KEY_MAX], keys[TOGETHER_MAX][KEY_MAX];
    char *texts[TOGETHER_MAX] = {0};
    EtcdCompare guards[1 + TOGETHER_MAX];
    EtcdOp ops[1 + TOGETHER_MAX];
    _cleanup_free_ char *text = NULL;
    int r = node_encode(m, &text);
    guards[0] = (EtcdCompare){key_of(m->config.cluster, KEY_NODES, m->config.node, key),
                              ETCD_MOD_REVISION, node->revision};
    ops[0] = (EtcdOp){.kind = ETCD_PUT, .key = key, .value = text, .lease = lease};
    size_t n = node->with_ranks ? add_ranks(m, lease, guards + 1, ops + 1, texts, keys) : 0;
    if (r == 0)
        r = etcd_txn(m->etcd, guards, 1 + n, ops, 1 + n, on_node_put, m, &node->call);
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    if (r < 0) {
        log_warning("cannot put this node's record: %s", strerror(-r));
        node->wanted = true;
        retry_later(m);
        return;
    }
    node->wanted = false;
    node->lease = lease;
    free(node->text);
    node->text = TAKE_PTR(text);
}

void node_update(Manager *m)
{
    OwnNode *node = &m->node;
    if (!m->lease)
        return;
    _cleanup_free_ char *text = NULL;
    if (node_encode(m, &text) < 0)
        return; /* out of memory: the next change tries again */
    if (node->lease == 0 || !node->text || strcmp(text, node->text) != 0)
        node_put(m);
}

bool node_is_settled(const Manager *m)
{
    const OwnNode *node = &m->node;
    return !node->call && !timer_runs(&node->retry) && !node->wanted && node->lease != 0;
}

void node_lease_changed(Manager *m, EtcdLeaseState state)
{
    OwnNode *node = &m->node;
    manager_note_contact(m);
    if (state != ETCD_LEASE_GRANTED)
        daemon_metrics_note_lease(m, state == ETCD_LEASE_RENEWED);
    if (state == ETCD_LEASE_LOST) {
        log_event(LOG_LEVEL_WARNING, MESSAGE_LEASE_LOST,
                  "the lease is gone; taking a new one, ranks run on NODE=%s", m->config.node);
        node->revision = 0;
        node->lease = 0;
        return;
    }
    if (state != ETCD_LEASE_GRANTED)
        return;

    node->lease = 0;
    node->with_ranks = node->registered;
    node_put(m);
    workload_note_lease(&m->workload); /* each record for itself too: guards may differ */
}
