/* SPDX-License-Identifier: Apache-2.0 */
/* what-if.c - `sdctl cluster what-if`: prints what the leader would decide if some nodes were lost, cordoned or
 * drained. It feeds the present records with these changes into a core in this process, and prints the first decision
 * about each job and about the cluster. Nothing is written to etcd. The core uses the settings in the leader's record.
 * An older leader's record has no settings; then the defaults are used. */
#include "base/clock.h"
#include "base/memory.h"
#include "cluster/cordon.h"
#include "cluster/keys.h"
#include "controller/feed/feed.h"
#include "controller/journal/journal.h"
#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/cluster/verbs.h"
#include "ctl/decision-text.h"
#include "ctl/print.h"
#include "ctl/suggestion.h"

#include <string.h>

enum { HORIZON_TTLS = 3, JOBS_MAX = 1000, STEPS_MAX = 10000 };

typedef struct Trial {
    EtcdAnswer *records;
    const char *cluster;
    Feed *feed;
    void *memory;
    Cluster *core;
    uint64_t begin_usec, begin_real_usec, now_usec;
    uint64_t wake_usec;
    json_t *decisions;
    char leader[128]; /* the leader's name; empty: no leader */
    bool knows;       /* the core uses the leader's settings, not the defaults */
    uint64_t ttl_usec;
    Actions actions;
} Trial;

static void trial_end(Trial *t)
{
    t->feed = feed_free(t->feed);
    free(t->memory);
    (void)etcd_answer_free(t->records);
    free(t);
}

static void step(Trial *t, Event *event)
{
    event->now_usec = t->now_usec;
    event->real_usec = t->begin_real_usec + (t->now_usec - t->begin_usec);
    cluster_step(t->core, event, &t->actions);
    const Decision *d = &t->actions.decision;
    t->wake_usec = t->actions.wake_usec;
    if (!event->more && d->id)
        json_array_append_new(t->decisions, json_pack("{s:s, s:f, s:o}", "job", d->job, "after",
                                                      (double)(t->now_usec - t->begin_usec) * 1e-6,
                                                      "does", journal_words(d)));
}

/* Feeds a record into the core. With value NULL, the core sees the key as deleted. */
static void feed(Trial *t, const char *key, const char *value, size_t n, int64_t created,
                 int64_t revision)
{
    Event event;
    Error err = ERROR_INIT;
    int r = feed_event(t->feed, key, value, n, created, revision, &event, &err);
    if (r < 0)
        fprintf(stderr, "sdctl: left out: %s\n", err.text);
    if (r <= 0)
        return;
    event.more = true;
    step(t, &event);
}

/* Reads LeaderRecord.settings from text. Returns false if the text is empty or cannot be read. */
static bool read_numbers(const char *key, const char *text, ClusterConfig *config)
{
    Error ignored = ERROR_INIT; /* unreadable settings count as unknown */
    ClusterConfig told;
    _cleanup_json_ json_t *json = *text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!json_is_object(json) || journal_config_read(key, json, &told, &ignored) < 0)
        return false;
    *config = told;
    return true;
}

/* Reads the leader's settings and its list of admitted nodes from the leader's record. */
static void read_settings(Trial *t, ClusterConfig *config)
{
    int64_t oldest = INT64_MAX;
    for (size_t i = 0; i < t->records->n_kvs; i++) {
        const EtcdKeyValue *kv = &t->records->kvs[i];
        KeyKind kind;
        const char *rest;
        LeaderRecord leader = {0};
        Error ignored = ERROR_INIT; /* a record that cannot be read is skipped */
        if (key_parse(t->cluster, kv->key, &kind, &rest) < 0 || kind != KEY_LEADER ||
            kv->create_revision >= oldest ||
            leader_record_decode(kv->key, kv->value, kv->n_value, &leader, &ignored) < 0)
            continue;
        oldest = kv->create_revision;
        (void)snprintf(t->leader, sizeof(t->leader), "%s", leader.name);
        t->knows = read_numbers(kv->key, leader.settings, config);
        memcpy(config->admit, leader.admit, sizeof(config->admit));
    }
}

