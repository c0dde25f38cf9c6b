/* SPDX-License-Identifier: Apache-2.0 */
/* testing-seams.c - see testing-seams.h: the store, requests, watches and leases. */
#include "daemon/test/testing-seams.h"

#include <string.h>

enum {
    KEYS_MAX = 512,
    CHANGES_MAX = 4096,
    CALLS_MAX = 256,
    WATCHES_MAX = 16,
    LEASES_MAX = 4,
    OPS_MAX = 120,
    ANSWERS_MAX = 4000,
};

/* ---- the store ---- */

typedef struct Change {
    char key[KEY_MAX], *value; /* value NULL: the key was deleted */
    int64_t created, revision, version, lease;
} Change;

static StoredKey store[KEYS_MAX];
static Change changes[CHANGES_MAX]; /* in the order of their revisions */
static size_t n_changes;
static int64_t revision;

StoredKey *find(const char *key)
{
    for (size_t i = 0; i < KEYS_MAX; i++)
        if (store[i].value && strcmp(store[i].key, key) == 0)
            return &store[i];
    return NULL;
}

static void note_change(const StoredKey *k, const char *value)
{
    assert_true(n_changes < CHANGES_MAX);
    Change *c = &changes[n_changes++];
    *c = (Change){.value = value ? strdup(value) : NULL,
                  .created = k->created,
                  .revision = revision,
                  .version = k->version,
                  .lease = k->lease};
    (void)snprintf(c->key, sizeof(c->key), "%s", k->key);
}

static void put_now(const char *key, const char *value, int64_t lease)
{
    StoredKey *k = find(key);
    for (size_t i = 0; !k && i < KEYS_MAX; i++)
        if (!store[i].value) {
            k = &store[i];
            *k = (StoredKey){.created = revision};
            (void)snprintf(k->key, sizeof(k->key), "%s", key);
        }
    assert_non_null(k);
    free(k->value);
    k->value = strdup(value);
    k->modified = revision;
    k->version++;
    k->lease = lease;
    note_change(k, value);
}

static void delete_now(StoredKey *k)
{
    note_change(k, NULL);
    free(k->value);
    k->value = NULL;
}

int64_t put(const char *key, const char *value, int64_t lease)
{
    ++revision;
    put_now(key, value, lease);
    return revision;
}

int64_t delete_key(const char *key)
{
    StoredKey *k = find(key);
    if (!k)
        return 0;
    ++revision;
    delete_now(k);
    return revision;
}

static EtcdKeyValue kv_of(const StoredKey *k)
{
    return (EtcdKeyValue){.key = k->key,
                          .value = k->value,
                          .n_value = strlen(k->value),
                          .create_revision = k->created,
                          .mod_revision = k->modified,
                          .version = k->version,
                          .lease = k->lease};
}

/* ---- requests ---- */

struct EtcdCall {
    const Etcd *etcd;
    EtcdCall **home;       /* the node's pointer to this call; NULL: none */
    char key[KEY_MAX];     /* the key that is read, or that is written first */
    EtcdRangeHandler read; /* NULL: a transaction */
    EtcdTxnHandler written;
    void *userdata;
    struct {
        char key[KEY_MAX];
        EtcdCompareTarget target;
        int64_t equals;
    } guards[OPS_MAX];
    size_t n_guards, n_ops;
    int64_t ends_lease;  /* the lease to be revoked; 0: a transaction or a read */
    EtcdOp ops[OPS_MAX]; /* keys and values are copies */
};

static EtcdCall *calls[CALLS_MAX];
static size_t n_calls;

static EtcdCall *add_call(const Etcd *etcd, const char *key, void *userdata, EtcdCall **home)
{
    EtcdCall *call = calloc(1, sizeof(*call));
    assert_true(call && n_calls < CALLS_MAX);
    call->etcd = etcd;
    call->userdata = userdata;
    (void)snprintf(call->key, sizeof(call->key), "%s", key);
    calls[n_calls++] = call;
    if (home)
        *home = call;
    return call;
}

int etcd_get(Etcd *etcd, const char *key, bool prefix, EtcdRangeHandler handler, void *userdata,
             EtcdCall **ret)
{
    assert_false(prefix); /* a node reads no range */
    add_call(etcd, key, userdata, ret)->read = handler;
    return 0;
}

