/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fleet.c - sdcontroller under a fleet: nodes that consist only of records, leases and watches, on a real etcd,
 * run one job and write the records that sdtraind would; some fail, leave and return.
 *
 *     bench-fleet [NODES [SLOTS [SECONDS [VIEWERS]]]]     1000 nodes of 8 slots, 20 s of quiet by default
 *
 * With VIEWERS the controller serves its live page, and that many viewers (also 0) follow it all the time. With
 * BENCH_FLEET_DEAF in the environment nodes watch nothing, so that etcd need not send a world to a thousand watches
 * while this program measures.
 *
 * Prints one JSON line per figure. A time is between two events of one watch: it includes etcd's write of the new
 * world, but not the time in which etcd reports both events. */
#include "base/clock.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "cluster/records.h"
#include "controller/core/cluster.h"
#include "controller/test/testing-figures.h"
#include "controller/test/testing-viewers.h"
#include "etcd/test/testing-etcd.h"

#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/wait.h>

enum {
    NODES_MAX = 10000,
    IN_FLIGHT_MAX = 64,
    LEASE_SEC = 10,
    WAIT_SEC = 300,
    DEATHS = 5,
    LOSSES = 3,
    /* number of nodes that are lost at once, like one rack of a fleet of 1000 nodes */
    AT_ONCE = 30,
    COMMIT_EACH_SEC = 10,
    ERRORS_MAX = 10000,
    REST_SEC = 2, /* within this time all programs have read what was written */
    NODES_PER_CLIENT = 32,
};

/* The watches that a node holds open, as daemon/node/watch.c does. */
static const KeyKind watched[] = {KEY_WORLDS, KEY_PHASES, KEY_RENDEZVOUS, KEY_CORDONS,
                                  KEY_REQUESTS};

typedef struct Fleet Fleet;

typedef struct FakeNode {
    Fleet *fleet;
    char name[16];
    EtcdLease *lease;
    int64_t lease_id;
    uint64_t incarnation;
    int64_t generation; /* generation whose ranks the node runs; 0: none */
    int first_rank, n_ranks;
    RankState state; /* state of the node's ranks */
    EtcdWatch *watches[ELEMENTSOF(watched)], *own;
} FakeNode;

typedef struct Write {
    STAILQ_ENTRY(Write) next;
    Fleet *fleet;
    char key[KEY_MAX];
    char *text;
    int64_t lease;
} Write;

struct Fleet {
    sd_event *event;
    TestingEtcd *server;
    Etcd *etcd;
    EtcdWatch *watch;
    pid_t controller;
    FakeNode *nodes;
    int n_nodes, n_slots;
    STAILQ_HEAD(, Write) writes;
    int in_flight, n_errors;
    bool paused; /* no writes: etcd is too busy */
    /* The job, as the watch shows it. */
    WorldRecord world;
    int64_t world_revision, n_records, written_bytes;
    PhaseRecord phase;
    uint64_t world_usec; /* when the world's record was seen */
    uint64_t go_usec;
    char awaited_key[KEY_MAX]; /* key whose next event is awaited */
    uint64_t awaited_usec;     /* when the event of awaited_key was seen; 0: not yet */
    bool awaits_loss;          /* any lost node is awaited: leases end at different moments */
    int n_viewers;             /* number of viewers; -1: there is no page */
    char page[160];            /* address of the leader's page */
    TestingViewers *viewers;
    CheckpointsRecord checkpoints;
    /* How the world's record reaches all nodes. */
    Etcd *clients[NODES_MAX / NODES_PER_CLIENT + 1];
    int64_t told_revision, told_bytes;
    int n_told;
    uint64_t told_usec; /* when the last node received the world's record */
};

static void give_up(const char *what)
{
    (void)fprintf(stderr, "bench-fleet: %s\n", what);
    exit(1);
}

static void run_until(Fleet *f, bool (*holds)(const Fleet *f), const char *what)
{
    uint64_t end = clock_boottime_usec() + WAIT_SEC * USEC_PER_SEC;
    while (!holds(f)) {
        if (clock_boottime_usec() > end || sd_event_run(f->event, USEC_PER_SEC) < 0)
            give_up(what);
    }
}