static void begin(Trial *t)
{
    ClusterConfig config = cluster_config_default;
    read_settings(t, &config);
    t->ttl_usec = config.ttl_usec;
    const int n = (int)MIN(t->records->n_kvs, (size_t)16000) + 16; /* space for every record */
    ClusterLimits limits = {
        .nodes = n, .jobs = MIN(n, JOBS_MAX), .reports = n, .incidents = n + 1, .requests = n};
    config.incidents_kept = n; /* so that the core makes no decisions to remove old incidents */
    t->memory = memory_zeroed(1, cluster_bytes(&limits));
    t->decisions = json_array();
    t->feed = feed_new(t->cluster);
    t->core = cluster_init(t->memory, &limits, &config);
    t->begin_usec = t->now_usec = clock_boottime_usec();
    t->begin_real_usec = clock_realtime_usec();
    for (size_t i = 0; i < t->records->n_kvs; i++) {
        const EtcdKeyValue *kv = &t->records->kvs[i];
        feed(t, kv->key, kv->value, kv->n_value, kv->create_revision, kv->mod_revision);
    }
    step(t, &(Event){.kind = EVENT_LEADING, .term = 1, .more = true});
}

/* ---- what is supposed ---- */

/* Simulates the end of a node's lease: deletes the node's record and the records of its ranks. */
static int lose(Trial *t, const char *node)
{
    const int64_t revision = t->records->revision + 1;
    char own[KEY_MAX], end[NODE_NAME_MAX + 8], ranks[KEY_MAX];
    size_t n_ranks = strlen(key_prefix(t->cluster, KEY_RANKS, ranks));
    (void)key_of(t->cluster, KEY_NODES, node, own);
    (void)snprintf(end, sizeof(end), "/%s", node);
    bool found = false;
    for (size_t i = 0; i < t->records->n_kvs; i++) {
        const char *key = t->records->kvs[i].key;
        const char *last = strrchr(key, '/');
        bool is_node = strcmp(key, own) == 0;
        found |= is_node;
        if (is_node || (strncmp(key, ranks, n_ranks) == 0 && last && strcmp(last, end) == 0))
            feed(t, key, NULL, 0, 0, revision);
    }
    return found ? 0 : -ENOENT;
}

static const EtcdKeyValue *find_record(const Trial *t, const char *key)
{
    for (size_t i = 0; i < t->records->n_kvs; i++)
        if (strcmp(t->records->kvs[i].key, key) == 0)
            return &t->records->kvs[i];
    return NULL;
}

static int close_node(Trial *t, const char *node, CordonMode mode)
{
    char key[KEY_MAX];
    Event event = {.kind = EVENT_CORDON, .revision = t->records->revision + 1, .more = true};
    CordonRecord cordon = {0};
    const CordonCause cause = {.owner = CORDON_OPERATOR,
                               .mode = mode,
                               .reason = "what if",
                               .since_usec = t->begin_real_usec};
    /* Errors of the cordon record are ignored, because the cause added below keeps the node from getting ranks, too. */
    Error ignored = ERROR_INIT;
    const EtcdKeyValue *kv = find_record(t, key_of(t->cluster, KEY_NODES, node, key));
    if (!kv)
        return -ENOENT;
    kv = find_record(t, key_of(t->cluster, KEY_CORDONS, node, key));
    if (kv)
        (void)cordon_record_decode(key, kv->value, kv->n_value, &cordon, &ignored);
    (void)snprintf(cordon.node, sizeof(cordon.node), "%s", node);
    (void)cordon_set(&cordon, &cause);
    (void)snprintf(event.name, sizeof(event.name), "%s", node);
    event.cordon = &cordon;
    step(t, &event);
    return 0;
}

static int suppose_one(Trial *t, const char *node, char what)
{
    return what == 'L' ? lose(t, node)
                       : close_node(t, node, what == 'D' ? CORDON_DRAIN : CORDON_CORDON);
}

static int refuse_node(const Trial *t, const char *name, Error *err)
{
    _cleanup_(model_freep) Model *model = model_new(t->cluster);
    for (size_t i = 0; i < t->records->n_kvs; i++)
        (void)model_feed(model, &(EtcdEvent){.kind = ETCD_EVENT_PUT, .kv = t->records->kvs[i]});
    return suggest_node(model, name, err);
}

/* Supposes that each node in names is lost (what is 'L'), drained ('D') or cordoned. names is a list such as "n1,n2",
 * or NULL for no node. */
