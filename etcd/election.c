/* SPDX-License-Identifier: Apache-2.0 */
/* election.c - one leader among the candidates under a prefix.
 *
 * A candidate is a key <prefix><lease in hex> that is bound to the lease; the lowest create revision leads.
 * All state comes from one watch, so a candidate's view may be outdated: every write of a leader is
 * guarded by its term (the create revision of its key). */
#include "base/log.h"
#include "etcd/etcd-internal.h"

#include <inttypes.h>
#include <string.h>

enum { LOOK_AGAIN_MSEC = 500 };

typedef struct ElectionCandidate {
    char *key;
    int64_t create_revision;
} ElectionCandidate;

struct EtcdElection {
    Etcd *etcd;
    char *prefix, *value;
    EtcdElectionHandler handler;
    void *userdata;

    EtcdWatch *watch;
    EtcdCall *campaign;
    sd_event_source *timer; /* starts the next attempt to put the key */
    int64_t lease;
    char *key; /* the candidate's key with this lease; NULL without a lease */
    bool leading;
    bool changed; /* value was changed, but the key may still hold the old value */
    int64_t term;
    unsigned n_failures;
    /* While the handler runs: a flag in notify_change() that etcd_election_free() sets. Otherwise NULL. */
    bool *freed;

    ElectionCandidate *candidates;
    size_t n_candidates;
};

static void campaign(EtcdElection *election);

static ElectionCandidate *candidate_find(EtcdElection *election, const char *key)
{
    for (size_t i = 0; i < election->n_candidates; i++)
        if (!strcmp(election->candidates[i].key, key))
            return &election->candidates[i];
    return NULL;
}

static void candidate_remove(EtcdElection *election, const char *key)
{
    ElectionCandidate *candidate = candidate_find(election, key);
    if (!candidate)
        return;
    free(candidate->key);
    *candidate = election->candidates[--election->n_candidates];
}

static void candidate_add(EtcdElection *election, const EtcdKeyValue *kv)
{
    ElectionCandidate *candidate = candidate_find(election, kv->key);
    if (!candidate) {
        election->candidates = memory_resize(election->candidates, election->n_candidates + 1,
                                             sizeof(*election->candidates));
        candidate = &election->candidates[election->n_candidates++];
        candidate->key = memory_text(kv->key);
    }
    candidate->create_revision = kv->create_revision;
}

/* Returns false if the handler freed the election. */
static bool notify_change(EtcdElection *election, bool leading, const char *key, int64_t term)
{
    bool freed = false;

    assert(leading != election->leading && !election->freed);
    election->leading = leading;
    election->term = term;
    election->freed = &freed;
    election->handler(leading, key, term, election->userdata);
    if (freed)
        return false;
    election->freed = NULL;
    return true;
}

/* Compares the present leader with the state last reported to the handler, and reports a change. */
static void judge(EtcdElection *election)
{
    const ElectionCandidate *own = election->key ? candidate_find(election, election->key) : NULL;
    int64_t lowest = INT64_MAX;

    for (size_t i = 0; i < election->n_candidates; i++)
        lowest = MIN(lowest, election->candidates[i].create_revision);
    if (election->key && !own && !election->campaign)
        campaign(election); /* another client deleted the key */
    int64_t term = own && own->create_revision == lowest ? lowest : 0;

    /* A key that was deleted and put again begins another term. */
    if (election->leading && term != election->term &&
        !notify_change(election, false, election->key ? election->key : "", election->term))
        return;
    if (!election->leading && term != 0)
        (void)notify_change(election, true, election->key, term); /* may free the election */
}

static void on_election_watch(const EtcdEvent *events, size_t n_events, int64_t revision _unused_,
                              bool initial _unused_, void *userdata)
{
    EtcdElection *election = userdata;

    for (size_t i = 0; i < n_events; i++) {
        if (events[i].kind == ETCD_EVENT_DELETE)
            candidate_remove(election, events[i].kv.key);
        else
            candidate_add(election, &events[i].kv);
    }
    judge(election);
}

static void try_later(EtcdElection *election, uint64_t after_usec)
{
    /* Setting a timer fails only when the event loop has finished. */
    (void)sd_event_source_set_time(election->timer, clock_boottime_usec() + after_usec);
    (void)sd_event_source_set_enabled(election->timer, SD_EVENT_ONESHOT);
}

static void on_campaign(int r, const Error *err, const EtcdTxnResult *result _unused_,
                        void *userdata)
{
    EtcdElection *election = userdata;

    election->campaign = NULL;
    if (election->changed) /* the value changed during the write */
        try_later(election, 0);
    if (r == 0) {
        /* The watch reports the key. If the key was deleted before this answer came, there is no report, so
         * the election looks again later. */
        election->n_failures = 0;
        if (!candidate_find(election, election->key))
            try_later(election, LOOK_AGAIN_MSEC * USEC_PER_MSEC);
        return;
    }
    if (election->n_failures == 0 && r != -ESTALE) /* the lease reports its own loss */
        log_warning("cannot stand for election under %s: %s", election->prefix, err->text);
    try_later(election, backoff_usec(election->n_failures++));
}

