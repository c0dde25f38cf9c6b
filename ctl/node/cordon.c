/* SPDX-License-Identifier: Apache-2.0 */
/* cordon.c - `sdctl node cordon|drain|uncordon`: sets the operator's cause in a node's cordon record, or removes the
 * causes that keep the node from getting ranks. The leader acts on the change.
 *
 * A change is written with a guard on the revision that was read. If another operator or the leader has written
 * meanwhile, the record is read again, so no change is lost. */
#include "cluster/cordon.h"
#include "base/clock.h"
#include "base/memory.h"
#include "cluster/keys.h"
#include "ctl/arguments.h"
#include "ctl/node/health.h"
#include "ctl/node/verbs.h"
#include "ctl/requester.h"
#include "ctl/suggestion.h"

#include <string.h>

enum { TRIES = 5, RECORDS_MAX = 16 };

typedef struct Kept { /* a record cordons/<node> as read */
    char key[KEY_MAX];
    int64_t revision; /* 0: there is no record */
    char *text;       /* the record's text, owned; has fields unknown to this version, too */
    CordonRecord record;
    bool changed, unreadable;
} Kept;

/* The cordon record of the node first, then records of other node names that have causes against the node's machine. */
typedef struct CordonList {
    bool is_here; /* the node is registered */
    char machine_id[33];
    Kept kept[RECORDS_MAX];
    size_t n;
} CordonList;

static void cordons_clear(CordonList *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->kept[i].text);
    *c = (CordonList){0};
}

static void keep(CordonList *c, const EtcdKeyValue *kv, const CordonRecord *record)
{
    Kept *kept = &c->kept[c->n];
    if (c->n++ == 0)
        free(kept->text);
    (void)snprintf(kept->key, sizeof(kept->key), "%s", kv->key);
    kept->revision = kv->mod_revision;
    kept->text = memory_bytes(kv->value, kv->n_value);
    kept->record = *record;
}

static bool is_about(const CordonRecord *record, const char *machine_id)
{
    bool is = false;
    for (size_t i = 0; strlen(machine_id) == 32 && i < record->n_causes; i++)
        is |= record->causes[i].owner != CORDON_OPERATOR &&
              strcmp(record->causes[i].machine_id, machine_id) == 0;
    return is;
}

static int read_machine(CtlClient *client, const char *node, CordonList *ret, bool *ret_known,
                        Error *err)
{
    static const KeyKind kinds[] = {KEY_NODES, KEY_HEALTH};
    char key[KEY_MAX];
    *ret_known = false;
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
        NodeRecord record;
        Error bad = ERROR_INIT;
        int r =
            client_get(client, key_of(client->cluster, kinds[i], node, key), false, &answer, err);
        if (r < 0)
            return r;
        *ret_known |= answer->n_kvs > 0;
        if (answer->n_kvs == 0 || kinds[i] != KEY_NODES)
            continue;
        ret->is_here = true; /* even if the node's record cannot be read */
        if (node_record_decode(key, answer->kvs[0].value, answer->kvs[0].n_value, &record, &bad) ==
            0)
            memcpy(ret->machine_id, record.machine_id, sizeof(ret->machine_id));
        node_record_clear(&record);
    }
    return 0;
}

static int read_cordons(CtlClient *client, const char *node, CordonList *ret, Error *err)
{
    char prefix[KEY_MAX];
    bool known;
    _cleanup_(etcd_answer_freep) EtcdAnswer *all = NULL;
    *ret = (CordonList){.n = 1};
    (void)key_of(client->cluster, KEY_CORDONS, node, ret->kept[0].key);
    (void)snprintf(ret->kept[0].record.node, sizeof(ret->kept[0].record.node), "%s", node);
    int r = read_machine(client, node, ret, &known, err);
    if (r == 0)
        r = client_get(client, key_prefix(client->cluster, KEY_CORDONS, prefix), true, &all, err);
    for (size_t i = 0; r == 0 && i < all->n_kvs; i++) {
        const EtcdKeyValue *kv = &all->kvs[i];
        bool own = strcmp(kv->key, ret->kept[0].key) == 0;
        CordonRecord record;
        Error bad = ERROR_INIT;
        bool readable = cordon_record_decode(kv->key, kv->value, kv->n_value, &record, &bad) == 0;
        if (own) {
            size_t n = ret->n;
            ret->n = 0;
            keep(ret, kv, &record);
            ret->n = n;
            ret->kept[0].unreadable = !readable;
            (void)snprintf(ret->kept[0].record.node, sizeof(record.node), "%s", node);
        } else if (readable && ret->n < RECORDS_MAX && is_about(&record, ret->machine_id)) {
            keep(ret, kv, &record);
        }
    }
    if (r == 0 && !known && ret->kept[0].revision == 0)
        return suggest_node_of(client, node, err);
    return r;
}