static int suppose(Trial *t, const char *names, char what, Error *err)
{
    while (names && *names) {
        char name[NODE_NAME_MAX + 1];
        size_t n = strcspn(names, ",");
        (void)snprintf(name, sizeof(name), "%.*s", (int)MIN(n, (size_t)NODE_NAME_MAX), names);
        if (suppose_one(t, name, what) < 0)
            return refuse_node(t, name, err);
        names += n + (names[n] == ',');
    }
    return 0;
}

/* ---- what would be decided ---- */

/* Runs the core for HORIZON_TTLS times the TTL. By then the core has decided about absent nodes and blame, and its
 * waiting times are over. */
static void look(Trial *t)
{
    const uint64_t end = t->begin_usec + HORIZON_TTLS * t->ttl_usec;
    for (int i = 0; i < STEPS_MAX; i++) {
        step(t, &(Event){.kind = EVENT_TICK});
        if (t->wake_usec > end)
            return;
        t->now_usec = MAX(t->now_usec, t->wake_usec);
    }
}

static void print_if(const char *names, const char *what, const char **lead)
{
    if (names)
        printf("%s %s were %s", *lead, names, what);
    *lead = names ? " and" : *lead;
}

typedef struct WhatIfOptions {
    const char *lose, *cordon, *drain; /* node names, separated by ',' */
} WhatIfOptions;

#define OPTIONS_STRUCT WhatIfOptions
static const CtlOption options[] = {
    {"lose", 0, "NODE,...", "as if these nodes were gone", TAKES(TEXT, lose)},
    {"cordon", 0, "NODE,...", "as if these were cordoned", TAKES(TEXT, cordon)},
    {"drain", 0, "NODE,...", "as if these were drained", TAKES(TEXT, drain)},
};
const CtlOptions cluster_what_if_options = CTL_OPTIONS(options, .lose = NULL);

/* Prints "If n1 were lost and n2 were drained", or "As things are". */
static void print_supposed(const Arguments *a)
{
    const WhatIfOptions *o = arguments_own(a);
    const char *lead = "If";
    print_if(o->lose, "lost", &lead);
    print_if(o->cordon, "cordoned", &lead);
    print_if(o->drain, "drained", &lead);
    printf(*lead == 'I' ? "As things are" : "");
}

static void print_assumed(const Trial *t)
{
    char ttl[SPAN_TEXT_BYTES];
    (void)span_text((double)t->ttl_usec * 1e-6, ttl);
    if (t->knows)
        printf("By the settings of %s, which leads (a node is gone after %s).\n", t->leader, ttl);
    else
        printf("%s%s: the defaults are assumed (a node is gone after %s).\n",
               *t->leader ? t->leader : "Nobody leads",
               *t->leader ? " leads and does not tell its settings" : "", ttl);
}

static void print_trial(const Trial *t, const Arguments *a)
{
    json_t *one, *line;
    size_t i, k;
    print_supposed(a);
    if (json_array_size(t->decisions) == 0)
        printf(", nothing would be decided.\n");
    else
        printf(", this would be decided:\n");
    json_array_foreach (t->decisions, i, one) {
        char after[SPAN_TEXT_BYTES], words[SENTENCE_BYTES];
        const double sec = json_number(one, "after");
        printf(sec < 0.005 ? "  at once:\n" : "  after %s:\n", span_text(sec, after));
        json_array_foreach (json_object_get(one, "does"), k, line)
            printf("    %s\n", decision_text(json_string_value(line), words));
    }
    print_assumed(t);
}

int cluster_what_if(const Arguments *a)
{
    const WhatIfOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    CtlClient client = {0};
    char prefix[KEY_MAX];
    Trial *t = memory_new(Trial);
    int r = client_open(&a->client, &client, &err);
    if (r == 0) {
        t->cluster = client.cluster;
        r = client_get(&client, key_prefix(client.cluster, -1, prefix), true, &t->records, &err);
    }
    client_close(&client);
    if (r == 0)
        begin(t);
    r = r < 0 ? r : suppose(t, o->lose, 'L', &err);
    r = r < 0 ? r : suppose(t, o->cordon, 'K', &err);
    r = r < 0 ? r : suppose(t, o->drain, 'D', &err);
    if (r == 0) {
        look(t);
        if (a->json)
            print_json(json_pack("{s:s, s:I, s:b, s:O}", "cluster", t->cluster, "revision",
                                 (json_int_t)t->records->revision, "leaders_settings", t->knows,
                                 "decisions", t->decisions));
        else
            print_trial(t, a);
    }
    json_decref(t->decisions);
    trial_end(t);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}
