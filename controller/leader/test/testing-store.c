/* SPDX-License-Identifier: Apache-2.0 */
/* testing-store.c - see testing-store.h. */
#include "controller/leader/test/testing-store.h"

#include "base/clock.h"

#include <string.h>

enum { CALLS_MAX = 64, TIMERS_MAX = 16, CHANGES_MAX = 256, LEASE = 77 };
#define REAL_SEC UINT64_C(1700000000) /* CLOCK_REALTIME is ahead of the other clocks by this */

/* ---- a loop and a clock ---- */

struct StoreSeen seen;
static uint64_t now_usec;

uint64_t clock_boottime_usec(void) { return now_usec; }
uint64_t clock_realtime_usec(void) { return now_usec + REAL_SEC * USEC_PER_SEC; }
uint64_t clock_monotonic_usec(void) { return now_usec; }

struct sd_event_source {
    uint64_t due_usec;
    int64_t priority;
    bool is_on;
    sd_event_time_handler_t handler;
    void *userdata;
};
static sd_event_source *timers[TIMERS_MAX];

int sd_event_add_time(_unused_ sd_event *e, sd_event_source **ret, _unused_ clockid_t clock,
                      uint64_t usec, _unused_ uint64_t accuracy, sd_event_time_handler_t callback,
                      void *userdata)
{
    size_t i = 0;
    while (i < TIMERS_MAX && timers[i])
        i++;
    assert_true(i < TIMERS_MAX);
    *ret = timers[i] = calloc(1, sizeof(**ret));
    *timers[i] = (sd_event_source){.due_usec = usec,
                                   .is_on = true,
                                   .handler = callback,
                                   .userdata = userdata};
    return 0;
}

int sd_event_add_time_relative(sd_event *e, sd_event_source **ret, clockid_t clock, uint64_t usec,
                               uint64_t accuracy, sd_event_time_handler_t callback, void *userdata)
{
    return sd_event_add_time(e, ret, clock, now_usec + usec, accuracy, callback, userdata);
}

int sd_event_source_set_time(sd_event_source *s, uint64_t usec)
{
    s->due_usec = usec;
    return 0;
}

int sd_event_source_set_time_relative(sd_event_source *s, uint64_t usec)
{
    return sd_event_source_set_time(s, now_usec + usec);
}

int sd_event_source_set_enabled(sd_event_source *s, int enabled)
{
    s->is_on = enabled != SD_EVENT_OFF;
    return 0;
}

int sd_event_source_set_priority(sd_event_source *s, int64_t priority)
{
    s->priority = priority;
    return 0;
}

sd_event_source *sd_event_source_disable_unref(sd_event_source *s)
{
    for (size_t i = 0; s && i < TIMERS_MAX; i++)
        if (timers[i] == s)
            timers[i] = NULL;
    free(s);
    return NULL;
}

/* Fires the timer that is due first, of those whose priority number is at most `priority`. */
static bool fire_one(uint64_t until_usec, int64_t priority)
{
    sd_event_source *first = NULL;
    for (size_t i = 0; i < TIMERS_MAX; i++)
        if (timers[i] && timers[i]->is_on && timers[i]->due_usec <= until_usec &&
            timers[i]->priority <= priority && (!first || timers[i]->due_usec < first->due_usec))
            first = timers[i];
    if (!first)
        return false;
    now_usec = MAX(now_usec, first->due_usec);
    first->is_on = false; /* as SD_EVENT_ONESHOT */
    (void)first->handler(first, now_usec, first->userdata);
    return true;
}

/* ---- the store ---- */

typedef struct StoreChange {
    char key[KEY_MAX], *value; /* value NULL: the key was removed */
    int64_t created, revision;
} StoreChange;

static StoredKey store[STORE_KEYS_MAX];
static StoreChange changes[CHANGES_MAX];
static size_t n_changes,
    n_shown; /* all changes, in the watch's order; those that the watch has shown */

StoredKey *find(const char *key)
{
    for (size_t i = 0; i < STORE_KEYS_MAX; i++)
        if (store[i].value && strcmp(store[i].key, key) == 0)
            return &store[i];
    return NULL;
}

