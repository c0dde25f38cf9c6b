/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.c - see fleet.h. */
#include "tests/sim/fleet/fleet.h"

#include "base/memory.h"
#include "cluster/keys.h"
#include "controller/leader/leader.h"
#include "daemon/node/manager.h"
#include "tests/sim/fleet/members.h"
#include "tests/sim/fleet/trainer.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLUSTER "lab"

enum { START_SEC = 1000, LEASE_SEC = 10, SAVE_STEPS = 10, JOBS_MAX = 8 };

typedef struct Controller {
    int number;
    sd_event *loop; /* NULL: it does not run */
    Etcd *etcd;
    Leader *leader;
    bool is_over; /* it is to be started anew */
} Controller;

typedef struct Node {
    int number;
    Machine *machine;
    uint64_t incarnation;
    char *state; /* history.json; NULL: there is none */
    sd_event *loop;
    Timers timers;
    Etcd *etcd;
    DaemonConfig config;
    CgroupBase cgroups;
    RankNeeds ranks;
    Manager *manager;
} Node;

typedef struct JobView { /* what etcd holds of a job */
    char name[RECORD_JOB_MAX + 1];
    bool has_phase;
    JobPhase phase;
    int64_t generation, committed;
} JobView;

static FleetOptions options;
static Controller controllers[FLEET_CONTROLLERS_MAX];
static Node nodes[FLEET_NODES_MAX];
static sd_event *admin_loop;
static Etcd *admin;
static JobView views[JOBS_MAX];
static size_t n_views;
static uint64_t digest;

/* ---- what etcd holds ---- */

static JobView *view_of(const char *job)
{
    for (size_t i = 0; i < n_views; i++)
        if (strcmp(views[i].name, job) == 0)
            return &views[i];
    assert(n_views < JOBS_MAX);
    JobView *view = &views[n_views++];
    *view = (JobView){0};
    (void)snprintf(view->name, sizeof(view->name), "%s", job);
    return view;
}

static void note_record(const ServerChange *change)
{
    KeyKind kind;
    const char *job;
    if (key_parse(CLUSTER, change->key, &kind, &job) < 0)
        return;
    const char *text = change->value ? change->value : "";
    if (kind == KEY_PHASES) {
        JobView *view = view_of(job);
        PhaseRecord phase;
        view->has_phase =
            phase_record_decode(change->key, text, change->n_value, &phase, NULL) == 0;
        if (view->has_phase)
            view->phase = phase.phase;
    } else if (kind == KEY_WORLDS) {
        WorldRecord world;
        if (world_record_decode(change->key, text, change->n_value, &world, NULL) < 0)
            return;
        view_of(job)->generation = world.generation;
        world_record_clear(&world);
    } else if (kind == KEY_CHECKPOINTS) {
        CheckpointsRecord record;
        if (checkpoints_record_decode(change->key, text, change->n_value, &record, NULL) == 0)
            view_of(job)->committed = checkpoints_mark(&record).step;
    }
}

static void on_commit(int64_t revision, const ServerChange *changes, size_t n,
                      _unused_ void *userdata)
{
    for (size_t i = 0; i < n; i++) {
        Hash words[3] = {hash_bytes(changes[i].key, changes[i].n_key),
                         hash_bytes(changes[i].value ? changes[i].value : "", changes[i].n_value)};
        memcpy(&words[2], &digest, sizeof(digest));
        memcpy((char *)&words[2] + sizeof(digest), &revision, sizeof(revision));
        const Hash h = hash_bytes(words, sizeof(words));
        memcpy(&digest, &h, sizeof(digest));
        note_record(&changes[i]);
    }
}

/* A loop of a process on that machine, with a client of etcd. The caller has entered no loop. */
static sd_event *open_process(size_t machine, Etcd **ret)
{
    sd_event *loop;
    Error err = ERROR_INIT;
    const EtcdOptions its = {.endpoints = members_endpoints()};
    int r = sd_event_new(&loop);
    assert(r >= 0);
    loop_set_machine(loop, machine);
    sd_event *previous = loop_enter(loop);
    r = etcd_new(loop, &its, ret, &err);
    assert(r == 0);
    (void)loop_enter(previous);
    return loop;
}

/* ---- controllers ---- */