/* ---- writes, some at a time ---- */

static void pump(Fleet *f);

static void on_written(int r, const Error *err, _unused_ const EtcdTxnResult *result,
                       void *userdata)
{
    Write *w = userdata;
    Fleet *f = w->fleet;
    /* A record whose lease is gone is not tried again: the node puts the record again with its next lease. */
    if (r < 0 && !strstr(err->text, "lease not found")) {
        if (++f->n_errors > ERRORS_MAX)
            give_up(err->text);
        STAILQ_INSERT_HEAD(&f->writes, w, next);
        f->in_flight--;
        f->paused = true; /* writes pause until the next second */
        return;
    }
    f->in_flight--;
    free(w->text);
    free(w);
    pump(f);
}

static void pump(Fleet *f)
{
    Write *w;
    while (!f->paused && f->in_flight < IN_FLIGHT_MAX && (w = STAILQ_FIRST(&f->writes))) {
        EtcdOp op = {.kind = ETCD_PUT, .key = w->key, .value = w->text, .lease = w->lease};
        EtcdCall *call;
        STAILQ_REMOVE_HEAD(&f->writes, next);
        if (etcd_txn(f->etcd, NULL, 0, &op, 1, on_written, w, &call) < 0)
            give_up("cannot begin a transaction");
        f->in_flight++;
        f->n_records++;
        f->written_bytes += (int64_t)strlen(w->text);
    }
}

static void post(Fleet *f, const char *key, int64_t lease, char *text)
{
    Write *w = calloc(1, sizeof(*w));
    if (!w)
        give_up("out of memory");
    w->fleet = f;
    w->lease = lease;
    w->text = text;
    (void)snprintf(w->key, sizeof(w->key), "%s", key);
    STAILQ_INSERT_TAIL(&f->writes, w, next);
    pump(f);
}

