/* SPDX-License-Identifier: Apache-2.0 */
/* testing-memory.c - see testing-memory.h: time, the store, watches and leases. */
#include "etcd/test/testing-memory.h"

#include "base/clock.h"
#include "base/memory.h"
#include "tests/sim/seams/loop.h"

#include <errno.h>
#include <string.h>

enum { CHANGES_MAX = 4096, WATCHES_MAX = 16, LEASES_MAX = 64 };
#define NOW INT64_MAX /* later than any revision */

/* ---- time ---- */

sd_event *memory_loop;
uint64_t ahead_usec, gather_usec;

uint64_t clock_boottime_usec(void) { return loops_now_usec(); }
uint64_t clock_realtime_usec(void) { return loops_now_usec() + ahead_usec; }
uint64_t clock_monotonic_usec(void) { return loops_now_usec(); }

void pass(uint64_t usec)
{
    const uint64_t until_usec = loops_now_usec() + usec;
    while (loops_run(until_usec))
        ;
}

void stall(uint64_t usec)
{
    loop_freeze(memory_loop, true);
    pass(usec);
    loop_freeze(memory_loop, false);
}

/* ---- the store ---- */

static StoredKey changes[CHANGES_MAX]; /* all changes, sorted by revision */
static size_t n_changes;
int64_t newest_revision;

/* Returns the key as it was at that revision; NULL: the key did not exist then. */
static const StoredKey *find_at(const char *key, int64_t then)
{
    for (size_t i = n_changes; i-- > 0;)
        if (changes[i].modified <= then && strcmp(changes[i].key, key) == 0)
            return changes[i].value ? &changes[i] : NULL;
    return NULL;
}

/* Returns whether *k was the newest state of its key when the store was at revision `then`. */
static bool lives_at(const StoredKey *k, int64_t then) { return find_at(k->key, then) == k; }

static bool matches(const char *key, const char *wanted, bool is_prefix)
{
    return (is_prefix ? strncmp(key, wanted, strlen(wanted)) : strcmp(key, wanted)) == 0;
}

const StoredKey *find(const char *key) { return find_at(key, NOW); }

void change_at(int64_t revision, const char *key, const char *value, int64_t lease)
{
    const StoredKey *was = find(key);
    assert_true(n_changes < CHANGES_MAX);
    changes[n_changes++] = (StoredKey){.key = memory_text(key),
                                       .value = value ? memory_text(value) : NULL,
                                       .created = was ? was->created : revision,
                                       .modified = revision,
                                       .version = was ? was->version + 1 : 1,
                                       .lease = lease};
}

int64_t put(const char *key, const char *value, int64_t lease)
{
    change_at(++newest_revision, key, value, lease);
    return newest_revision;
}

int64_t delete_key(const char *key) { return find(key) ? put(key, NULL, 0) : 0; }

static EtcdKeyValue kv_of(const StoredKey *k)
{
    if (!k->value) /* the event of a delete has only the key and this revision */
        return (EtcdKeyValue){.key = k->key, .value = "", .mod_revision = k->modified};
    return (EtcdKeyValue){.key = k->key,
                          .value = k->value,
                          .n_value = strlen(k->value),
                          .create_revision = k->created,
                          .mod_revision = k->modified,
                          .version = k->version,
                          .lease = k->lease};
}

EtcdKeyValue *copy_keys(const char *key, bool prefix, size_t *ret_n)
{
    EtcdKeyValue *ret = memory_zeroed(n_changes + 1, sizeof(*ret));
    *ret_n = 0;
    for (const StoredKey *k = changes; k < &changes[n_changes]; k++)
        if (matches(k->key, key, prefix) && lives_at(k, NOW))
            ret[(*ret_n)++] = kv_of(k);
    return ret;
}

/* ---- watches ---- */

struct EtcdWatch {
    const Etcd *etcd;
    char *key; /* the watched key or prefix */
    bool is_prefix;
    uint64_t n_lists;
    int64_t shown; /* the last revision passed to the watch's handler */
    EtcdWatchHandler handler;
    void *userdata;
};

static EtcdWatch *watches[WATCHES_MAX];
static size_t n_watches;

static int add_watch(const EtcdWatch *watch, EtcdWatch **ret)
{
    assert_true(n_watches < WATCHES_MAX);
    *ret = watches[n_watches++] = memory_new(EtcdWatch);
    **ret = *watch;
    return 0;
}