static void on_nothing(_unused_ void *userdata) {}
static void on_event(_unused_ void *userdata, _unused_ const Event *event) {}
static void on_answer(_unused_ void *userdata, _unused_ const Decision *decision,
                      _unused_ Outcome outcome, _unused_ uint64_t begun_usec,
                      _unused_ int64_t revision)
{
}
static void on_shown(_unused_ void *userdata, _unused_ int64_t revision) {}
static void on_leader_over(void *userdata, _unused_ int r)
{
    ((Controller *)userdata)->is_over = true;
}

static bool draw(void *ret, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)ret)[i] = (uint8_t)network_draw(256);
    return true;
}

void fleet_start_controller(int number)
{
    Controller *c = &controllers[number];
    Error err = ERROR_INIT;
    assert(!c->loop);
    *c = (Controller){.number = number};
    c->loop = open_process((size_t)(1 + number), &c->etcd);
    LeaderSettings settings = {.cluster = CLUSTER,
                               .lease_sec = LEASE_SEC,
                               .core = cluster_config_default,
                               .limits = {.nodes = FLEET_NODES_MAX,
                                          .jobs = JOBS_MAX,
                                          .reports = 4 * FLEET_NODES_MAX,
                                          .incidents = 512,
                                          .requests = 16},
                               .introduction = {.max_nodes = FLEET_NODES_MAX,
                                                .max_jobs = JOBS_MAX}};
    (void)snprintf(settings.introduction.name, sizeof(settings.introduction.name), "c%d", number);
    const LeaderNeeds needs = {.event = c->loop, .etcd = c->etcd, .draw = draw};
    const LeaderEvents events = {.userdata = c,
                                 .loaded = on_nothing,
                                 .view_changed = on_nothing,
                                 .leads = on_nothing,
                                 .record_read = on_event,
                                 .observed = on_event,
                                 .answered = on_answer,
                                 .shown = on_shown,
                                 .ended = on_leader_over};
    sd_event *previous = loop_enter(c->loop);
    int r = leader_new(&needs, &settings, &events, &c->leader, &err);
    assert(r == 0);
    (void)loop_enter(previous);
}

void fleet_kill_controller(int number)
{
    Controller *c = &controllers[number];
    if (!c->loop)
        return;
    loop_kill(c->loop); /* first, so that nothing gets out */
    sd_event *previous = loop_enter(c->loop);
    c->leader = leader_free(c->leader);
    c->etcd = etcd_free(c->etcd);
    (void)loop_enter(previous);
    c->loop = sd_event_unref(c->loop);
}

int fleet_leader(void)
{
    for (int i = 0; i < options.n_controllers; i++)
        if (controllers[i].loop && leader_view(controllers[i].leader).term != 0)
            return i;
    return -1;
}

/* ---- nodes ---- */

static uint64_t ask_memory(_unused_ void *userdata) { return UINT64_C(64) << 30; }

static int read_file(void *userdata, const char *path, char **ret, size_t *ret_n, Error *err)
{
    const Node *n = userdata;
    if (!n->state)
        return error_set(err, -ENOENT, "%s: there is none", path);
    *ret = memory_text(n->state);
    *ret_n = strlen(n->state);
    return 0;
}

static int write_file(void *userdata, _unused_ const char *path, const char *text,
                      _unused_ Error *err)
{
    Node *n = userdata;
    free(n->state);
    n->state = memory_text(text);
    return 0;
}

static void on_check(_unused_ void *userdata, _unused_ const EtcdKeyValue *request,
                     _unused_ bool clear)
{
}
static bool is_health_told(_unused_ void *userdata) { return true; }
static void on_ticked(_unused_ void *userdata, _unused_ uint64_t now_usec) {}
static void on_daemon_failed(_unused_ void *userdata, const Error *err)
{
    (void)fprintf(stderr, "fleet: %s\n", err->text);
    abort();
}
static void on_lease(_unused_ void *userdata, _unused_ bool renewed) {}
static void on_decided(_unused_ void *userdata, _unused_ const char *job, _unused_ bool committed)
{
}
static void on_rank(_unused_ void *userdata, _unused_ const Rank *rank) {}
static void on_rank_ended(_unused_ void *userdata, _unused_ const Rank *rank,
                          _unused_ const ExitVerdict *verdict)
{
}
static void on_word(_unused_ void *userdata, _unused_ Rank *rank, _unused_ const ChannelMessage *m)
{
}
static void on_job(_unused_ void *userdata, _unused_ const char *job) {}
static bool is_other_child(_unused_ void *userdata, _unused_ pid_t pid) { return false; }

