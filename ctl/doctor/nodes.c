/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.c - the checks that nodes run for `sdctl doctor`: one request goes to all nodes, and each node writes a report
 * into health/<node>. */
#include "base/clock.h"
#include "base/memory.h"
#include "cluster/keys.h"
#include "ctl/doctor/checks.h"
#include "ctl/doctor/node-report.h"

#include <string.h>

enum {
    NOFILE_MIN = 1024,
    CLOCK_OFF_MSEC = 1000,
    GPU_SHM_MIB = 1024,   /* NCCL needs /dev/shm: ranks of one node share memory in it */
    GPU_MEMLOCK_MIB = 64, /* RDMA and CUDA pin memory */
};

static const char node_check_name[] = "nodes", store_check[] = "stores", user_check[] = "user",
                  clock_check[] = "clock", limit_check[] = "limits", cgroup_check[] = "cgroups",
                  network_check[] = "network", version_check[] = "versions",
                  program_check[] = "programs";

typedef struct NodeQuery {
    const NodeRecord *node;
    bool present;        /* the watch has shown the node's record */
    bool answered, went; /* went: the node's record vanished before an answer */
    uint64_t heard_usec; /* realtime: when the answer was seen */
    NodeReport report;
} NodeQuery;

typedef struct NodeQueries {
    const char *cluster;
    NodeQuery *nodes; /* sorted by name, as in the model */
    size_t n, n_left;
    bool is_listed; /* the watch has shown the present state */
    RequestRecord request;
    const NodeRecord *peers[RECORD_PEERS_MAX]; /* the nodes of request.peers */
    uint64_t sent_usec;                        /* realtime of the request */
} NodeQueries;

/* ---- the request and the reports ---- */

static int by_name(const void *name, const void *asked)
{
    return strcmp(name, ((const NodeQuery *)asked)->node->name);
}

static void take_answer(NodeQueries *asking, NodeQuery *one, const EtcdKeyValue *kv)
{
    HealthRecord health;
    Error ignored = ERROR_INIT;
    if (health_record_decode(kv->key, kv->value, kv->n_value, &health, &ignored) < 0)
        return; /* the record is of another version or damaged: not an answer */
    if (strcmp(health.report_id, asking->request.id) == 0) {
        node_report_read(health.report, &one->report);
        one->answered = true;
        one->heard_usec = clock_realtime_usec();
        asking->n_left--;
    }
    health_record_clear(&health);
}

static void note_gone(NodeQueries *asking, NodeQuery *one)
{
    if (one->answered || one->went)
        return;
    one->went = true;
    asking->n_left--;
}

/* A record that was deleted between the read of the model and the start of the watch makes no event. */
static void end_listing(NodeQueries *asking)
{
    if (asking->is_listed)
        return;
    asking->is_listed = true;
    for (size_t i = 0; i < asking->n; i++)
        if (!asking->nodes[i].present)
            note_gone(asking, &asking->nodes[i]);
}

/* Handles an event; a node whose record was deleted is not waited for any longer. */
static int on_record(const EtcdEvent *event, void *userdata)
{
    NodeQueries *asking = userdata;
    KeyKind kind;
    const char *rest;
    if (!event) {
        end_listing(asking);
        return asking->n_left == 0;
    }
    if (key_parse(asking->cluster, event->kv.key, &kind, &rest) < 0 ||
        (kind != KEY_HEALTH && kind != KEY_NODES))
        return 0;
    NodeQuery *one = bsearch(rest, asking->nodes, asking->n, sizeof(*asking->nodes), by_name);
    if (!one)
        return 0;
    one->present |= kind == KEY_NODES;
    if (kind == KEY_NODES && event->kind == ETCD_EVENT_DELETE)
        note_gone(asking, one);
    else if (kind == KEY_HEALTH && event->kind == ETCD_EVENT_PUT && !one->answered && !one->went)
        take_answer(asking, one, &event->kv);
    return 0;
}

/* Adds all nodes as peers, or as many as fit, spread over the list, because nodes of one rack have neighbouring
 * names. */
static void add_peers(NodeQueries *asking)
{
    RequestRecord *q = &asking->request;
    const size_t n = MIN(asking->n, (size_t)RECORD_PEERS_MAX);
    for (size_t i = 0; i < n; i++) {
        const NodeRecord *node = asking->nodes[i * asking->n / n].node;
        if (!*node->address)
            continue;
        asking->peers[q->n_peers] = node;
        memcpy(q->peers[q->n_peers++].address, node->address, sizeof(node->address));
    }
}