static void note_change(const StoredKey *k, const char *value)
{
    assert_true(n_changes < CHANGES_MAX);
    StoreChange *c = &changes[n_changes++];
    *c = (StoreChange){.created = k->created, .revision = seen.revision};
    (void)snprintf(c->key, sizeof(c->key), "%s", k->key);
    c->value = value ? strdup(value) : NULL;
}

/* store_put() and store_delete() belong to the seen.revision that the caller has begun. */
static void store_put(const char *key, const char *value)
{
    StoredKey *k = find(key);
    for (size_t i = 0; !k && i < STORE_KEYS_MAX; i++)
        if (!store[i].value) {
            k = &store[i];
            k->created = seen.revision;
            (void)snprintf(k->key, sizeof(k->key), "%s", key);
        }
    assert_non_null(k);
    char *copy = strdup(value);
    free(k->value);
    k->value = copy;
    k->modified = seen.revision;
    note_change(k, copy);
}

static void store_delete(const char *key, bool prefix)
{
    for (size_t i = 0; i < STORE_KEYS_MAX; i++) {
        if (!store[i].value ||
            (prefix ? strncmp(store[i].key, key, strlen(key)) : strcmp(store[i].key, key)))
            continue;
        free(store[i].value);
        store[i].value = NULL;
        note_change(&store[i], NULL);
    }
}

void put_text(const char *key, const char *value)
{
    seen.revision++;
    store_put(key, value);
}

void delete_key(const char *key)
{
    seen.revision++;
    store_delete(key, false);
}

void put_node(const char *name)
{
    NodeRecord node = {.machine_id = "m", .incarnation = 1, .n_slots = 1};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    PUT(node_record, &node, KEY_NODES, name);
}

void put_job(const char *name)
{
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "{\"name\":\"%s\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":2},"
                   "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
                   "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],"
                   "\"empty_text\":\"file:///d/empty.npy\"},"
                   "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":100},"
                   "\"checkpoint\":{\"uri\":\"file:///c/\"}}",
                   name);
    SpecRecord spec = {.spec = text, .submitted_usec = 1};
    DesiredRecord desired = {.min = 1, .max = 2};
    PUT(spec_record, &spec, KEY_SPECS, name);
    PUT(desired_record, &desired, KEY_DESIRED, name);
}

void cordon(const char *node)
{
    CordonRecord record = {.n_causes = 1, .causes = {{.mode = CORDON_CORDON, .since_usec = 1}}};
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    PUT(cordon_record, &record, KEY_CORDONS, node);
}

/* ---- requests ---- */

struct EtcdCall {
    bool asks_rights;
    EtcdRangeHandler read; /* NULL: a transaction */
    EtcdTxnHandler written;
    void *userdata;
    size_t n_compares, n_ops;
    EtcdCompare compares[24]; /* their keys and values are copies */
    EtcdOp ops[32];
    bool has_snapshot; /* etcd has answered, but the test has not passed the answer on */
    EtcdKeyValue kvs[STORE_KEYS_MAX];
    size_t n_kvs;
    int64_t revision;
};

static EtcdCall *calls[CALLS_MAX];
static size_t n_calls;

static bool fails(void)
{
    seen.n_failed += seen.fails < 0;
    return seen.fails < 0;
}

static EtcdCall *add_call(void *userdata, EtcdCall **ret)
{
    EtcdCall *call = calloc(1, sizeof(*call));
    assert_true(call && n_calls < CALLS_MAX);
    call->userdata = userdata;
    calls[n_calls++] = call;
    if (ret)
        *ret = call;
    return call;
}

int etcd_get(_unused_ Etcd *etcd, const char *key, bool prefix, EtcdRangeHandler handler,
             void *userdata, EtcdCall **ret)
{
    assert_string_equal(key, "/sdtrain/lab/");
    assert_true(prefix);
    if (fails())
        return seen.fails;
    add_call(userdata, ret)->read = handler;
    seen.n_reads++;
    return 0;
}