static void configure(Node *n)
{
    n->config = (DaemonConfig){.cluster = CLUSTER,
                               .address = "10.0.0.1",
                               .slots = options.n_slots,
                               .lease_sec = LEASE_SEC,
                               .fence_sec = 60,
                               .drain_sec = 60,
                               .hang_floor_sec = 60,
                               .hang_factor = 10,
                               .startup_sec = 300,
                               .save_sec = 300,
                               .trainer = "/sdtrainer",
                               .run_dir = "/run/lab",
                               .state_dir = "/state"};
    (void)snprintf(n->config.node, sizeof(n->config.node), "n%d", n->number);
    (void)snprintf(n->config.machine_id, sizeof(n->config.machine_id), "%032d", n->number);
}

void fleet_start_daemon(int number)
{
    static const bool is_probed = true;
    static const int trainer = -1;
    static char *environment[] = {NULL};
    Node *n = &nodes[number];
    Error err = ERROR_INIT;
    assert(!n->loop);
    n->loop = open_process((size_t)(1 + options.n_controllers + number), &n->etcd);
    machine_open(n->machine, n->loop);
    n->timers = (Timers){.event = n->loop, .failed = on_daemon_failed, .userdata = n};
    n->incarnation = loops_now_usec();
    n->ranks = (RankNeeds){.process = {.event = n->loop, .cgroups = &n->cgroups},
                           .environment = environment,
                           .trainer = &trainer,
                           .is_other_child = is_other_child};
    const ManagerNeeds needs = {.config = &n->config,
                                .timers = &n->timers,
                                .etcd = n->etcd,
                                .ranks = &n->ranks,
                                .boot_id = "8c5a3f1e-0000-0000-0000-000000000000",
                                .is_probed = &is_probed,
                                .incarnation = n->incarnation,
                                .userdata = n,
                                .memory_bytes = ask_memory,
                                .read_file = read_file,
                                .write_file = write_file,
                                .check = on_check,
                                .leave_health = on_nothing,
                                .is_health_told = is_health_told};
    const ManagerEvents events = {.userdata = n,
                                  .registered = on_nothing,
                                  .draining = on_nothing,
                                  .ticked = on_ticked,
                                  .ended = on_nothing,
                                  .failed = on_daemon_failed,
                                  .lease_changed = on_lease,
                                  .fenced = on_nothing,
                                  .commit_decided = on_decided,
                                  .rank_started = on_rank,
                                  .rank_ended = on_rank_ended,
                                  .rank_stepped = on_word,
                                  .rank_saved = on_word,
                                  .job_forgotten = on_job};
    sd_event *previous = loop_enter(n->loop);
    n->manager = manager_new(&needs, &events);
    int r = manager_start(n->manager, &err);
    assert(r == 0);
    (void)loop_enter(previous);
}

void fleet_kill_daemon(int number)
{
    Node *n = &nodes[number];
    if (!n->loop)
        return;
    loop_kill(n->loop);
    sd_event *previous = loop_enter(n->loop);
    n->manager = manager_free(n->manager);
    n->etcd = etcd_free(n->etcd);
    (void)loop_enter(previous);
    machine_close(n->machine);
    n->loop = sd_event_unref(n->loop);
}

/* ---- people ---- */

static void on_submitted(int r, _unused_ const Error *err, const EtcdTxnResult *result,
                         void *userdata)
{
    assert(r == 0 && result->succeeded);
    *(bool *)userdata = true;
}