/* Writes all changed records in one transaction. If causes were removed, the transaction includes a request that
 * names the requester, because the cordon record can no longer show who removed them. */
static int write_cordons(CtlClient *client, CordonList *c, bool ends, bool *ret_done, Error *err)
{
    EtcdCompare guards[RECORDS_MAX + 1];
    EtcdOp ops[RECORDS_MAX + 1];
    char *texts[RECORDS_MAX + 1] = {0}, request[KEY_MAX];
    RequestRecord told = {.kind = "uncordon"};
    size_t n = 0;
    int r = 0;
    for (size_t i = 0; i < c->n; i++) {
        const Kept *kept = &c->kept[i];
        if (!kept->changed)
            continue;
        bool empty = kept->record.n_causes == 0;
        guards[n] = (EtcdCompare){kept->key, ETCD_MOD_REVISION, kept->revision};
        if (!empty)
            texts[n] = cordon_record_encode(&kept->record, kept->text);
        ops[n] =
            (EtcdOp){.kind = empty ? ETCD_DELETE : ETCD_PUT, .key = kept->key, .value = texts[n]};
        n++;
    }
    *ret_done = true;
    if (n > 0 && ends) {
        (void)snprintf(told.target, sizeof(told.target), "%s", c->kept[0].record.node);
        client_make_request(client, &told, request, &texts[n], &guards[n], &ops[n]);
        n++;
    }
    if (n > 0)
        r = client_txn(client, guards, n, ops, n, ret_done, err);
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    return r;
}

typedef struct CordonOptions {
    const char *reason;
    double timeout_sec; /* < 0: not given */
    bool force;
} CordonOptions;

#define OPTIONS_STRUCT CordonOptions
static const CtlOption cordon_options[] = {
    {"reason", 0, "TEXT", "why, for those who look later", TAKES(TEXT, reason)},
};
static const CtlOption uncordon_options[] = {
    OPTION_TIMEOUT,
    {"force", 0, NULL, "it was repaired: forget what only a reset would cure",
     TAKES(NOTHING, force)},
};
const CtlOptions node_cordon_options = CTL_OPTIONS(cordon_options, .timeout_sec = -1);
const CtlOptions node_uncordon_options = CTL_OPTIONS(uncordon_options, .timeout_sec = -1);

/* ---- cordon, drain ---- */

static int add(CordonList *c, const Arguments *a, CordonMode mode, Error *err)
{
    const CordonOptions *o = arguments_own(a);
    Kept *own = &c->kept[0];
    CordonCause cause = {.owner = CORDON_OPERATOR,
                         .mode = mode,
                         .since_usec = clock_realtime_usec()};
    (void)requester_text(cause.by);
    (void)snprintf(cause.reason, sizeof(cause.reason), "%s", o->reason ? o->reason : "");
    if (own->unreadable)
        return error_set(err, -EBADMSG,
                         "%s cannot be read; sdctl node uncordon %s --force removes it", own->key,
                         a->operand);
    if (cordon_set(&own->record, &cause) < 0)
        return error_set(err, -ENOSPC, "node %s is held back by %d causes already", a->operand,
                         RECORD_CAUSES_MAX);
    own->changed = true;
    return 0;
}

/* ---- uncordon ---- */

/* Removes the causes against the machine that has the node's name now. Causes against other machines stay, unless force
 * is set. */
static void end_causes(CordonList *c, bool force, size_t *ret_left)
{
    *ret_left = 0;
    for (size_t k = 0; k < c->n; k++) {
        Kept *kept = &c->kept[k];
        for (size_t i = kept->record.n_causes; i-- > 0;) {
            const CordonCause *cause = &kept->record.causes[i];
            bool ends = k == 0 ? force || cause_is_of(cause, c->machine_id)
                               : cause->owner != CORDON_OPERATOR &&
                                     strcmp(cause->machine_id, c->machine_id) == 0;
            *ret_left += k == 0 && !ends;
            if (!ends)
                continue;
            cordon_drop(&kept->record, i);
            kept->changed = true;
        }
        kept->changed |= k == 0 && kept->unreadable;
    }
}

