/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.c - see fleet.h. */
#include "tests/sim/fleet/fleet-internal.h"

#include "base/memory.h"
#include "base/number/philox.h"
#include "cluster/cordon.h"
#include "cluster/keys.h"
#include "daemon/node/drain.h"
#include "daemon/node/manager.h"
#include "tests/sim/fleet/checks.h"
#include "tests/sim/fleet/copies.h"
#include "tests/sim/fleet/members.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { START_SEC = 1000000 };

typedef struct Controller {
    int number;
    sd_event *loop; /* NULL: the controller does not run */
    int64_t real_offset_usec;
    Etcd *etcd;
    Leader *leader;
    bool is_over;        /* the process is to be restarted */
    uint64_t again_usec; /* delay of the restart */
    Timer start;
} Controller;

typedef struct Node {
    int number, n_machines; /* n_machines: the number of earlier machines with this name */
    Machine *machine;
    uint64_t incarnation;
    char *state; /* text of the daemon's history.json; NULL: there is no file */
    sd_event *loop;
    int64_t real_offset_usec;
    Timers timers;
    Etcd *etcd;
    DaemonConfig config;
    CgroupBase cgroups;
    RankNeeds ranks;
    Manager *manager;
    NodeVerdict verdict;
    bool is_frozen;
    uint64_t thawed_usec; /* when the daemon was last thawed or started */
    SlotGpus gpus;
    bool is_over;
    uint64_t again_usec;
    Timer start;
} Node;

static FleetOptions options;
static bool somebody_is_over; /* at least one process is to be restarted */
static Controller controllers[FLEET_CONTROLLERS_MAX];
static Node nodes[FLEET_NODES_MAX];
static sd_event *world;
static Timers world_timers;
static Server *server;

void fleet_say(const char *format, ...)
{
    va_list ap;
    if (!options.talks)
        return;
    printf("%10.4f ", (double)(loops_now_usec() - START_SEC * USEC_PER_SEC) / 1e6);
    va_start(ap, format);
    (void)vprintf(format, ap); /* output for people */
    va_end(ap);
    (void)putchar('\n');
}

/* Prints each record that is written. */
static void say_records(int64_t revision, const ServerChange *changes, size_t n)
{
    for (size_t i = 0; options.says_records && i < n; i++)
        fleet_say("%lld %s %s", (long long)revision, changes[i].key,
                  changes[i].value ? changes[i].value : "-");
}

static void on_commit(int64_t revision, const ServerChange *changes, size_t n,
                      _unused_ void *userdata)
{
    say_records(revision, changes, n);
    books_note(revision, changes, n);
    copies_note(revision, changes, n);
}

/* Opens the loop of a process on the machine, with a client of etcd. The caller must not be inside a loop. */
sd_event *fleet_open_process(size_t machine, int64_t real_offset_usec, Etcd **ret)
{
    sd_event *loop;
    Error err = ERROR_INIT;
    const EtcdOptions its = {.endpoints = members_endpoints()};
    int r = sd_event_new(&loop);
    assert(r >= 0);
    loop_set_machine(loop, machine);
    loop_set_realtime_offset(loop, real_offset_usec);
    sd_event *previous = loop_enter(loop);
    r = etcd_new(loop, &its, ret, &err);
    assert(r == 0);
    (void)loop_enter(previous);
    return loop;
}

/* ---- controllers ---- */