#define POST(fleet, prefix, record, key, lease)                                                    \
    post(fleet, key, lease, prefix##_encode(record, NULL))

/* ---- a node ---- */

static void post_node(FakeNode *n)
{
    char key[KEY_MAX];
    NodeRecord record = {.machine_id = "0123456789abcdef0123456789abcdef",
                         .boot_id = "01234567-89ab-cdef-0123-456789abcdef",
                         .incarnation = n->incarnation,
                         .address = "10.0.0.1",
                         .version = SDTRAIN_VERSION,
                         .log_dir = "/var/log/sdtrain",
                         .n_slots = n->fleet->n_slots,
                         .generation = n->generation,
                         .world_revision = n->generation ? n->fleet->world_revision : 0};
    (void)snprintf(record.name, sizeof(record.name), "%s", n->name);
    (void)snprintf(record.job, sizeof(record.job), "%s", n->generation ? "a" : "");
    POST(n->fleet, node_record, &record, key_of("fleet", KEY_NODES, n->name, key), n->lease_id);
}

/* exit_code, if it is not 0, is the exit code of the first rank only. */
static void post_ranks(FakeNode *n, RankState state, int exit_code)
{
    char key[KEY_MAX];
    Fleet *f = n->fleet;
    RankReport reports[RECORD_SLOTS_MAX];
    const uint64_t now = clock_realtime_usec();
    const bool first = n->first_rank == 0 && state != RANK_READY;
    n->state = state;
    for (int i = 0; i < n->n_ranks; i++)
        reports[i] = (RankReport){.slot = i,
                                  .rank = n->first_rank + i,
                                  .pid = 1000 + i,
                                  .state = state,
                                  .step = f->world.resume.step,
                                  .started_usec = f->world.decided_usec,
                                  .ready_usec = now,
                                  .at_usec = now};
    if (exit_code != 0) {
        reports[0].state = RANK_EXITED;
        reports[0].exit_code = exit_code;
        (void)snprintf(reports[0].text, sizeof(reports[0].text), "killed");
    }
    RanksRecord record = {.incarnation = n->incarnation,
                          .generation = n->generation,
                          .world_revision = f->world_revision,
                          .ranks = reports,
                          .n_ranks = (size_t)n->n_ranks,
                          .killed_usec = n->generation > 1 ? f->world.decided_usec : 0,
                          .first_step = first ? f->world.resume.step + 1 : 0,
                          .first_step_usec = first ? now : 0,
                          .left = state == RANK_EXITED};
    (void)snprintf(record.node, sizeof(record.node), "%s", n->name);
    POST(f, ranks_record, &record, key_ranks("fleet", "a", n->generation, n->name, key),
         n->lease_id);
}

static void on_lease(EtcdLeaseState state, int64_t lease, void *userdata)
{
    FakeNode *n = userdata;
    if (state == ETCD_LEASE_LOST)
        n->lease_id = 0;
    if (state != ETCD_LEASE_GRANTED)
        return;
    n->lease_id = lease;
    post_node(n);
    /* after the loss of a lease, a daemon puts the record of its ranks again, too */
    if (n->generation)
        post_ranks(n, n->state, 0);
}

/* Makes the node's ranks of the new generation ready. generation 0: the new world has no ranks on the node, whose old
 * ranks have exited. */
static void node_take(FakeNode *n, int64_t generation, int first_rank, int n_ranks)
{
    if (n->generation && !generation && n->lease_id)
        post_ranks(n, RANK_EXITED, 0);
    n->generation = generation;
    n->first_rank = first_rank;
    n->n_ranks = n_ranks;
    n->state = RANK_READY;
    if (!n->lease_id)
        return; /* the records are put later, once the node has a lease */
    post_node(n);
    if (generation)
        post_ranks(n, RANK_READY, 0);
}

static bool is_deaf(void) { return getenv("BENCH_FLEET_DEAF") != NULL; }

/* Counts what a watch of the node receives. A daemon would also decode the records, but here one process
 * is all nodes. */
static void on_node_watch(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                          bool initial, void *userdata)
{
    Fleet *f = ((FakeNode *)userdata)->fleet;
    for (size_t i = 0; i < n && !initial; i++) {
        const EtcdKeyValue *kv = &events[i].kv;
        if (strcmp(kv->key, "/sdtrain/fleet/worlds/a") != 0 || kv->mod_revision < f->told_revision)
            continue;
        if (kv->mod_revision > f->told_revision)
            f->n_told = 0, f->told_bytes = 0;
        f->told_revision = kv->mod_revision;
        f->told_bytes += (int64_t)kv->n_value;
        f->told_usec = clock_boottime_usec();
        f->n_told++;
    }
}

static void node_watch(FakeNode *n)
{
    if (is_deaf())
        return;
    Fleet *f = n->fleet;
    Etcd *client = f->clients[(n - f->nodes) / NODES_PER_CLIENT];
    char prefix[KEY_MAX];
    for (size_t i = 0; i < ELEMENTSOF(watched); i++)
        if (etcd_watch_prefix(client, key_prefix("fleet", (int)watched[i], prefix), on_node_watch,
                              n, &n->watches[i]) < 0)
            give_up("cannot watch");
    if (etcd_watch_key(client, key_of("fleet", KEY_NODES, n->name, prefix), on_node_watch, n,
                       &n->own) < 0)
        give_up("cannot watch");
}

static void node_unwatch(FakeNode *n)
{
    for (size_t i = 0; i < ELEMENTSOF(watched); i++)
        n->watches[i] = etcd_watch_free(n->watches[i]);
    n->own = etcd_watch_free(n->own);
}

static void node_up(FakeNode *n)
{
    node_watch(n);
    n->incarnation = clock_realtime_usec();
    n->generation = 0;
    char key[KEY_MAX];
    if (etcd_lease_new(n->fleet->etcd, LEASE_SEC, key_of("fleet", KEY_NODES, n->name, key),
                       on_lease, n, &n->lease) < 0)
        give_up("cannot ask for a lease");
}

/* Silences the node: its keys vanish when its lease has run out. */
static void node_lose(FakeNode *n)
{
    n->lease = etcd_lease_free(n->lease);
    node_unwatch(n);
    n->lease_id = 0;
    n->generation = 0;
}

static FakeNode *find_node(Fleet *f, const char *name)
{
    int i = atoi(name + 1); /* name is "n0042" */
    return i >= 0 && i < f->n_nodes ? &f->nodes[i] : NULL;
}

/* ---- the job ---- */

static void take_world(Fleet *f, const EtcdKeyValue *kv)
{
    Error err = ERROR_INIT;
    world_record_clear(&f->world);
    if (world_record_decode(kv->key, kv->value, kv->n_value, &f->world, &err) < 0)
        give_up(err.text);
    f->world_revision = kv->mod_revision;
    f->world_usec = clock_boottime_usec();
    f->go_usec = 0;
    int rank = 0;
    for (size_t i = 0; i < f->world.n_runs; i++) {
        FakeNode *n = find_node(f, f->world.runs[i].node);
        int n_ranks = __builtin_popcountll(f->world.runs[i].slots);
        if (n && n->lease)
            node_take(n, f->world.generation, rank, n_ranks);
        rank += n_ranks;
    }
    for (int i = 0; i < f->n_nodes; i++)
        if (f->nodes[i].generation && f->nodes[i].generation != f->world.generation)
            node_take(&f->nodes[i], 0, 0, 0);
}

static void all_report(Fleet *f, RankState state)
{
    for (int i = 0; i < f->n_nodes; i++) {
        if (f->nodes[i].generation != f->world.generation)
            continue;
        f->nodes[i].state = state;
        if (f->nodes[i].lease_id)
            post_ranks(&f->nodes[i], state, 0);
    }
}

static void take_phase(Fleet *f, const EtcdKeyValue *kv)
{
    Error err = ERROR_INIT;
    const bool left = f->phase.leave;
    if (phase_record_decode(kv->key, kv->value, kv->n_value, &f->phase, &err) < 0)
        give_up(err.text);
    if (f->phase.generation != f->world.generation)
        return;
    if (f->phase.go && !f->go_usec) {
        f->go_usec = clock_boottime_usec();
        all_report(f, RANK_RUNNING);
    } else if (f->phase.leave && !left) {
        all_report(f, RANK_EXITED);
    }
}

static void take_leader(Fleet *f, const EtcdKeyValue *kv)
{
    Error err = ERROR_INIT;
    LeaderRecord leader;
    if (leader_record_decode(kv->key, kv->value, kv->n_value, &leader, &err) < 0)
        give_up(err.text);
    memcpy(f->page, leader.page, sizeof(f->page));
    leader_record_clear(&leader);
}

static bool is_awaited(Fleet *f, const EtcdEvent *event)
{
    KeyKind kind;
    const char *rest;
    if (!f->awaits_loss)
        return strcmp(event->kv.key, f->awaited_key) == 0;
    if (event->kind == ETCD_EVENT_PUT || key_parse("fleet", event->kv.key, &kind, &rest) < 0 ||
        kind != KEY_NODES)
        return false;
    const FakeNode *n = find_node(f, rest);
    return n && !n->lease;
}

static void on_watch(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                     _unused_ bool initial, void *userdata)
{
    Fleet *f = userdata;
    for (size_t i = 0; i < n; i++) {
        KeyKind kind;
        const char *rest;
        const EtcdKeyValue *kv = &events[i].kv;
        if (!f->awaited_usec && is_awaited(f, &events[i]))
            f->awaited_usec = clock_boottime_usec();
        if (events[i].kind != ETCD_EVENT_PUT || key_parse("fleet", kv->key, &kind, &rest) < 0)
            continue;
        if (kind == KEY_WORLDS)
            take_world(f, kv);
        else if (kind == KEY_PHASES)
            take_phase(f, kv);
        else if (kind == KEY_LEADER)
            take_leader(f, kv);
    }
}

static int on_second(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Fleet *f = userdata;
    char key[KEY_MAX];
    const uint64_t now = clock_boottime_usec();
    (void)sd_event_source_set_time(source, now + USEC_PER_SEC); /* cannot fail: a live source */
    (void)sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    f->paused = false;
    pump(f);
    if (f->phase.phase != PHASE_RUNNING || !f->go_usec || f->phase.leave)
        return 0;
    const int64_t passed = (int64_t)((now - f->go_usec) / USEC_PER_SEC);
    ProgressRecord progress = {.generation = f->world.generation,
                               .step = f->world.resume.step + 1 + passed,
                               .steps = 1000000,
                               .loss = 0.5,
                               .step_sec = 1,
                               .at_usec = clock_realtime_usec()};
    POST(f, progress_record, &progress, key_of("fleet", KEY_PROGRESS, "a", key), 0);
    if (passed % COMMIT_EACH_SEC != 1)
        return 0;
    CheckpointCommit commit = {.step = progress.step,
                               .generation = progress.generation,
                               .at_usec = progress.at_usec};
    (void)snprintf(commit.uri, sizeof(commit.uri), "file:///c/step-%lld/manifest.json",
                   (long long)commit.step);
    checkpoints_append(&f->checkpoints, &commit);
    POST(f, checkpoints_record, &f->checkpoints, key_of("fleet", KEY_CHECKPOINTS, "a", key), 0);
    return 0;
}

static void submit(Fleet *f)
{
    char key[KEY_MAX], text[1024];
    const int ranks = f->n_nodes * f->n_slots;
    (void)snprintf(text, sizeof(text),
                   "{\"name\":\"a\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":%d},"
                   "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
                   "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],"
                   "\"empty_text\":\"file:///d/empty.npy\"},"
                   "\"train\":{\"global_batch\":%d,\"grain\":1,\"steps\":1000000},"
                   "\"checkpoint\":{\"uri\":\"file:///c/\"},"
                   "\"recovery\":{\"max_failures_at_same_step\":100,\"grow_interval_s\":0}}",
                   ranks, ranks);
    SpecRecord spec = {.spec = text, .submitted_usec = clock_realtime_usec()};
    DesiredRecord desired = {.min = 1, .max = ranks};
    POST(f, spec_record, &spec, key_of("fleet", KEY_SPECS, "a", key), 0);
    POST(f, desired_record, &desired, key_of("fleet", KEY_DESIRED, "a", key), 0);
}