int etcd_txn(Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
             size_t n_ops, EtcdTxnHandler handler, void *userdata, EtcdCall **ret)
{
    EtcdCall *call = add_call(etcd, ops[0].key, userdata, ret);
    assert_true(n_compares <= OPS_MAX && n_ops <= OPS_MAX);
    call->written = handler;
    for (size_t i = 0; i < n_compares; i++) {
        (void)snprintf(call->guards[i].key, KEY_MAX, "%s", compares[i].key);
        call->guards[i].target = compares[i].target;
        call->guards[i].equals = compares[i].equals;
    }
    for (size_t i = 0; i < n_ops; i++)
        call->ops[i] = (EtcdOp){.kind = ops[i].kind,
                                .key = strdup(ops[i].key),
                                .value = ops[i].value ? strdup(ops[i].value) : NULL,
                                .lease = ops[i].lease};
    call->n_guards = n_compares;
    call->n_ops = n_ops;
    return 0;
}

static void end_call(EtcdCall *call)
{
    for (size_t i = 0; i < call->n_ops; i++) {
        free((char *)call->ops[i].key);
        free((char *)call->ops[i].value);
    }
    free(call);
}

static bool take_call(const EtcdCall *call)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i] == call) {
            memmove(&calls[i], &calls[i + 1], sizeof(calls[0]) * (--n_calls - i));
            return true;
        }
    return false;
}

EtcdCall *etcd_call_free(EtcdCall *call)
{
    if (call && take_call(call))
        end_call(call);
    return NULL;
}

static EtcdCall *find_under_way(const Etcd *etcd, const char *key)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i]->etcd == etcd && strcmp(calls[i]->key, key) == 0)
            return calls[i];
    return NULL;
}

bool is_under_way(const Etcd *etcd, const char *key) { return find_under_way(etcd, key); }

EtcdCall *under_way(const Etcd *etcd, const char *key)
{
    EtcdCall *call = find_under_way(etcd, key);
    if (!call)
        fail_msg("no request for %s is under way", key);
    return call;
}

size_t n_under_way(const Etcd *etcd)
{
    size_t n = 0;
    for (size_t i = 0; i < n_calls; i++)
        n += calls[i]->etcd == etcd;
    return n;
}

static bool holds(const EtcdCall *call)
{
    for (size_t i = 0; i < call->n_guards; i++) {
        const StoredKey *k = find(call->guards[i].key);
        int64_t is = !k                                               ? 0
                     : call->guards[i].target == ETCD_MOD_REVISION    ? k->modified
                     : call->guards[i].target == ETCD_CREATE_REVISION ? k->created
                                                                      : k->version;
        if (is != call->guards[i].equals)
            return false;
    }
    return true;
}

static bool lease_lives(int64_t id);

int etcd_request_rights(Etcd *etcd, const char *key, EtcdTxnHandler handler, void *userdata,
                        EtcdCall **ret)
{
    add_call(etcd, key, userdata, ret)->written = handler;
    return 0;
}

int etcd_revoke(Etcd *etcd, int64_t id, EtcdTxnHandler done, void *userdata, EtcdCall **ret)
{
    EtcdCall *call = add_call(etcd, "lease", userdata, ret);
    call->written = done;
    call->ends_lease = id;
    return 0;
}

static EtcdTxnResult transact(const EtcdCall *call, EtcdKeyValue *kvs)
{
    EtcdTxnResult result = {.succeeded = holds(call), .kvs = kvs};
    bool writes_any = false;
    for (size_t i = 0; result.succeeded && i < call->n_ops; i++)
        writes_any |= call->ops[i].kind != ETCD_GET;
    revision += writes_any;
    for (size_t i = 0; result.succeeded && i < call->n_ops; i++) {
        const EtcdOp *op = &call->ops[i];
        StoredKey *k = find(op->key);
        assert_true(op->lease == 0 || lease_lives(op->lease));
        if (op->kind == ETCD_PUT)
            put_now(op->key, op->value, op->lease);
        else if (k && op->kind == ETCD_DELETE)
            delete_now(k);
        else if (k)
            kvs[result.n_kvs++] = kv_of(k);
    }
    result.revision = writes_any ? revision : 0;
    return result;
}

static EtcdCall *late;

void come_late(void)
{
    EtcdKeyValue kvs[OPS_MAX];
    EtcdCall *call = late;
    assert_non_null(call);
    late = NULL;
    (void)transact(call, kvs);
    end_call(call);
}