void fleet_submit(const char *job, int min, int max, int64_t steps)
{
    char key[2][KEY_MAX];
    bool is_done = false;
    SpecRecord spec = {.submitted_usec = 1};
    const DesiredRecord desired = {.min = min, .max = max};
    _cleanup_free_ char *file = memory_format(
        "{\"name\":\"%s\",\"kind\":\"train\",\"world\":{\"min\":%d,\"max\":%d},"
        "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
        "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/e.npy\"},"
        "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":%lld},"
        "\"checkpoint\":{\"uri\":\"file:///c/\"}}",
        job, min, max, (long long)steps);
    spec.spec = file;
    (void)snprintf(spec.submission, sizeof(spec.submission), "%016llx%016llx",
                   (unsigned long long)network_draw(UINT64_MAX),
                   (unsigned long long)network_draw(UINT64_MAX));
    _cleanup_free_ char *text = spec_record_encode(&spec, NULL);
    _cleanup_free_ char *wish = desired_record_encode(&desired, NULL);
    const EtcdOp ops[] = {
        {.kind = ETCD_PUT, .key = key_of(CLUSTER, KEY_SPECS, job, key[0]), .value = text},
        {.kind = ETCD_PUT, .key = key_of(CLUSTER, KEY_DESIRED, job, key[1]), .value = wish}};
    trainers_plan(job, steps, SAVE_STEPS);
    sd_event *previous = loop_enter(admin_loop);
    int r = etcd_txn(admin, NULL, 0, ops, ELEMENTSOF(ops), on_submitted, &is_done, NULL);
    assert(r == 0);
    (void)loop_enter(previous);
    const uint64_t until = loops_now_usec() + 10 * USEC_PER_SEC;
    while (!is_done && loops_run(until))
        ;
    assert(is_done);
}

/* ---- time ---- */

/* A controller that is over is started anew, as systemd does. */
static bool run(uint64_t until_usec)
{
    for (int i = 0; i < options.n_controllers; i++)
        if (controllers[i].loop && controllers[i].is_over) {
            fleet_kill_controller(i);
            fleet_start_controller(i);
        }
    return loops_run(until_usec);
}

bool fleet_run_until(const char *job, JobPhase phase, int64_t limit_sec)
{
    const uint64_t until = loops_now_usec() + (uint64_t)limit_sec * USEC_PER_SEC;
    const JobView *view = view_of(job);
    while (!(view->has_phase && view->phase == phase))
        if (!run(until))
            return false;
    return true;
}

bool fleet_run_until_committed(const char *job, int64_t step, int64_t limit_sec)
{
    const uint64_t until = loops_now_usec() + (uint64_t)limit_sec * USEC_PER_SEC;
    const JobView *view = view_of(job);
    while (view->committed < step)
        if (!run(until))
            return false;
    return true;
}

void fleet_run_for(int64_t sec)
{
    const uint64_t until = loops_now_usec() + (uint64_t)sec * USEC_PER_SEC;
    while (run(until))
        ;
}

int64_t fleet_generation(const char *job) { return view_of(job)->generation; }
int64_t fleet_committed(const char *job) { return view_of(job)->committed; }
uint64_t fleet_digest(void) { return digest; }

/* ---- life ---- */

void fleet_open(const FleetOptions *its)
{
    const TaskProgram program = trainers_program();
    options = *its;
    assert(options.n_controllers <= FLEET_CONTROLLERS_MAX && options.n_nodes <= FLEET_NODES_MAX);
    n_views = 0;
    digest = 0;
    loops_open(START_SEC * USEC_PER_SEC);
    trainers_open();
    (void)members_open(
        &(MembersOptions){.n_members = (size_t)options.n_members,
                          .n_machines = (size_t)(1 + options.n_controllers + options.n_nodes),
                          .seed = options.seed,
                          .on_commit = on_commit});
    admin_loop = open_process(0, &admin);
    for (int i = 0; i < options.n_nodes; i++) {
        nodes[i] = (Node){.number = i, .machine = machine_new(&program)};
        configure(&nodes[i]);
        fleet_start_daemon(i);
    }
    for (int i = 0; i < options.n_controllers; i++)
        fleet_start_controller(i);
}

void fleet_close(void)
{
    for (int i = 0; i < options.n_controllers; i++)
        fleet_kill_controller(i);
    for (int i = 0; i < options.n_nodes; i++) {
        fleet_kill_daemon(i);
        nodes[i].machine = machine_free(nodes[i].machine);
        free(nodes[i].state);
    }
    admin = etcd_free(admin);
    admin_loop = sd_event_unref(admin_loop);
    trainers_close();
    members_close();
    loops_close();
}