/* ---- the controller ---- */

static void start_controller(Fleet *f)
{
    char path[512], record[512], lease[8];
    const char *bin = getenv("SDTRAIN_BIN");
    (void)snprintf(path, sizeof(path), "%s/sdcontroller", bin ? bin : "build/release/bin");
    (void)snprintf(record, sizeof(record), "%s/events.jsonl", testing_etcd_folder(f->server));
    (void)snprintf(lease, sizeof(lease), "%d", LEASE_SEC);
    const char *endpoints = testing_etcd_endpoints(f->server);
    f->controller = fork();
    if (f->controller != 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setenv("SDTRAIN_LOG", "warning", 0);
    (void)freopen("/dev/null", "a", stdout);
    if (!getenv("BENCH_FLEET_TALK"))
        (void)freopen("/dev/null", "a", stderr);
    char *arguments[16] = {path,          "--cluster", "fleet",         "--etcd", (char *)endpoints,
                           "--lease-sec", lease,       "--max-strikes", "0",      "--record",
                           record};
    int n = 11;
    if (f->n_nodes > 1000) {
        arguments[n++] = "--max-nodes";
        arguments[n++] = "10000";
    }
    if (f->n_viewers >= 0) {
        arguments[n++] = "--metrics";
        arguments[n++] = "127.0.0.1:0"; /* the controller chooses a port, which its record names */
    }
    execv(path, arguments);
    _exit(127);
}

/* ---- figures ---- */

static bool runs_in_full(const Fleet *f)
{
    int up = 0;
    for (int i = 0; i < f->n_nodes; i++)
        up += f->nodes[i].lease_id != 0;
    return f->phase.phase == PHASE_RUNNING && !f->phase.leave && f->in_flight == 0 &&
           f->phase.generation == f->world.generation && f->world.size == up * f->n_slots;
}

static bool all_registered(const Fleet *f)
{
    for (int i = 0; i < f->n_nodes; i++)
        if (!f->nodes[i].lease_id)
            return false;
    return f->in_flight == 0;
}

static bool awaited_and_answered(const Fleet *f)
{
    return f->awaited_usec && f->world_usec > f->awaited_usec;
}

static bool all_are_told(const Fleet *f)
{
    return f->told_revision == f->world_revision && f->n_told == f->n_nodes;
}

static void await_loss(Fleet *f)
{
    f->awaited_usec = 0;
    f->awaits_loss = true;
}

static void await_key(Fleet *f, const char *key)
{
    f->awaited_usec = 0;
    f->awaits_loss = false;
    (void)snprintf(f->awaited_key, sizeof(f->awaited_key), "%s", key);
}

static void rest(Fleet *f, int seconds)
{
    uint64_t end = clock_boottime_usec() + (uint64_t)seconds * USEC_PER_SEC;
    while (clock_boottime_usec() < end)
        if (sd_event_run(f->event, 100 * USEC_PER_MSEC) < 0)
            give_up("the loop ends");
}

static double answer_msec(Fleet *f, uint64_t less_usec)
{
    run_until(f, awaited_and_answered, "no new world");
    double msec = ((double)(f->world_usec - f->awaited_usec) - (double)less_usec) / 1e3;
    run_until(f, runs_in_full, "the new world does not run");
    rest(f, REST_SEC);
    return msec;
}

static void measure_quiet(Fleet *f, int seconds)
{
    double before = process_cpu_sec(f->controller);
    uint64_t begun = clock_boottime_usec();
    const uint64_t bytes = f->viewers ? testing_viewers_bytes(f->viewers) : 0;
    rest(f, seconds);
    const double passed = (double)(clock_boottime_usec() - begun) * 1e-6;
    double percent = 100 * (process_cpu_sec(f->controller) - before) / passed;
    figure_print("controller_cpu", "% of a core", &percent, 1);
    if (!f->viewers || f->n_viewers == 0)
        return;
    double kb =
        (double)(testing_viewers_bytes(f->viewers) - bytes) / 1e3 / passed * 60 / f->n_viewers;
    figure_print("live_page_bytes", "kB a minute and viewer", &kb, 1);
}

static void measure_deaths(Fleet *f)
{
    double msec[DEATHS], cpu[DEATHS], told[DEATHS], mib[DEATHS];
    char key[KEY_MAX];
    for (int i = 0; i < DEATHS; i++) {
        FakeNode *n = &f->nodes[f->n_nodes / 2 + i];
        cpu[i] = process_cpu_sec(f->controller);
        await_key(f, key_ranks("fleet", "a", n->generation, n->name, key));
        post_ranks(n, RANK_RUNNING, -9);
        msec[i] = answer_msec(f, 0);
        cpu[i] = 1e3 * (process_cpu_sec(f->controller) - cpu[i]);
        if (!is_deaf())
            run_until(f, all_are_told, "a node does not hear of the world");
        told[i] = (double)MAX((int64_t)(f->told_usec - f->world_usec), INT64_C(0)) / 1e3;
        mib[i] = (double)f->told_bytes / (1 << 20);
    }
    if (!is_deaf()) {
        figure_print("world_told_to_all_nodes", "ms", told, DEATHS);
        figure_print("world_bytes_to_all_nodes", "MiB", mib, DEATHS);
    }
    figure_print("controller_death_to_world", "ms", msec, DEATHS);
    figure_print("controller_cpu_of_a_recovery", "ms", cpu, DEATHS);
}

static void measure_losses(Fleet *f, const char *figure, int at_once, int n)
{
    double msec[LOSSES];
    assert(n <= LOSSES);
    for (int i = 0; i < n; i++) {
        FakeNode *first = &f->nodes[f->n_nodes / 3];
        await_loss(f);
        for (int k = 0; k < at_once; k++)
            node_lose(first + k);
        msec[i] = answer_msec(f, cluster_config_default.grace_usec);
        for (int k = 0; k < at_once; k++)
            node_up(first + k);
        run_until(f, all_registered, "a node does not return");
        run_until(f, runs_in_full, "the job does not grow again");
    }
    figure_print(figure, "ms", msec, n);
}

static void begin(Fleet *f)
{
    log_open("bench-fleet");
    STAILQ_INIT(&f->writes);
    f->nodes = calloc((size_t)f->n_nodes, sizeof(*f->nodes));
    f->server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(f->server);
    options.timeout_usec = 60 * USEC_PER_SEC;
    Error err = ERROR_INIT;
    sd_event_source *timer;
    if (!f->nodes || sd_event_new(&f->event) < 0 ||
        etcd_new(f->event, &options, &f->etcd, &err) < 0 ||
        etcd_watch_prefix(f->etcd, "/sdtrain/fleet/", on_watch, f, &f->watch) < 0 ||
        sd_event_add_time(f->event, &timer, CLOCK_BOOTTIME, 0, 0, on_second, f) < 0)
        give_up("cannot begin");
    for (int i = 0; i < f->n_nodes; i += NODES_PER_CLIENT)
        if (etcd_new(f->event, &options, &f->clients[i / NODES_PER_CLIENT], &err) < 0)
            give_up(err.text);
    start_controller(f);
    for (int i = 0; i < f->n_nodes; i++) {
        f->nodes[i].fleet = f;
        (void)snprintf(f->nodes[i].name, sizeof(f->nodes[i].name), "n%04d", i);
        node_up(&f->nodes[i]);
    }
    run_until(f, all_registered, "the nodes do not register");
    double rss = process_memory_mib(f->controller, "VmRSS:");
    figure_print("controller_rss_registered", "MiB", &rss, 1);
    submit(f);
    run_until(f, runs_in_full, "the job does not run");
    rest(f, REST_SEC);
    if (f->n_viewers > 0)
        f->viewers = testing_viewers_start(f->event, f->page, f->n_viewers);
}

int main(int argc, char **argv)
{
    Fleet f = {.n_nodes = argc > 1 ? atoi(argv[1]) : 1000,
               .n_slots = argc > 2 ? atoi(argv[2]) : 8,
               .n_viewers = argc > 4 ? atoi(argv[4]) : -1};
    int seconds = argc > 3 ? atoi(argv[3]) : 20;
    if (f.n_nodes < 2 * AT_ONCE || f.n_nodes > NODES_MAX || f.n_slots < 1 ||
        f.n_slots > RECORD_SLOTS_MAX || f.n_nodes * f.n_slots > RECORD_RANKS_MAX || seconds < 1 ||
        f.n_viewers > TESTING_VIEWERS_MAX) {
        (void)fprintf(stderr, "usage: bench-fleet [NODES [SLOTS [SECONDS [VIEWERS]]]]\n");
        return 2;
    }
    begin(&f);
    measure_quiet(&f, seconds);
    measure_deaths(&f);
    measure_losses(&f, "controller_loss_to_world", 1, LOSSES);
    measure_losses(&f, "controller_losses_at_once", AT_ONCE, 1);
    double rss = process_memory_mib(f.controller, "VmRSS:"),
           peak = process_memory_mib(f.controller, "VmHWM:");
    figure_print("controller_rss", "MiB", &rss, 1);
    figure_print("controller_rss_peak", "MiB", &peak, 1);

    f.viewers = testing_viewers_stop(f.viewers);
    (void)kill(f.controller, SIGTERM);
    (void)waitpid(f.controller, NULL, 0); /* cannot fail: it is our child */
    for (int i = 0; i < f.n_nodes; i++)
        node_lose(&f.nodes[i]);
    for (size_t i = 0; i < ELEMENTSOF(f.clients); i++)
        f.clients[i] = etcd_free(f.clients[i]);
    f.watch = etcd_watch_free(f.watch);
    f.etcd = etcd_free(f.etcd);
    f.server = testing_etcd_stop(f.server);
    f.event = sd_event_unref(f.event);
    world_record_clear(&f.world);
    free(f.nodes);
    return 0;
}