void answer(EtcdCall *call, AnswerKind kind)
{
    EtcdKeyValue kvs[OPS_MAX];
    EtcdTxnResult result = {0};
    EtcdRange range = {.kvs = kvs, .revision = revision};
    Error err = ERROR_INIT;
    int r = 0;
    assert_true(take_call(call));
    if (kind == LOST_AFTER || kind == LOST_BEFORE || kind == LATE)
        r = error_set(&err, -ETIMEDOUT, "no answer");
    else if (kind == DENIED)
        r = error_set(&err, -EACCES, "permission denied");
    bool arrives = kind == GIVEN || kind == LOST_AFTER;
    if (call->ends_lease && arrives)
        r = end_lease(call->ends_lease) ? 0 : -ESTALE;
    else if (call->written && arrives)
        result = transact(call, kvs);
    const StoredKey *k = call->read && arrives ? find(call->key) : NULL;
    if (k)
        kvs[range.n_kvs++] = kv_of(k);
    if (call->read)
        call->read(r, &err, &range, call->userdata);
    else if (call->written)
        call->written(r, &err, &result, call->userdata);
    if (kind == LATE) {
        assert_true(!late && call->written);
        late = call;
        return;
    }
    end_call(call);
}

void answer_all(void)
{
    int n = 0;
    for (size_t i = 0; i < n_calls;)
        if (++n > ANSWERS_MAX)
            fail_msg("%s is asked for again and again", calls[i]->key);
        else if (calls[i]->etcd && calls[i]->etcd->is_cut)
            i++;
        else {
            answer(calls[i], GIVEN);
            i = 0;
        }
}

/* ---- watches ---- */

struct EtcdWatch {
    const Etcd *etcd;
    char key[KEY_MAX]; /* key or prefix */
    bool is_prefix, is_listed;
    int64_t shown; /* the last revision that was shown */
    EtcdWatchHandler handler;
    void *userdata;
};

static EtcdWatch *watches[WATCHES_MAX];

static int add_watch(const Etcd *etcd, const char *key, bool is_prefix, EtcdWatchHandler handler,
                     void *userdata, EtcdWatch **ret)
{
    size_t i = 0;
    while (i < WATCHES_MAX && watches[i])
        i++;
    assert_true(i < WATCHES_MAX);
    *ret = watches[i] = calloc(1, sizeof(**ret));
    *watches[i] =
        (EtcdWatch){.etcd = etcd, .is_prefix = is_prefix, .handler = handler, .userdata = userdata};
    (void)snprintf(watches[i]->key, KEY_MAX, "%s", key);
    return 0;
}

int etcd_watch_prefix(Etcd *etcd, const char *prefix, EtcdWatchHandler handler, void *userdata,
                      EtcdWatch **ret)
{
    return add_watch(etcd, prefix, true, handler, userdata, ret);
}

int etcd_watch_key(Etcd *etcd, const char *key, EtcdWatchHandler handler, void *userdata,
                   EtcdWatch **ret)
{
    return add_watch(etcd, key, false, handler, userdata, ret);
}

EtcdWatch *etcd_watch_free(EtcdWatch *watch)
{
    for (size_t i = 0; watch && i < WATCHES_MAX; i++)
        if (watches[i] == watch)
            watches[i] = NULL;
    free(watch);
    return NULL;
}

static bool concerns(const EtcdWatch *w, const char *key)
{
    return w->is_prefix ? strncmp(key, w->key, strlen(w->key)) == 0 : strcmp(key, w->key) == 0;
}

/* Returns the key's last change up to that revision; NULL: the key did not exist then. */
static const Change *at(const char *key, int64_t then)
{
    const Change *last = NULL;
    for (size_t i = 0; i < n_changes && changes[i].revision <= then; i++)
        if (strcmp(changes[i].key, key) == 0)
            last = &changes[i];
    return last && last->value ? last : NULL;
}

static EtcdEvent event_of(const Change *c)
{
    if (!c->value)
        return (EtcdEvent){.kind = ETCD_EVENT_DELETE,
                           .kv = {.key = c->key, .value = "", .mod_revision = c->revision}};
    return (EtcdEvent){.kind = ETCD_EVENT_PUT,
                       .kv = {.key = c->key,
                              .value = c->value,
                              .n_value = strlen(c->value),
                              .create_revision = c->created,
                              .mod_revision = c->revision,
                              .version = c->version,
                              .lease = c->lease}};
}