int etcd_watch_prefix(Etcd *etcd, const char *prefix, EtcdWatchHandler handler, void *userdata,
                      EtcdWatch **ret)
{
    assert_true(!etcd->range ||
                (strcmp(prefix, etcd->range) == 0 && etcd->n_begun[CALL_RIGHTS] > 0));
    return add_watch(&(EtcdWatch){.etcd = etcd,
                                  .key = memory_text(prefix),
                                  .is_prefix = true,
                                  .handler = handler,
                                  .userdata = userdata},
                     ret);
}

int etcd_watch_key(Etcd *etcd, const char *key, EtcdWatchHandler handler, void *userdata,
                   EtcdWatch **ret)
{
    return add_watch(&(EtcdWatch){.etcd = etcd,
                                  .key = memory_text(key),
                                  .handler = handler,
                                  .userdata = userdata},
                     ret);
}

EtcdWatch *etcd_watch_free(EtcdWatch *watch)
{
    if (!watch)
        return NULL;
    size_t i = 0;
    while (i < n_watches && watches[i] != watch)
        i++;
    assert_true(i < n_watches);
    memmove(&watches[i], &watches[i + 1], sizeof(watches[0]) * (--n_watches - i));
    free(watch->key);
    free(watch);
    return NULL;
}

uint64_t etcd_watch_lists(const EtcdWatch *w) { return w->n_lists; }
bool etcd_watch_connected(const EtcdWatch *w) { return w->n_lists > 0 && !w->etcd->is_cut; }
bool etcd_watch_knows(const EtcdWatch *w, const char *key) { return find_at(key, w->shown); }

static bool concerns(const EtcdWatch *w, const StoredKey *k)
{
    return matches(k->key, w->key, w->is_prefix);
}

static EtcdEvent event_of(const StoredKey *k)
{
    return (EtcdEvent){.kind = k->value ? ETCD_EVENT_PUT : ETCD_EVENT_DELETE, .kv = kv_of(k)};
}

/* Passes all changes since the last call of the watch's handler to the handler, in one call, deletions first. */
static void list(EtcdWatch *w, int64_t until)
{
    static EtcdEvent events[CHANGES_MAX];
    size_t n = 0;
    for (const StoredKey *was = changes; was < &changes[n_changes]; was++) {
        const StoredKey *is = find_at(was->key, until);
        const StoredKey gone = {.key = was->key, .modified = is ? is->created - 1 : until};
        if (concerns(w, was) && lives_at(was, w->shown) && (!is || is->created != was->created))
            events[n++] = event_of(&gone);
    }
    for (const StoredKey *is = changes; is < &changes[n_changes]; is++)
        if (concerns(w, is) && is->modified > w->shown && lives_at(is, until))
            events[n++] = event_of(is);
    w->shown = until;
    w->handler(events, n, until, w->n_lists++ == 0, w->userdata);
}

static void show_revision(EtcdWatch *w, int64_t revision)
{
    static EtcdEvent events[CHANGES_MAX];
    size_t n = 0;
    for (const StoredKey *k = changes; k < &changes[n_changes]; k++)
        if (k->modified == revision && concerns(w, k))
            events[n++] = event_of(k);
    w->shown = revision;
    w->handler(events, n, revision, false, w->userdata);
}

static bool may_show(const EtcdWatch *w, const Etcd *etcd, const char *prefix)
{
    return w->etcd == etcd && (!prefix || strcmp(w->key, prefix) == 0);
}

bool show_one(const Etcd *etcd, const char *prefix)
{
    for (size_t i = 0; i < n_watches; i++)
        if (may_show(watches[i], etcd, prefix) && !watches[i]->n_lists) {
            list(watches[i], newest_revision);
            return true;
        }
    for (const StoredKey *k = changes; k < &changes[n_changes]; k++)
        for (size_t i = 0; i < n_watches; i++)
            if (may_show(watches[i], etcd, prefix) && k->modified > watches[i]->shown &&
                concerns(watches[i], k)) {
                show_revision(watches[i], k->modified);
                return true;
            }
    return false;
}

void show(const Etcd *etcd)
{
    while (show_one(etcd, NULL))
        ;
}

void list_until(const Etcd *etcd, int64_t revision)
{
    for (size_t i = 0; i < n_watches; i++)
        if (watches[i]->etcd == etcd)
            list(watches[i], revision);
}

void list_again(const Etcd *etcd) { list_until(etcd, newest_revision); }

bool show_everybody(void)
{
    for (size_t i = 0; i < n_watches; i++) {
        const Etcd *etcd = watches[i]->etcd;
        if (!etcd->is_cut && !etcd->is_blind && show_one(etcd, NULL)) {
            show(etcd);
            return true;
        }
    }
    return false;
}

/* ---- leases ---- */