int etcd_txn(_unused_ Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
             size_t n_ops, EtcdTxnHandler handler, void *userdata, EtcdCall **ret)
{
    if (fails())
        return seen.fails;
    EtcdCall *call = add_call(userdata, ret);
    assert_true(n_compares <= ELEMENTSOF(call->compares) && n_ops <= ELEMENTSOF(call->ops));
    call->written = handler;
    call->n_compares = n_compares;
    call->n_ops = n_ops;
    for (size_t i = 0; i < n_compares; i++) {
        call->compares[i] = compares[i];
        call->compares[i].key = strdup(compares[i].key);
    }
    for (size_t i = 0; i < n_ops; i++) {
        call->ops[i] = ops[i];
        call->ops[i].key = strdup(ops[i].key);
        call->ops[i].value = ops[i].value ? strdup(ops[i].value) : NULL;
    }
    seen.n_txns++;
    return 0;
}

int etcd_request_rights(_unused_ Etcd *etcd, const char *key, EtcdTxnHandler handler,
                        void *userdata, EtcdCall **ret)
{
    if (fails())
        return seen.fails;
    EtcdCall *call = add_call(userdata, ret);
    call->written = handler;
    call->asks_rights = true;
    (void)snprintf(seen.asked_key, sizeof(seen.asked_key), "%s", key);
    seen.n_asks++;
    return 0;
}

static void drop_call(EtcdCall *call)
{
    for (size_t i = 0; i < call->n_compares; i++)
        free((char *)call->compares[i].key);
    for (size_t i = 0; i < call->n_ops; i++) {
        free((char *)call->ops[i].key);
        free((char *)call->ops[i].value);
    }
    for (size_t i = 0; i < call->n_kvs; i++) {
        free((char *)call->kvs[i].key);
        free((char *)call->kvs[i].value);
    }
    free(call);
}

static void take_call(const EtcdCall *call)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i] == call) {
            memmove(&calls[i], &calls[i + 1], sizeof(calls[0]) * (--n_calls - i));
            return;
        }
    fail_msg("a call that is not under way");
}

EtcdCall *etcd_call_free(EtcdCall *call)
{
    if (!call)
        return NULL;
    take_call(call);
    drop_call(call);
    return NULL;
}

void take_snapshot(EtcdCall *call)
{
    call->has_snapshot = true;
    call->revision = seen.revision;
    for (size_t i = 0; i < STORE_KEYS_MAX; i++)
        if (store[i].value)
            call->kvs[call->n_kvs++] = (EtcdKeyValue){.key = strdup(store[i].key),
                                                      .value = strdup(store[i].value),
                                                      .n_value = strlen(store[i].value),
                                                      .create_revision = store[i].created,
                                                      .mod_revision = store[i].modified};
}

static bool holds(const EtcdCompare *c)
{
    const StoredKey *k = find(c->key);
    assert_true(c->target != ETCD_VERSION);
    return (k ? c->target == ETCD_CREATE_REVISION ? k->created : k->modified : 0) == c->equals;
}

/* Returns true if the guards held, so that the transaction was done. */
static bool run_txn(EtcdCall *call)
{
    for (size_t i = 0; i < call->n_compares; i++)
        if (!holds(&call->compares[i]))
            return false;
    seen.revision++;
    for (size_t i = 0; i < call->n_ops; i++) {
        const EtcdOp *op = &call->ops[i];
        if (op->kind == ETCD_PUT)
            store_put(op->key, op->value);
        else
            store_delete(op->key, op->kind == ETCD_DELETE_PREFIX);
    }
    return true;
}

void answer(EtcdCall *call, AnswerKind kind)
{
    const Error err = {.code = -ETIMEDOUT, .text = "no answer"};
    EtcdTxnResult result = {0};
    take_call(call);
    int r = kind == GIVEN ? 0 : kind == DENIED ? -EACCES : -ETIMEDOUT;
    if (call->read) {
        if (!call->has_snapshot)
            take_snapshot(call);
        const EtcdRange range = {.kvs = call->kvs,
                                 .n_kvs = call->n_kvs,
                                 .revision = call->revision};
        call->read(r, &err, r ? NULL : &range, call->userdata);
    } else {
        if (!call->asks_rights && (kind == GIVEN || kind == LOST_AFTER))
            result = (EtcdTxnResult){.succeeded = run_txn(call), .revision = seen.revision};
        call->written(r, &err, r ? NULL : &result, call->userdata);
    }
    drop_call(call);
}