static void on_nothing(_unused_ void *userdata) {}
static void on_record(void *userdata, const Event *event)
{
    checks_controller_reads(((const Controller *)userdata)->number, event);
}
static void on_results(_unused_ void *userdata, _unused_ const char *rest,
                       _unused_ const char *value, _unused_ size_t n)
{
}
static void on_observed(void *userdata, const Event *event)
{
    const Controller *c = userdata;
    if (c->leader)
        checks_controller_stepped(c->number, event, leader_view(c->leader).cluster);
}
static void on_answer(_unused_ void *userdata, _unused_ const Decision *decision,
                      _unused_ Outcome outcome, _unused_ uint64_t begun_usec,
                      _unused_ int64_t revision)
{
}
static void on_shown(_unused_ void *userdata, _unused_ int64_t revision) {}
static void on_leads(void *userdata)
{
    checks_controller_leads(((const Controller *)userdata)->number);
    fleet_say("c%d: leads", ((const Controller *)userdata)->number);
}
static void on_leader_over(void *userdata, _unused_ int r)
{
    ((Controller *)userdata)->is_over = somebody_is_over = true;
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
    timer_stop(&c->start);
    c->is_over = false;
    c->loop = fleet_open_process(fleet_machine(false, number), c->real_offset_usec, &c->etcd);
    checks_controller_starts(number);
    fleet_say("c%d: starts", number);
    LeaderSettings settings = {.cluster = CLUSTER,
                               .lease_sec = options.lease_sec,
                               .core = options.core,
                               .limits = options.limits,
                               .introduction = {.max_nodes = options.n_nodes + 4,
                                                .max_jobs = FLEET_JOBS_MAX}};
    (void)snprintf(settings.introduction.name, sizeof(settings.introduction.name), "c%d", number);
    const LeaderNeeds needs = {.event = c->loop, .etcd = c->etcd, .draw = draw};
    const LeaderEvents events = {.userdata = c,
                                 .loaded = on_nothing,
                                 .view_changed = on_nothing,
                                 .leads = on_leads,
                                 .record_read = on_record,
                                 .results_read = on_results,
                                 .observed = on_observed,
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
    timer_stop(&c->start);
    if (!c->loop)
        return;
    fleet_say("c%d: ends", number);
    loop_kill(c->loop); /* kills the loop first, so that the freed objects send nothing more */
    sd_event *previous = loop_enter(c->loop);
    c->leader = leader_free(c->leader);
    c->etcd = etcd_free(c->etcd);
    (void)loop_enter(previous);
    c->loop = sd_event_unref(c->loop);
}

static void on_start_controller(void *userdata)
{
    fleet_start_controller(((const Controller *)userdata)->number);
}

void fleet_restart_controller(int number, uint64_t after_usec)
{
    Controller *c = &controllers[number];
    fleet_kill_controller(number);
    timer_start(&world_timers, &c->start, after_usec, on_start_controller, c);
}

void fleet_leave_controller(int number, uint64_t after_usec)
{
    Controller *c = &controllers[number];
    if (!c->loop || c->is_over)
        return;
    fleet_say("c%d: is told to stop", number);
    c->again_usec = after_usec;
    sd_event *previous = loop_enter(c->loop);
    leader_leave(c->leader);
    (void)loop_enter(previous);
}

void fleet_freeze_controller(int number, bool frozen)
{
    if (controllers[number].loop)
        loop_freeze(controllers[number].loop, frozen);
}

bool fleet_holds(void)
{
    for (int i = 0; i < options.n_controllers; i++)
        if (controllers[i].loop &&
            cluster_hold_until(leader_view(controllers[i].leader).cluster) > loops_now_usec())
            return true;
    return false;
}

int fleet_leader(void)
{
    for (int i = 0; i < options.n_controllers; i++)
        if (controllers[i].loop && leader_view(controllers[i].leader).term != 0)
            return i;
    return -1;
}

Leader *fleet_leader_of(int number, sd_event **ret_loop)
{
    *ret_loop = controllers[number].loop;
    return controllers[number].leader;
}

/* ---- nodes ---- */

static uint64_t query_memory(_unused_ void *userdata) { return UINT64_C(64) << 30; }

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

static bool is_health_written(_unused_ void *userdata) { return true; }
static void on_ticked(_unused_ void *userdata, _unused_ uint64_t now_usec) {}
static void on_over(void *userdata) { ((Node *)userdata)->is_over = somebody_is_over = true; }
static void on_daemon_failed(void *userdata, const Error *err)
{
    fleet_say("n%d: fails: %s", ((const Node *)userdata)->number, err->text);
    on_over(userdata);
}
static void on_no_timer(_unused_ void *userdata, const Error *err)
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

static void on_answered(_unused_ int r, _unused_ const Error *err,
                        _unused_ const EtcdTxnResult *result, _unused_ void *userdata)
{
}

/* Answers a check request as the health probes would, with the node's last verdict. */
static void on_check(void *userdata, const EtcdKeyValue *request, _unused_ bool clear)
{
    const Node *n = userdata;
    RequestRecord record;
    if (request_record_decode(request->key, request->value, request->n_value, &record, NULL) < 0)
        return;
    (void)snprintf(record.answer, sizeof(record.answer), "%s%s", node_verdict_names[n->verdict],
                   n->verdict == NODE_HEALTHY ? "" : ": a probe");
    _cleanup_free_ char *text = request_record_encode(&record, request->value);
    const EtcdCompare guard = {request->key, ETCD_MOD_REVISION, request->mod_revision};
    const EtcdOp op = {.kind = ETCD_PUT, .key = request->key, .value = text};
    fleet_say("n%d: is %s, when asked", n->number, record.answer);
    int r = etcd_txn(n->etcd, &guard, 1, &op, 1, on_answered, NULL, NULL);
    assert(r == 0);
}

static void on_doctor(_unused_ void *userdata, _unused_ const RequestRecord *request) {}

/* Returns the number of GPUs. The number is drawn anew for each machine that gets the node's name. */
static int draw_gpus(const Node *n)
{
    if (!options.gpu_key)
        return 0;
    const Philox block = philox4x32(options.gpu_key, (uint64_t)n->number, (uint64_t)n->n_machines);
    return (int)(block.word[0] % (uint32_t)(options.n_slots + 1));
}

static void set_gpus(Node *n, int n_gpus)
{
    n->gpus = (SlotGpus){.n = n_gpus};
    for (int i = 0; i < n_gpus; i++)
        (void)snprintf(n->gpus.pci[i], sizeof(n->gpus.pci[i]), "0000:%02x:00", i);
}

static void note_health(Node *n)
{
    node_note_health(&n->manager->node, n->verdict, 0, n->verdict == NODE_HEALTHY ? "" : "a probe",
                     &n->gpus);
}

static void configure(Node *n)
{
    set_gpus(n, draw_gpus(n));
    n->config = (DaemonConfig){.cluster = CLUSTER,
                               .address = "10.0.0.1",
                               .slots = options.n_slots,
                               .lease_sec = options.lease_sec,
                               .fence_sec = options.fence_sec,
                               .drain_sec = options.drain_sec,
                               .hang_floor_sec = options.hang_floor_sec,
                               .hang_factor = 10,
                               .startup_sec = options.startup_sec,
                               .save_sec = options.save_sec,
                               .trainer = "/sdtrainer",
                               .runner = "/sdtrain-exec",
                               .allow_exec = true,
                               .run_dir = "/run/lab",
                               .state_dir = "/state"};
    (void)snprintf(n->config.node, sizeof(n->config.node), "n%d", n->number);
    (void)snprintf(n->config.machine_id, sizeof(n->config.machine_id), "%016x%016x",
                   (unsigned)n->number + 1, (unsigned)n->n_machines);
}

void fleet_start_daemon(int number)
{
    static const bool is_probed = true;
    static const int trainer = -1;
    static char *environment[] = {NULL};
    Node *n = &nodes[number];
    Error err = ERROR_INIT;
    assert(!n->loop);
    timer_stop(&n->start);
    n->is_over = n->is_frozen = false;
    n->thawed_usec = loops_now_usec();
    n->loop = fleet_open_process(fleet_machine(true, number), n->real_offset_usec, &n->etcd);
    fleet_say("n%d: sdtraind starts", number);
    machine_open(n->machine, n->loop);
    n->timers = (Timers){.event = n->loop, .failed = on_no_timer, .userdata = n};
    n->incarnation =
        MAX(n->incarnation + 1, (uint64_t)((int64_t)loops_now_usec() + n->real_offset_usec));
    n->ranks = (RankNeeds){.process = {.event = n->loop, .cgroups = &n->cgroups},
                           .environment = environment,
                           .trainer = &trainer,
                           .runner = &trainer,
                           .is_other_child = is_other_child};
    const ManagerNeeds needs = {.config = &n->config,
                                .timers = &n->timers,
                                .etcd = n->etcd,
                                .ranks = &n->ranks,
                                .boot_id = "8c5a3f1e-0000-0000-0000-000000000000",
                                .is_probed = &is_probed,
                                .incarnation = n->incarnation,
                                .userdata = n,
                                .memory_bytes = query_memory,
                                .read_file = read_file,
                                .write_file = write_file,
                                .check = on_check,
                                .doctor = on_doctor,
                                .leave_health = on_nothing,
                                .is_health_written = is_health_written};
    const ManagerEvents events = {.userdata = n,
                                  .registered = on_nothing,
                                  .draining = on_nothing,
                                  .ticked = on_ticked,
                                  .ended = on_over,
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
    if (n->verdict != NODE_HEALTHY || n->gpus.n)
        note_health(n);
    (void)loop_enter(previous);
}

void fleet_kill_daemon(int number)
{
    Node *n = &nodes[number];
    timer_stop(&n->start);
    if (!n->loop)
        return;
    fleet_say("n%d: sdtraind ends", number);
    loop_kill(n->loop);
    sd_event *previous = loop_enter(n->loop);
    n->manager = manager_free(n->manager);
    n->etcd = etcd_free(n->etcd);
    (void)loop_enter(previous);
    machine_close(n->machine);
    n->loop = sd_event_unref(n->loop);
}

static void on_start_daemon(void *userdata)
{
    fleet_start_daemon(((const Node *)userdata)->number);
}

const char *fleet_node_name(int node) { return nodes[node].config.node; }
bool fleet_runs(int node) { return nodes[node].loop != NULL; }

void fleet_restart_daemon(int number, uint64_t after_usec)
{
    Node *n = &nodes[number];
    fleet_kill_daemon(number);
    timer_start(&world_timers, &n->start, after_usec, on_start_daemon, n);
}

void fleet_drain(int number, uint64_t after_usec)
{
    Node *n = &nodes[number];
    if (!n->loop || n->is_over)
        return;
    fleet_say("n%d: is told to stop", number);
    n->again_usec = after_usec;
    sd_event *previous = loop_enter(n->loop);
    drain_signal(n->manager, "SIGTERM");
    (void)loop_enter(previous);
}

void fleet_replace(int number, uint64_t after_usec)
{
    Node *n = &nodes[number];
    fleet_kill_daemon(number);
    fleet_say("n%d: another machine gets its name", number);
    n->n_machines++;
    n->verdict = NODE_HEALTHY;
    free(n->state);
    n->state = NULL;
    configure(n);
    timer_start(&world_timers, &n->start, after_usec, on_start_daemon, n);
}

void fleet_freeze_daemon(int number, bool frozen, bool whole)
{
    nodes[number].is_frozen = frozen && nodes[number].loop;
    if (!nodes[number].is_frozen)
        nodes[number].thawed_usec = loops_now_usec();
    if (whole || !frozen)
        trainers_freeze(number, frozen);
    if (nodes[number].loop)
        loop_freeze(nodes[number].loop, frozen);
}

/* Checks that a running daemon that has received nothing for fence_sec has killed its ranks. */
void fleet_check_fence(int number)
{
    const Node *n = &nodes[number];
    const uint64_t slack = 2 * USEC_PER_SEC,
                   heard = MAX(network_heard_usec(fleet_machine(true, number)), n->thawed_usec);
    if (n->loop && !n->is_frozen && loops_now_usec() > n->thawed_usec + slack &&
        loops_now_usec() > heard + (uint64_t)options.fence_sec * USEC_PER_SEC + slack)
        books_break("fence", "n%d trains on and has heard nothing for %.1f s", number,
                    (double)(loops_now_usec() - heard) / 1e6);
}

void fleet_judge(int number, NodeVerdict verdict)
{
    Node *n = &nodes[number];
    n->verdict = verdict;
    if (!n->loop)
        return;
    sd_event *previous = loop_enter(n->loop);
    note_health(n);
    (void)loop_enter(previous);
}

int fleet_gpus(int node) { return nodes[node].gpus.n; }

void fleet_fill_gpus(int number)
{
    Node *n = &nodes[number];
    if (!options.gpu_key)
        return;
    set_gpus(n, options.n_slots);
    fleet_judge(number, n->verdict);
}

void fleet_step_clock(bool of_node, int number, int64_t by_usec)
{
    int64_t *offset =
        of_node ? &nodes[number].real_offset_usec : &controllers[number].real_offset_usec;
    sd_event *loop = of_node ? nodes[number].loop : controllers[number].loop;
    *offset += by_usec;
    if (!of_node)
        checks_clock_steps();
    if (loop)
        loop_set_realtime_offset(loop, *offset);
}

/* ---- the network ---- */

size_t fleet_machine(bool of_node, int number)
{
    return (size_t)(1 + (of_node ? options.n_controllers : 0) + number);
}

void fleet_cut(size_t machine, bool up, bool down)
{
    for (size_t i = 0; i < (size_t)options.n_members; i++) {
        network_cut(machine, i, NETWORK_TO_MEMBER, up);
        network_cut(machine, i, NETWORK_TO_CLIENT, down);
    }
}

void fleet_clog(size_t machine, uint64_t extra_usec)
{
    for (size_t i = 0; i < (size_t)options.n_members; i++)
        network_clog(machine, i, extra_usec);
}

void fleet_reset(size_t machine)
{
    for (size_t i = 0; i < (size_t)options.n_members; i++)
        network_reset(machine, i);
}

Server *fleet_server(void) { return server; }

/* ---- time ---- */

/* Restarts the processes that have ended, as systemd does. */
static void restart_what_is_over(void)
{
    somebody_is_over = false;
    for (int i = 0; i < options.n_controllers; i++)
        if (controllers[i].loop && controllers[i].is_over)
            fleet_restart_controller(i, controllers[i].again_usec);
    for (int i = 0; i < options.n_nodes; i++)
        if (nodes[i].loop && nodes[i].is_over)
            fleet_restart_daemon(i, nodes[i].again_usec);
}

static bool run(uint64_t until_usec)
{
    if (somebody_is_over)
        restart_what_is_over();
    return !books_broken() && loops_run(until_usec);
}

bool fleet_run_until(const char *job, JobPhase phase, int64_t limit_sec)
{
    const uint64_t until = loops_now_usec() + (uint64_t)limit_sec * USEC_PER_SEC;
    const JobBooks *books = books_job(job);
    while (!(books->has_phase && books->phase.phase == phase))
        if (!run(until))
            return false;
    return true;
}

bool fleet_run_until_committed(const char *job, int64_t step, int64_t limit_sec)
{
    const uint64_t until = loops_now_usec() + (uint64_t)limit_sec * USEC_PER_SEC;
    const JobBooks *books = books_job(job);
    while (books->committed < step)
        if (!run(until))
            return false;
    return true;
}

void fleet_run(uint64_t until_usec)
{
    while (run(until_usec))
        ;
}

void fleet_run_for(int64_t sec) { fleet_run(loops_now_usec() + (uint64_t)sec * USEC_PER_SEC); }

int64_t fleet_generation(const char *job) { return books_job(job)->generation; }
int64_t fleet_committed(const char *job) { return books_job(job)->committed; }
uint64_t fleet_digest(void) { return books_digest(); }

/* ---- open and close ---- */

static void set_defaults(FleetOptions *o)
{
    o->lease_sec = o->lease_sec ? o->lease_sec : 10;
    o->fence_sec = o->fence_sec ? o->fence_sec : 60;
    o->drain_sec = o->drain_sec ? o->drain_sec : 60;
    o->hang_floor_sec = o->hang_floor_sec > 0 ? o->hang_floor_sec : 60;
    o->startup_sec = o->startup_sec > 0 ? o->startup_sec : 300;
    o->save_sec = o->save_sec > 0 ? o->save_sec : 300;
    if (o->core.ttl_usec == 0)
        o->core = cluster_config_default;
    if (o->limits.nodes == 0)
        o->limits = (ClusterLimits){.nodes = o->n_nodes + 4,
                                    .jobs = FLEET_JOBS_MAX,
                                    .reports = 4 * o->n_nodes + 32,
                                    .incidents = o->core.incidents_kept + 64 + o->n_nodes,
                                    .requests = 32};
}

void fleet_open(const FleetOptions *its)
{
    options = *its;
    set_defaults(&options);
    assert(options.n_controllers <= FLEET_CONTROLLERS_MAX && options.n_nodes <= FLEET_NODES_MAX);
    loops_open(START_SEC * USEC_PER_SEC);
    books_open(CLUSTER);
    checks_open(&(ChecksOptions){.n_controllers = options.n_controllers,
                                 .n_nodes = options.n_nodes,
                                 .core = options.core,
                                 .has_small_tables = its->limits.nodes > 0});
    copies_open(CLUSTER);
    int r = sd_event_new(&world);
    assert(r >= 0);
    world_timers = (Timers){.event = world, .failed = on_no_timer};
    trainers_open(options.n_nodes, options.core.grace_usec, options.core.ttl_usec);
    server = members_open(
        &(MembersOptions){.n_members = (size_t)options.n_members,
                          .n_machines = (size_t)(1 + options.n_controllers + options.n_nodes),
                          .seed = options.seed,
                          .on_commit = on_commit});
    people_open();
    for (int i = 0; i < options.n_nodes; i++) {
        const TaskProgram program = trainers_program(i);
        nodes[i] = (Node){.number = i,
                          .machine = machine_new(&program),
                          .again_usec = 500 * USEC_PER_MSEC};
        configure(&nodes[i]);
        fleet_start_daemon(i);
    }
    for (int i = 0; i < options.n_controllers; i++) {
        controllers[i] = (Controller){.number = i, .again_usec = 500 * USEC_PER_MSEC};
        fleet_start_controller(i);
    }
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
    people_close();
    trainers_close();
    members_close();
    world = sd_event_unref(world);
    copies_close();
    books_close();
    checks_close();
    loops_close();
}