static void campaign(EtcdElection *election)
{
    EtcdCompare absent = {.key = election->key, .target = ETCD_CREATE_REVISION, .equals = 0};
    EtcdOp put = {.kind = ETCD_PUT,
                  .key = election->key,
                  .value = election->value,
                  .lease = election->lease};

    assert(election->key && election->lease != 0 && !election->campaign);
    int r =
        etcd_txn(election->etcd, &absent, 1, &put, 1, on_campaign, election, &election->campaign);
    if (r < 0) {
        Error err = ERROR_INIT;
        (void)error_errno(&err, r, "etcd: transaction");
        on_campaign(r, &err, NULL, election);
    }
}

static void on_rewritten(int r, const Error *err, const EtcdTxnResult *result _unused_,
                         void *userdata)
{
    EtcdElection *election = userdata;

    election->campaign = NULL;
    if (election->changed) /* the value changed during the write */
        try_later(election, 0);
    if (r == 0) { /* done; or refused, because another key was put with this value */
        election->n_failures = 0;
        return;
    }
    log_debug("cannot write the election's key again: %s", err->text);
    election->changed = true;
    try_later(election, backoff_usec(election->n_failures++));
}

static void rewrite(EtcdElection *election, const ElectionCandidate *own)
{
    EtcdCompare same = {.key = election->key,
                        .target = ETCD_CREATE_REVISION,
                        .equals = own->create_revision};
    EtcdOp put = {.kind = ETCD_PUT,
                  .key = election->key,
                  .value = election->value,
                  .lease = election->lease};

    assert(!election->campaign);
    election->changed = false;
    int r =
        etcd_txn(election->etcd, &same, 1, &put, 1, on_rewritten, election, &election->campaign);
    if (r < 0) {
        Error err = ERROR_INIT;
        (void)error_errno(&err, r, "etcd: transaction");
        on_rewritten(r, &err, NULL, election);
    }
}

void etcd_election_change(EtcdElection *election, const char *value)
{
    free(election->value);
    election->value = memory_text(value);
    election->changed = true;
    if (!election->campaign)
        try_later(election, 0);
}

static int on_election_timer(sd_event_source *source _unused_, uint64_t usec _unused_,
                             void *userdata)
{
    EtcdElection *election = userdata;

    if (election->etcd->closed || !election->key || election->campaign)
        return 0;
    const ElectionCandidate *own = candidate_find(election, election->key);
    if (!own)
        campaign(election);
    else if (election->changed)
        rewrite(election, own);
    return 0;
}

static void withdraw(EtcdElection *election)
{
    if (!election->etcd->closed)
        election->campaign = etcd_call_free(election->campaign);
    (void)sd_event_source_set_enabled(election->timer, SD_EVENT_OFF);
    free(election->key);
    election->key = NULL;
    election->lease = 0;
}

static void stand(EtcdElection *election, int64_t lease)
{
    if (lease == election->lease)
        return;
    withdraw(election);
    election->key = memory_format("%s%" PRIx64, election->prefix, (uint64_t)lease);
    election->lease = lease;
    election->n_failures = 0;
    campaign(election);
}

void etcd_election_lease_changed(EtcdElection *election, EtcdLeaseState state, int64_t lease)
{
    if (!election || election->etcd->closed)
        return;
    switch (state) {
    case ETCD_LEASE_GRANTED:
        stand(election, lease);
        break;
    case ETCD_LEASE_RENEWED:
        break;
    case ETCD_LEASE_LOST:
        if (lease != election->lease)
            break;
        if (election->leading) {
            _cleanup_free_ char *key = TAKE_PTR(election->key);
            withdraw(election);
            /* The handler may free the election. */
            (void)notify_change(election, false, key, election->term);
        } else
            withdraw(election);
        break;
    }
}

int etcd_election_new(Etcd *etcd, const char *prefix, const char *value, EtcdLease *lease,
                      EtcdElectionHandler handler, void *userdata, EtcdElection **ret)
{
    _cleanup_(etcd_election_freep) EtcdElection *election = memory_new(EtcdElection);
    election->etcd = etcd_ref(etcd);
    election->handler = handler;
    election->userdata = userdata;
    election->prefix = memory_text(prefix);
    election->value = memory_text(value);
    int r = timer_new(etcd, on_election_timer, election, &election->timer);
    if (r >= 0)
        r = etcd_watch_prefix(etcd, prefix, on_election_watch, election, &election->watch);
    if (r < 0)
        return r;
    if (etcd_lease_id(lease) != 0)
        stand(election, etcd_lease_id(lease));
    *ret = TAKE_PTR(election);
    return 0;
}

EtcdElection *etcd_election_free(EtcdElection *election)
{
    if (!election)
        return NULL;
    if (election->freed)
        *election->freed = true;
    (void)etcd_watch_free(election->watch);
    withdraw(election);
    sd_event_source_disable_unref(election->timer);
    for (size_t i = 0; i < election->n_candidates; i++)
        free(election->candidates[i].key);
    free(election->candidates);
    free(election->prefix);
    free(election->value);
    (void)etcd_unref(election->etcd);
    free(election);
    return NULL;
}