static bool is_in_quarantine(const CordonList *c)
{
    bool is = false;
    for (size_t k = 0; k < c->n; k++)
        for (size_t i = 0; i < c->kept[k].record.n_causes; i++) {
            const CordonCause *cause = &c->kept[k].record.causes[i];
            is |= cause->owner == CORDON_MACHINE && cause->mode == CORDON_QUARANTINE &&
                  cause_is_of(cause, c->machine_id);
        }
    return is;
}

/* If the node is in quarantine, makes the node check itself: the quarantine ends only if its probes find nothing. With
 * --force, the node first forgets the faults that only a reset repairs, and the quarantine ends even if the probes find
 * something, which is printed. */
static int check_quarantine(CtlClient *client, const Arguments *a, const CordonList *c, Error *err)
{
    const CordonOptions *o = arguments_own(a);
    RequestRecord request;
    NodeVerdict verdict;
    double timeout_sec = o->timeout_sec < 0 ? HEALTH_CHECK_SEC : o->timeout_sec;
    if (c->kept[0].unreadable && !o->force)
        return error_set(err, -EBADMSG, "%s cannot be read; --force removes it", c->kept[0].key);
    if (!is_in_quarantine(c))
        return 0;
    int r = health_request(client, a->operand, c->machine_id, o->force, timeout_sec, &request,
                           &verdict, err);
    if (r < 0 && o->force && r != -ECONNREFUSED) {
        fprintf(stderr, "sdctl: %s; let in unchecked\n", err->text);
        return 0;
    }
    if (r == -ENOENT || r == -ETIMEDOUT)
        return error_prefix(err, r, "node %s stays in quarantine (--force lets it in unchecked)",
                            a->operand);
    if (r == 0 && verdict >= NODE_DRAIN && !o->force)
        return error_set(err, -EBUSY,
                         "node %s stays in quarantine, its check says: %s (--force: it was "
                         "repaired)",
                         a->operand, request.answer);
    if (r == 0 && verdict >= NODE_DRAIN)
        fprintf(stderr, "sdctl: node %s still says: %s; it may be quarantined again\n", a->operand,
                request.answer);
    return r;
}

/* ---- the verbs ---- */

static int change(CtlClient *client, const Arguments *a, CordonMode mode, size_t *ret_left,
                  Error *err)
{
    const CordonOptions *o = arguments_own(a);
    bool done = false;
    for (int try = 0; try < TRIES && !done; try++) {
        _cleanup_(cordons_clear) CordonList cordons;
        int r = read_cordons(client, a->operand, &cordons, err);
        if (r == 0 && mode != CORDON_NONE)
            r = add(&cordons, a, mode, err);
        if (r == 0 && mode == CORDON_NONE) {
            r = check_quarantine(client, a, &cordons, err);
            end_causes(&cordons, o->force, ret_left);
        }
        if (r == 0)
            r = write_cordons(client, &cordons, mode == CORDON_NONE, &done, err);
        if (r < 0)
            return r;
    }
    return done ? 0
                : error_set(err, -EAGAIN, "node %s was changed by others each time; try again",
                            a->operand);
}

static int set(const Arguments *a, CordonMode mode, size_t *ret_left)
{
    Error err = ERROR_INIT;
    CtlClient client = {0};
    int r = client_open_for_node(&a->client, a->operand, &client, &err);
    *ret_left = 0;
    if (r == 0)
        r = change(&client, a, mode, ret_left, &err);
    client_close(&client);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}

int node_cordon(const Arguments *a)
{
    size_t left;
    int code = set(a, CORDON_CORDON, &left);
    if (code == CTL_DONE)
        printf("node %s gets no new ranks; what runs there goes on\n", a->operand);
    return code;
}

int node_drain(const Arguments *a)
{
    size_t left;
    int code = set(a, CORDON_DRAIN, &left);
    if (code == CTL_DONE)
        printf("node %s is drained: its jobs finish their step, save, and go on without it\n",
               a->operand);
    return code;
}

int node_uncordon(const Arguments *a)
{
    size_t left;
    int code = set(a, CORDON_NONE, &left);
    if (code != CTL_DONE)
        return code;
    printf("node %s may have ranks again\n", a->operand);
    if (left > 0)
        printf("what is held against another machine that had this name stays; --force ends it\n");
    return code;
}