static int query_nodes(CtlClient *client, const Stores *stores, NodeQueries *asking,
                       double timeout_sec, Error *err)
{
    char key[KEY_MAX];
    bool done;
    RequestRecord *q = &asking->request;
    for (size_t i = 0; i < stores->n; i++) {
        RequestUri *u = &q->uris[q->n_uris++];
        (void)snprintf(u->uri, sizeof(u->uri), "%s", stores->tries[i].uri);
        (void)snprintf(u->marker, sizeof(u->marker), "%s", stores->tries[i].marker);
        u->write = stores->tries[i].kind != STORE_TRY_READ;
    }
    add_peers(asking);
    asking->sent_usec = clock_realtime_usec();
    int r = client_request(client, "doctor", "", q, err);
    if (r < 0)
        return r;
    r = client_watch(client, on_record, asking, (uint64_t)(timeout_sec * 1e6), err);
    const EtcdOp remove = {.kind = ETCD_DELETE,
                           .key = key_of(client->cluster, KEY_REQUESTS, q->id, key)};
    Error ignored = ERROR_INIT;
    /* If the deletion fails, the request is removed after an hour. */
    (void)client_txn(client, NULL, 0, &remove, 1, &done, &ignored);
    return r == -ETIMEDOUT ? 0 : MIN(r, 0); /* a missing answer is reported as a finding */
}

/* ---- judging ---- */

static void store_advice(const StoreTry *t, const StoreReport *s, const char *user,
                         char ret[FINDING_TEXT_MAX])
{
    const bool files = strncmp(t->uri, "s3://", 5) != 0;
    if (s->r == -EACCES && files && *user && !strstr(s->error, "under paths_"))
        (void)snprintf(ret, FINDING_TEXT_MAX,
                       "ranks run as %s there, who may not %s it: chown, chmod", user,
                       t->kind == STORE_TRY_READ ? "read" : "write to");
    else
        (void)snprintf(ret, FINDING_TEXT_MAX, "%s",
                       strstr(s->error, "under paths_")
                           ? "its settings say what jobs may name; systemctl reload sdtraind"
                       : files ? "is it mounted there, and may the user of the ranks use it?"
                               : "endpoint, region and credentials of sdtraind's environment");
}

static void refuse_store(const NodeQuery *a, const StoreTry *t, const StoreReport *s, Findings *f)
{
    char key[FINDING_TEXT_MAX], advice[FINDING_TEXT_MAX];
    const char *uri = t->uri;
    const bool named = strstr(s->error, uri) != NULL;
    store_advice(t, s, a->report.user, advice);
    (void)snprintf(key, sizeof(key), "%lld %.300s", (long long)s->r, uri);
    findings_add_alike(f, FINDING_WRONG, store_check, a->node->name, advice, key, "%s%s%s",
                       named ? "" : uri, named ? "" : ": ", s->error);
}

static void judge_stores(const NodeQuery *a, const Stores *stores, Findings *f)
{
    for (size_t i = 0; i < MIN(a->report.n_stores, stores->n); i++) {
        const StoreTry *t = &stores->tries[i];
        const StoreReport *s = &a->report.stores[i];
        const char *node = a->node->name;
        if (s->r < 0)
            refuse_store(a, t, s, f);
        else if (*t->marker && s->lacks_marker)
            findings_add(f, FINDING_WRONG, store_check, node,
                         "mount the shared file system there: all nodes must see the same files",
                         "%s: what was written from here is not there: it is another folder",
                         t->uri);
        else
            findings_add(f, FINDING_OK, store_check, node, NULL, "%s: %s", t->uri,
                         t->kind == STORE_TRY_READ ? "a dataset that can be read"
                                                   : "can be written and read");
    }
}

static void judge_limits(const NodeQuery *a, Findings *f)
{
    const NodeReport *r = &a->report;
    const char *node = a->node->name;
    const bool gpus = a->node->n_gpus > 0;
    const int64_t shm_mib = r->shm_bytes >> 20, memlock_mib = r->memlock_bytes >> 20;
    bool good = true;
    if (r->nofile >= 0 && r->nofile < NOFILE_MIN) {
        good = false;
        findings_add(f, FINDING_WRONG, limit_check, node, "LimitNOFILE=65536 in sdtraind's unit",
                     "%lld open files: too few for the connections of a large world",
                     (long long)r->nofile);
    }
    if (gpus && r->memlock_bytes >= 0 && memlock_mib < GPU_MEMLOCK_MIB) {
        good = false;
        findings_add(f, FINDING_WRONG, limit_check, node,
                     "LimitMEMLOCK=infinity in sdtraind's unit",
                     "%lld MiB of locked memory: too little for GPUs and RDMA",
                     (long long)memlock_mib);
    }
    if (gpus && shm_mib < GPU_SHM_MIB) {
        good = false;
        findings_add(f, FINDING_WRONG, limit_check, node,
                     "mount /dev/shm larger; in a container --shm-size",
                     "/dev/shm has %lld MiB free: too little for the GPUs of one node to share",
                     (long long)shm_mib);
    }
    if (good)
        findings_add(f, FINDING_OK, limit_check, node, NULL,
                     "open files, locked memory and /dev/shm suffice");
    if (*r->cgroup)
        findings_add(f, FINDING_OK, cgroup_check, node, NULL, "each rank gets one");
    else
        findings_add(f, FINDING_NOTE, cgroup_check, node,
                     "Delegate=yes in sdtraind's unit, and cgroup v2",
                     "not in use: only process groups hold ranks together");
}

