/* node_cordon.c - `sdctl node cordon|drain|uncordon`: the cordon record of a node; the leader acts
 * on it. */
#include "base/clock.h"
#include "cluster/keys.h"
#include "cluster/records.h"
#include "ctl/arguments.h"
#include "ctl/health.h"

#include <string.h>

enum { TRIES = 5 };

/* The record as it is to be; mode CORDON_NONE removes it. The guard is on what was read. */
static int put_cordon(Client *client, const CordonRecord *cordon, int64_t revision, bool *ret_done,
                      Error *err)
{
    char key[KEY_MAX];
    _cleanup_free_ char *text = NULL;
    (void)key_of(client->cluster, KEY_CORDONS, cordon->node, key);
    if (cordon_record_encode(cordon, NULL, &text) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    const EtcdCompare unchanged = {.key = key, .target = ETCD_MOD_REVISION, .equals = revision};
    const EtcdOp op = {.kind = cordon->mode == CORDON_NONE ? ETCD_DELETE : ETCD_PUT,
                       .key = key,
                       .value = cordon->mode == CORDON_NONE ? NULL : text};
    return client_txn(client, &unchanged, 1, &op, 1, ret_done, err);
}

/* The present record (zero when there is none) and the revision to guard with. */
static int read_cordon(Client *client, const char *node, CordonRecord *ret, int64_t *ret_revision,
                       Error *err)
{
    char key[KEY_MAX];
    _cleanup_(etcd_answer_freep) EtcdAnswer *record = NULL, *cordon = NULL;
    *ret = (CordonRecord){.mode = CORDON_NONE};
    *ret_revision = 0;
    int r = client_get(client, key_of(client->cluster, KEY_NODES, node, key), false, &record, err);
    if (r == 0)
        r = client_get(client, key_of(client->cluster, KEY_CORDONS, node, key), false, &cordon,
                       err);
    if (r < 0)
        return r;
    if (record->n_kvs == 0 && cordon->n_kvs == 0)
        return error_set(err, -ENOENT, "no node %s in cluster %s", node, client->cluster);
    if (cordon->n_kvs == 0)
        return 0;
    *ret_revision = cordon->kvs[0].mod_revision;
    return cordon_record_decode(key, cordon->kvs[0].value, cordon->kvs[0].n_value, ret, err);
}

/* A quarantine ends when the node's probes find nothing, or by force: then what only a reset would
 * have cured is forgotten, and the node says what it finds nevertheless. */
static int retest(Client *client, const Arguments *a, Error *err)
{
    CordonRecord cordon;
    RequestRecord request;
    NodeVerdict verdict;
    int64_t revision;
    double timeout_sec = a->timeout_sec < 0 ? HEALTH_CHECK_SEC : a->timeout_sec;
    int r = read_cordon(client, a->operand, &cordon, &revision, err);
    if (r < 0 || cordon.mode != CORDON_QUARANTINE || *cordon.job)
        return r;
    r = health_ask(client, a->operand, a->force, timeout_sec, &request, &verdict, err);
    if (r < 0 && a->force && r != -ECONNREFUSED) {
        fprintf(stderr, "sdctl: %s; let in unchecked\n", err->text);
        return 0;
    }
    if (r == -ENOENT || r == -ETIMEDOUT)
        return error_prefix(err, r, "node %s stays in quarantine (--force lets it in unchecked)",
                            a->operand);
    if (r == 0 && verdict >= NODE_DRAIN && !a->force)
        return error_set(err, -EBUSY,
                         "node %s stays in quarantine, its check says: %s (--force: it was "
                         "repaired)",
                         a->operand, request.answer);
    if (r == 0 && verdict >= NODE_DRAIN)
        fprintf(stderr, "sdctl: node %s still says: %s; it may be quarantined again\n", a->operand,
                request.answer);
    return r;
}

static int change(Client *client, const Arguments *a, CordonMode mode, Error *err)
{
    bool done = false;
    for (int try = 0; try < TRIES && !done; try++) {
        CordonRecord old;
        int64_t revision;
        int r = read_cordon(client, a->operand, &old, &revision, err);
        if (r < 0)
            return r;
        CordonRecord cordon = {.mode = mode,
                               .since_usec = clock_realtime_usec(),
                               .strikes = old.strikes};
        (void)snprintf(cordon.node, sizeof(cordon.node), "%s", a->operand);
        (void)snprintf(cordon.reason, sizeof(cordon.reason), "%s", a->reason ? a->reason : "");
        r = put_cordon(client, &cordon, revision, &done, err);
        if (r < 0)
            return r;
    }
    return done ? 0
                : error_set(err, -EAGAIN, "node %s was changed by others each time; try again",
                            a->operand);
}

static int set(const Arguments *a, CordonMode mode)
{
    Error err = ERROR_INIT;
    Client client = {0};
    int r = 0;
    if (!name_is_valid(a->operand))
        r = error_set(&err, -ENOENT, "\"%s\" is not a node's name", a->operand);
    if (r == 0)
        r = client_open(&a->client, &client, &err);
    if (r == 0 && mode == CORDON_NONE)
        r = retest(&client, a, &err);
    if (r == 0)
        r = change(&client, a, mode, &err);
    client_close(&client);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}

int node_cordon(const Arguments *a)
{
    int code = set(a, CORDON_CORDON);
    if (code == CTL_DONE)
        printf("node %s gets no new ranks; what runs there goes on\n", a->operand);
    return code;
}

int node_drain(const Arguments *a)
{
    int code = set(a, CORDON_DRAIN);
    if (code == CTL_DONE)
        printf("node %s is drained: its jobs finish their step, save, and go on without it\n",
               a->operand);
    return code;
}

int node_uncordon(const Arguments *a)
{
    int code = set(a, CORDON_NONE);
    if (code == CTL_DONE)
        printf("node %s may have ranks again\n", a->operand);
    return code;
}