/* Returns whether this is the first change of its key. Lists go by the first change of each key. */
static bool is_first(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(changes[k].key, changes[i].key) == 0)
            return false;
    return true;
}

/* Shows all differences from what was shown before, in one call, deletions first. */
static void list(EtcdWatch *w)
{
    EtcdEvent events[2 * KEYS_MAX];
    size_t n = 0;
    int64_t shown = w->is_listed ? w->shown : 0;
    for (int puts = 0; puts <= 1; puts++)
        for (size_t i = 0; i < n_changes; i++) {
            if (!concerns(w, changes[i].key) || !is_first(i))
                continue;
            const Change *was = at(changes[i].key, shown), *is = at(changes[i].key, revision);
            bool reborn = was && is && was->created != is->created;
            assert_true(n < ELEMENTSOF(events));
            if (!puts && was && (!is || reborn))
                events[n++] =
                    (EtcdEvent){.kind = ETCD_EVENT_DELETE,
                                .kv = {.key = was->key,
                                       .value = "",
                                       .mod_revision = reborn ? is->created - 1 : revision}};
            if (puts && is && (!was || was->revision != is->revision))
                events[n++] = event_of(is);
        }
    bool initial = !w->is_listed;
    w->is_listed = true;
    w->shown = revision;
    w->handler(events, n, revision, initial, w->userdata);
}

/* Shows the watch its changes of revision `next`. Returns false if there are none. */
static bool show_next(EtcdWatch *w, int64_t next)
{
    EtcdEvent events[OPS_MAX + KEYS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < n_changes; i++)
        if (changes[i].revision == next && concerns(w, changes[i].key))
            events[n++] = event_of(&changes[i]);
    w->shown = next;
    if (n > 0)
        w->handler(events, n, next, false, w->userdata);
    return n > 0;
}

/* Shows a node's watches what they have not shown. prefix NULL: all its watches. Returns whether there was anything. */
static bool show_by(const Etcd *etcd, const char *prefix)
{
    bool any = false;
    for (size_t i = 0; i < WATCHES_MAX; i++) {
        EtcdWatch *w = watches[i];
        if (!w || w->etcd != etcd || (prefix && strcmp(w->key, prefix) != 0) || w->is_listed)
            continue;
        list(w);
        any = true;
    }
    int64_t from = revision;
    for (size_t i = 0; i < WATCHES_MAX; i++)
        if (watches[i] && watches[i]->etcd == etcd &&
            (!prefix || strcmp(watches[i]->key, prefix) == 0))
            from = MIN(from, watches[i]->shown);
    for (int64_t next = from + 1; next <= revision; next++)
        for (size_t i = 0; i < WATCHES_MAX; i++) {
            EtcdWatch *w = watches[i];
            if (w && w->etcd == etcd && (!prefix || strcmp(w->key, prefix) == 0) && w->shown < next)
                any |= show_next(w, next);
        }
    return any;
}

void show(const Etcd *etcd) { (void)show_by(etcd, NULL); }

void show_kind(const Etcd *etcd, KeyKind kind)
{
    char prefix[KEY_MAX];
    (void)show_by(etcd, key_prefix("lab", (int)kind, prefix));
}

void list_again(const Etcd *etcd)
{
    for (size_t i = 0; i < WATCHES_MAX; i++)
        if (watches[i] && watches[i]->etcd == etcd)
            list(watches[i]);
}

static bool show_everybody(void)
{
    for (size_t i = 0; i < WATCHES_MAX; i++)
        if (watches[i] && !watches[i]->etcd->is_cut && !watches[i]->etcd->is_blind &&
            show_by(watches[i]->etcd, NULL))
            return true;
    return false;
}

void settle(void)
{
    do
        answer_all();
    while (show_everybody());
}

/* ---- leases ---- */

struct EtcdLease {
    const Etcd *etcd;
    int64_t id; /* 0: none is held */
    int64_t ttl_sec;
    int n_checks;
    EtcdLeaseHandler handler;
    void *userdata;
};

static EtcdLease *leases[LEASES_MAX];
static int64_t last_lease;
static struct {
    int64_t id;
} living[32]; /* leases in etcd; id 0: the entry is free */

static bool lease_lives(int64_t id)
{
    for (size_t i = 0; i < ELEMENTSOF(living); i++)
        if (living[i].id == id)
            return true;
    return id == FIRST_LEASE; /* the lease of a workload without a node around it */
}