struct EtcdLease {
    Etcd *etcd;
    int64_t id; /* the lease's id; 0: no lease is held */
    int64_t ttl_sec;
    EtcdLeaseHandler handler;
    void *userdata;
};

static size_t n_leases; /* the number of EtcdLeases */
static bool is_over[LEASES_MAX];
static int64_t last_lease;

bool lease_lives(int64_t id)
{
    return id >= FIRST_LEASE && id <= last_lease && !is_over[id - FIRST_LEASE];
}

int etcd_lease_new(Etcd *etcd, int64_t ttl_sec, const char *witness_key, EtcdLeaseHandler handler,
                   void *userdata, EtcdLease **ret)
{
    assert_true(!etcd->lease && *witness_key);
    n_leases++;
    *ret = etcd->lease = memory_new(EtcdLease);
    **ret = (EtcdLease){.etcd = etcd, .ttl_sec = ttl_sec, .handler = handler, .userdata = userdata};
    return 0;
}

EtcdLease *etcd_lease_free(EtcdLease *lease)
{
    if (lease) {
        lease->etcd->lease = NULL;
        n_leases--;
    }
    free(lease);
    return NULL;
}

int64_t etcd_lease_id(const EtcdLease *lease) { return lease ? lease->id : FIRST_LEASE; }
int64_t etcd_lease_ttl_sec(const EtcdLease *lease) { return lease ? lease->ttl_sec : 10; }
uint64_t etcd_lease_deadline_usec(const EtcdLease *lease)
{
    return clock_boottime_usec() + (uint64_t)etcd_lease_ttl_sec(lease) * USEC_PER_SEC;
}

void etcd_lease_check(EtcdLease *lease) { lease->etcd->n_lease_checks++; }

int etcd_lease_revoke(EtcdLease *lease, EtcdTxnHandler done, void *userdata, EtcdCall **ret)
{
    return lease->id ? etcd_revoke(lease->etcd, lease->id, done, userdata, ret) : -ESTALE;
}

int64_t lease_of(const Etcd *etcd)
{
    assert_non_null(etcd->lease);
    return etcd->lease->id;
}

int64_t foreign_lease(void)
{
    assert_true(++last_lease < FIRST_LEASE + LEASES_MAX);
    return last_lease;
}

bool end_lease(int64_t id)
{
    if (!lease_lives(id))
        return false;
    is_over[id - FIRST_LEASE] = true;
    newest_revision++;
    for (const StoredKey *k = changes; k < &changes[n_changes]; k++)
        if (k->lease == id && lives_at(k, NOW))
            change_at(newest_revision, k->key, NULL, 0);
    return true;
}

static void notify(const Etcd *etcd, EtcdLeaseState state, int64_t id)
{
    assert_true(id != 0);
    etcd->lease->handler(state, id, etcd->lease->userdata);
}

void grant(const Etcd *etcd)
{
    assert_int_equal(lease_of(etcd), 0);
    etcd->lease->id = foreign_lease();
    notify(etcd, ETCD_LEASE_GRANTED, etcd->lease->id);
}

void renew(const Etcd *etcd) { notify(etcd, ETCD_LEASE_RENEWED, lease_of(etcd)); }
void lasts(const Etcd *etcd, int64_t ttl_sec) { etcd->lease->ttl_sec = ttl_sec; }

void expire(const Etcd *etcd)
{
    assert_true(lease_of(etcd) != 0);
    (void)end_lease(lease_of(etcd)); /* the test may have ended the lease by its id */
}

void notify_lost(const Etcd *etcd)
{
    const int64_t id = lease_of(etcd);
    etcd->lease->id = 0;
    notify(etcd, ETCD_LEASE_LOST, id);
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

void memory_begin(void)
{
    loops_open(1000 * USEC_PER_SEC);
    assert_int_equal(sd_event_new(&memory_loop), 0);
    ahead_usec = gather_usec = 0;
    newest_revision = 100;
    last_lease = FIRST_LEASE;
    memset(is_over, 0, sizeof(is_over));
}

void memory_end(void)
{
    if (loop_enter(
            NULL)) /* the test failed within a callback, during which the loop references itself */
        (void)sd_event_unref(memory_loop);
    memory_loop = sd_event_unref(memory_loop);
    loops_close(); /* ends the program if a timer holds the loop */
    assert_int_equal(n_calls_of_all(), 0);
    assert_int_equal(n_watches, 0);
    assert_int_equal(n_leases, 0);
    while (n_changes > 0) {
        free(changes[--n_changes].key);
        free(changes[n_changes].value);
    }
}