/* Returns the transaction that is under way, or the read; there must be one. */
EtcdCall *under_way(bool reads)
{
    for (size_t i = 0; i < n_calls; i++)
        if (!calls[i]->asks_rights && !calls[i]->read == !reads)
            return calls[i];
    fail_msg("no %s is under way", reads ? "read" : "transaction");
    return NULL;
}

EtcdCall *last_under_way(bool reads)
{
    EtcdCall *last = under_way(reads);
    for (size_t i = 0; i < n_calls; i++)
        if (!calls[i]->asks_rights && !calls[i]->read == !reads)
            last = calls[i];
    return last;
}

void answer_rights(AnswerKind kind)
{
    for (size_t i = 0; i < n_calls;)
        if (calls[i]->asks_rights)
            answer(calls[i], kind);
        else
            i++;
}

size_t n_under_way(void) { return n_calls; }

void answer_all(void)
{
    while (n_calls)
        answer(calls[0], GIVEN);
}

/* ---- the watch ---- */

static EtcdWatchHandler on_watch;
static void *on_watch_userdata;
static uint64_t n_lists;
static bool was_listed;

int etcd_watch_prefix(_unused_ Etcd *etcd, const char *prefix, EtcdWatchHandler handler,
                      void *userdata, EtcdWatch **ret)
{
    assert_string_equal(prefix, "/sdtrain/lab/");
    assert_true(seen.n_asks > 0); /* rights are requested before the first world */
    on_watch = handler;
    on_watch_userdata = userdata;
    *ret = (EtcdWatch *)&on_watch;
    return 0;
}

EtcdWatch *etcd_watch_free(_unused_ EtcdWatch *watch) { return NULL; }
uint64_t etcd_watch_lists(_unused_ const EtcdWatch *watch) { return n_lists; }
bool etcd_watch_connected(_unused_ const EtcdWatch *watch) { return seen.connected; }

/* Returns whether the key exists after the changes that were shown. */
bool etcd_watch_knows(_unused_ const EtcdWatch *watch, const char *key)
{
    bool known = false;
    for (size_t i = 0; i < n_shown; i++)
        if (strcmp(changes[i].key, key) == 0)
            known = changes[i].value;
    return known;
}

static EtcdEvent event_of(const StoreChange *c)
{
    return (EtcdEvent){.kind = c->value ? ETCD_EVENT_PUT : ETCD_EVENT_DELETE,
                       .kv = {.key = c->key,
                              .value = c->value,
                              .n_value = c->value ? strlen(c->value) : 0,
                              .create_revision = c->value ? c->created : 0,
                              .mod_revision = c->revision}};
}

/* Shows the next revision. Returns false if the watch has shown all. */
bool show_one(void)
{
    EtcdEvent events[STORE_KEYS_MAX];
    size_t n = 0;
    if (n_shown == n_changes)
        return false;
    const int64_t at = changes[n_shown].revision;
    for (; n_shown < n_changes && changes[n_shown].revision == at; n_shown++)
        events[n++] = event_of(&changes[n_shown]);
    on_watch(events, n, at, false, on_watch_userdata);
    return true;
}

void show_all(void)
{
    while (show_one())
        ;
}

/* Shows a list, as after a broken stream: the watch learns nothing of keys that appeared and vanished meanwhile. The
 * first call shows the list with which the watch begins. */
void list_until(int64_t revision)
{
    EtcdEvent events[2 * STORE_KEYS_MAX];
    size_t n = 0, end = n_shown;
    while (end < n_changes && changes[end].revision <= revision)
        end++;
    for (size_t i = n_shown; i < end; i++) {
        const StoreChange *c = &changes[i];
        bool is_last = true;
        for (size_t k = i + 1; k < end; k++)
            is_last = is_last && strcmp(changes[k].key, c->key) != 0;
        if (!is_last || (!c->value && !etcd_watch_knows(NULL, c->key)))
            continue;
        events[n] = event_of(c);
        if (!c->value) /* a delete that the watch makes up */
            events[n].kv.mod_revision = revision;
        n++;
    }
    n_shown = end;
    n_lists++;
    seen.connected = true;
    on_watch(events, n, revision, !was_listed, on_watch_userdata);
    was_listed = true;
}