static EtcdLease *lease_at(const Etcd *etcd)
{
    for (size_t i = 0; i < LEASES_MAX; i++)
        if (leases[i] && leases[i]->etcd == etcd)
            return leases[i];
    fail_msg("the node has not asked for a lease");
    return NULL;
}

int etcd_lease_new(Etcd *etcd, int64_t ttl_sec, const char *witness_key, EtcdLeaseHandler handler,
                   void *userdata, EtcdLease **ret)
{
    size_t i = 0;
    while (i < LEASES_MAX && leases[i])
        i++;
    assert_true(i < LEASES_MAX && *witness_key);
    *ret = leases[i] = calloc(1, sizeof(**ret));
    *leases[i] =
        (EtcdLease){.etcd = etcd, .ttl_sec = ttl_sec, .handler = handler, .userdata = userdata};
    return 0;
}

EtcdLease *etcd_lease_free(EtcdLease *lease)
{
    for (size_t i = 0; lease && i < LEASES_MAX; i++)
        if (leases[i] == lease)
            leases[i] = NULL;
    free(lease);
    return NULL;
}

int64_t etcd_lease_id(const EtcdLease *lease) { return lease ? lease->id : FIRST_LEASE; }
int64_t etcd_lease_ttl_sec(const EtcdLease *lease) { return lease ? lease->ttl_sec : 10; }
void etcd_lease_check(EtcdLease *lease) { lease->n_checks++; }
int64_t lease_of(const Etcd *etcd) { return lease_at(etcd)->id; }
int n_lease_checks(const Etcd *etcd) { return lease_at(etcd)->n_checks; }

int64_t foreign_lease(void)
{
    size_t i = 0;
    while (i < ELEMENTSOF(living) && living[i].id)
        i++;
    assert_true(i < ELEMENTSOF(living));
    return living[i].id = ++last_lease;
}

bool end_lease(int64_t id)
{
    bool lived = false;
    for (size_t i = 0; i < ELEMENTSOF(living); i++)
        if (living[i].id == id) {
            living[i].id = 0;
            lived = true;
        }
    ++revision;
    for (size_t i = 0; i < KEYS_MAX; i++)
        if (store[i].value && store[i].lease == id)
            delete_now(&store[i]);
    return lived;
}

void grant(const Etcd *etcd)
{
    EtcdLease *lease = lease_at(etcd);
    assert_true(lease->id == 0);
    lease->id = foreign_lease();
    lease->handler(ETCD_LEASE_GRANTED, lease->id, lease->userdata);
}

void renew(const Etcd *etcd)
{
    EtcdLease *lease = lease_at(etcd);
    assert_true(lease->id != 0);
    lease->handler(ETCD_LEASE_RENEWED, lease->id, lease->userdata);
}

void lasts(const Etcd *etcd, int64_t ttl_sec) { lease_at(etcd)->ttl_sec = ttl_sec; }

void expire(const Etcd *etcd)
{
    int64_t id = lease_of(etcd);
    assert_true(id != 0);
    (void)end_lease(id); /* the test may have ended the lease by its id */
}

void notify_lost(const Etcd *etcd)
{
    EtcdLease *lease = lease_at(etcd);
    int64_t id = lease->id;
    assert_true(id != 0);
    lease->id = 0;
    lease->handler(ETCD_LEASE_LOST, id, lease->userdata);
}

/* ---- the history ---- */

void etcd_set_history(Etcd *etcd, EtcdHistory known, EtcdHistoryHandler handler, void *userdata)
{
    etcd->history = known;
    etcd->on_history = handler;
    etcd->userdata = userdata;
}

EtcdHistory etcd_history(const Etcd *etcd) { return etcd->history; }

/* ---- start and end ---- */

void seams_begin(void)
{
    time_begin();
    revision = 100;
    last_lease = FIRST_LEASE;
    memset(living, 0, sizeof(living));
}

void seams_end(void)
{
    assert_int_equal(n_calls, 0);
    time_end();
    machine_end();
    for (size_t i = 0; i < WATCHES_MAX; i++)
        assert_null(watches[i]);
    for (size_t i = 0; i < LEASES_MAX; i++)
        assert_null(leases[i]);
    for (size_t i = 0; i < KEYS_MAX; i++) {
        free(store[i].value);
        store[i].value = NULL;
    }
    for (size_t i = 0; i < n_changes; i++)
        free(changes[i].value);
    n_changes = 0;
}