/* Checks the user, limits and devices of programs on a node that runs them (allow_exec). */
static void judge_programs(const NodeQuery *a, Findings *f)
{
    const ProgramsReport *p = &a->report.programs;
    const char *node = a->node->name;
    const bool gpus = a->node->n_gpus > 0;
    bool good = true;
    if (!p->has)
        return;
    if (*p->error) {
        findings_add(f, FINDING_WRONG, program_check, node,
                     "systemctl status sdtrain-exec.socket 'sdtrain-exec@*' there",
                     "cannot be started: %s", p->error);
        return;
    }
    if (p->n_closed_devices > 0) {
        good = false;
        findings_add(f, gpus ? FINDING_WRONG : FINDING_NOTE, program_check, node,
                     "add the user to their groups: usermod -aG video,render",
                     "run as %s, who cannot open %lld devices, the first %s", p->user,
                     (long long)p->n_closed_devices, p->closed_device);
    }
    if (*p->closed_secrets) {
        good = false;
        findings_add(f, FINDING_WRONG, program_check, node, "chgrp, chmod 0640",
                     "run as %s, who cannot read %s (exec_secrets)", p->user, p->closed_secrets);
    }
    if (gpus && p->memlock_bytes >= 0 && p->memlock_bytes >> 20 < GPU_MEMLOCK_MIB) {
        good = false;
        findings_add(f, FINDING_WRONG, program_check, node,
                     "LimitMEMLOCK=infinity in their unit, sdtrain-exec@.service",
                     "%lld MiB of locked memory: too little for GPUs and RDMA",
                     (long long)p->memlock_bytes >> 20);
    }
    if (p->uid == a->report.uid)
        findings_add(f, FINDING_NOTE, program_check, node,
                     "exec_user in sdtraind's settings, see docs/operating/programs.md",
                     "run as %s, the user of sdtraind, and can read its keys", p->user);
    else if (good)
        findings_add(f, FINDING_OK, program_check, node, NULL, "run as %s (%lld), in units",
                     *p->user ? p->user : "a user without a name", (long long)p->uid);
}

/* Adds a finding for each peer to which the node cannot connect. */
static void judge_peers(const NodeQueries *asking, const NodeQuery *a, int64_t *longest_usec,
                        Findings *f)
{
    for (size_t i = 0; i < MIN(a->report.n_peers, asking->request.n_peers); i++) {
        const int64_t usec = a->report.peers[i];
        if (usec < 0)
            findings_add(f, FINDING_WRONG, network_check, a->node->name,
                         "ranks connect to each other at ports 32768 and above, both ways",
                         "cannot reach %s at %s: %s", asking->peers[i]->name,
                         asking->peers[i]->address,
                         usec == -EADDRNOTAVAIL ? "the name is not known there"
                                                : strerror((int)-usec));
        *longest_usec = MAX(*longest_usec, usec);
    }
}

/* Checks the node's clock. The node read its clock between sent_usec and heard_usec of this machine, so the error of
 * the clock is the distance from that interval. */
static void judge_clock(const NodeQueries *asking, const NodeQuery *a, Findings *f)
{
    const double at = (double)a->report.at_usec, sent = (double)asking->sent_usec,
                 heard = (double)a->heard_usec;
    const double off = at < sent ? at - sent : at > heard ? at - heard : 0;
    if (off * (off < 0 ? -1 : 1) > CLOCK_OFF_MSEC * 1e3)
        findings_add(f, FINDING_WRONG, clock_check, a->node->name,
                     "switch time synchronisation on (timedatectl), there or here",
                     "is %.0f s %s this machine's", (off < 0 ? -off : off) / 1e6,
                     off < 0 ? "behind" : "ahead of");
    else if (!a->report.synchronised)
        findings_add(f, FINDING_NOTE, clock_check, a->node->name,
                     "timedatectl set-ntp true, or chrony",
                     "is right to a second, but nobody disciplines it");
    else
        findings_add(f, FINDING_OK, clock_check, a->node->name, NULL,
                     "is synchronised, and right to a second by this machine's");
}