void list_all(void) { list_until(seen.revision); }

/* ---- lease and election ---- */

int etcd_lease_new(_unused_ Etcd *etcd, int64_t ttl_sec, _unused_ const char *witness,
                   EtcdLeaseHandler handler, void *userdata, EtcdLease **ret)
{
    assert_int_equal(ttl_sec, 10);
    seen.on_lease = handler;
    seen.userdata = userdata;
    *ret = (EtcdLease *)&seen.on_lease;
    return 0;
}
int64_t etcd_lease_id(_unused_ const EtcdLease *lease) { return LEASE; }
EtcdLease *etcd_lease_free(_unused_ EtcdLease *lease) { return NULL; }

int etcd_lease_revoke(_unused_ EtcdLease *lease, EtcdTxnHandler done, void *userdata,
                      EtcdCall **ret)
{
    if (!seen.has_candidate) /* then there is no lease either */
        return -ESTALE;
    seen.n_revoked++;
    return etcd_txn(NULL, NULL, 0, &(EtcdOp){.kind = ETCD_DELETE, .key = seen.own_key}, 1, done,
                    userdata, ret);
}

int etcd_election_new(_unused_ Etcd *etcd, _unused_ const char *prefix, const char *value,
                      _unused_ EtcdLease *lease, EtcdElectionHandler handler, void *userdata,
                      EtcdElection **ret)
{
    seen.on_elected = handler;
    seen.userdata = userdata;
    seen.introduced = strdup(value);
    *ret = (EtcdElection *)&seen.on_elected;
    return 0;
}

void etcd_election_change(_unused_ EtcdElection *election, const char *value)
{
    free(seen.introduced);
    seen.introduced = strdup(value);
    if (find(seen.own_key))
        put_text(seen.own_key, value);
}

void etcd_election_lease_changed(_unused_ EtcdElection *election, EtcdLeaseState state,
                                 _unused_ int64_t lease)
{
    seen.has_candidate = state != ETCD_LEASE_LOST;
    if (state == ETCD_LEASE_LOST)
        seen.on_elected(false, LEADER_KEY, 0, seen.userdata);
}

EtcdElection *etcd_election_free(_unused_ EtcdElection *election)
{
    free(seen.introduced);
    seen.introduced = NULL;
    return NULL;
}

void etcd_set_history(_unused_ Etcd *etcd, _unused_ EtcdHistory known, EtcdHistoryHandler handler,
                      _unused_ void *userdata)
{
    seen.on_history = handler;
}
EtcdHistory etcd_history(_unused_ const Etcd *etcd) { return (EtcdHistory){0}; }

void pass(uint64_t usec)
{
    const uint64_t until = now_usec + usec;
    while (fire_one(until, INT64_MAX))
        ;
    now_usec = until;
}

/* Shows and answers everything until there is nothing left to do at this moment. */
void settle(void)
{
    for (int i = 0; i < 100 && (n_calls || n_shown < n_changes); i++) {
        show_all();
        pass(5 * USEC_PER_MSEC); /* changes are gathered for 5 ms */
        answer_all();
        pass(5 * USEC_PER_MSEC);
    }
    assert_true(n_calls == 0 && n_shown == n_changes);
}

void stall(uint64_t usec) { now_usec += usec; }

static bool resume_one(void)
{
    return fire_one(now_usec, SD_EVENT_PRIORITY_NORMAL) || show_one() ||
           fire_one(now_usec, INT64_MAX);
}

void resume(void)
{
    while (resume_one())
        ;
}

void store_begin(void)
{
    now_usec = 1000 * USEC_PER_SEC;
    seen = (struct StoreSeen){.revision = 1, .own_key = LEADER_KEY};
    n_lists = n_changes = n_shown = 0;
    was_listed = false;
}

void store_end(void)
{
    assert_int_equal(n_calls, 0);
    assert_null(seen.on_history);
    for (size_t i = 0; i < TIMERS_MAX; i++)
        assert_null(timers[i]);
    for (size_t i = 0; i < STORE_KEYS_MAX; i++) {
        free(store[i].value);
        store[i].value = NULL;
    }
    for (size_t i = 0; i < n_changes; i++)
        free(changes[i].value);
}