/* Returns the user id that most nodes report, or -1. */
static int64_t common_uid(const NodeQueries *asking)
{
    int64_t best = -1;
    size_t most = 0;
    for (size_t i = 0; i < asking->n && most <= asking->n / 2; i++) {
        size_t n = 0;
        const NodeQuery *a = &asking->nodes[i];
        if (!a->answered || *a->report.error)
            continue;
        for (size_t k = 0; k < asking->n; k++)
            n += asking->nodes[k].answered && !*asking->nodes[k].report.error &&
                 asking->nodes[k].report.uid == a->report.uid;
        if (n > most) {
            most = n;
            best = a->report.uid;
        }
    }
    return best;
}

static void judge_user(const NodeQuery *a, int64_t common, bool files, Findings *f)
{
    const NodeReport *r = &a->report;
    if (r->uid == common)
        findings_add(f, FINDING_OK, user_check, a->node->name, NULL, "ranks run as %s (%lld)",
                     *r->user ? r->user : "a user without a name", (long long)r->uid);
    else
        findings_add(f, files ? FINDING_WRONG : FINDING_NOTE, user_check, a->node->name,
                     "/etc/sysusers.d/sdtrain.conf gives user sdtrain the same number everywhere",
                     "ranks run as %s (%lld), elsewhere as %lld%s", *r->user ? r->user : "?",
                     (long long)r->uid, (long long)common,
                     files ? ": they cannot write each other's files" : "");
}

static void judge(const NodeQueries *asking, const Stores *stores, double timeout_sec, Findings *f)
{
    const int64_t uid = common_uid(asking);
    int64_t longest_usec = 0;
    for (size_t i = 0; i < asking->n; i++) {
        const NodeQuery *a = &asking->nodes[i];
        if (a->went) {
            findings_add(f, FINDING_WRONG, node_check_name, a->node->name, "sdctl doctor once more",
                         "went away while it was asked");
            continue;
        }
        if (!a->answered) {
            findings_add(f, FINDING_WRONG, node_check_name, a->node->name,
                         "systemctl status sdtraind there; does the machine hang?",
                         "does not answer within %g s", timeout_sec);
            continue;
        }
        if (*a->report.error) {
            findings_add(f, FINDING_WRONG, node_check_name, a->node->name,
                         "sdtrainer doctor there says more", "cannot look at itself: %s",
                         a->report.error);
            continue;
        }
        if (strcmp(a->report.version, a->node->version) != 0)
            findings_add(f, FINDING_WRONG, version_check, a->node->name,
                         "install both from one package, and restart sdtraind",
                         "sdtraind is of version %s, its sdtrainer of %s", a->node->version,
                         a->report.version);
        judge_stores(a, stores, f);
        judge_user(a, uid, stores->has_files, f);
        judge_clock(asking, a, f);
        judge_limits(a, f);
        judge_programs(a, f);
        judge_peers(asking, a, &longest_usec, f);
    }
    if (longest_usec > 0)
        findings_add(f, FINDING_OK, network_check, NULL, NULL,
                     "nodes tried to reach %zu of them; what answers does so within %.1f ms",
                     asking->request.n_peers, (double)longest_usec / 1e3);
}

void check_nodes(CtlClient *client, const Model *m, const Stores *stores, double timeout_sec,
                 Findings *f)
{
    Error err = ERROR_INIT;
    NodeQueries asking = {.cluster = client->cluster};
    _cleanup_free_ NodeQuery *nodes = memory_zeroed(MAX(m->n_nodes, (size_t)1), sizeof(*nodes));
    asking.nodes = nodes;
    for (size_t i = 0; i < m->n_nodes; i++) {
        const NodeRecord *n = &m->nodes[i];
        if (n->state != NODE_UP)
            continue;
        if (node_knows(n, FEATURE_DOCTOR))
            nodes[asking.n++].node = n;
        else
            findings_add(f, FINDING_NOTE, node_check_name, n->name, "upgrade it",
                         "cannot be asked: it is of version %s", n->version);
    }
    asking.n_left = asking.n;
    int r = asking.n > 0 ? query_nodes(client, stores, &asking, timeout_sec, &err) : 0;
    if (r < 0)
        findings_add(f, FINDING_WRONG, node_check_name, NULL, NULL, "cannot be asked: %s",
                     err.text);
    else
        judge(&asking, stores, timeout_sec, f);
}
