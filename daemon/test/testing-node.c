/* SPDX-License-Identifier: Apache-2.0 */
/* testing-node.c - see testing-node.h. */
#include "daemon/test/testing-node.h"

#include <string.h>

TestNode n1, n2;
char submission[SUBMISSION_BYTES];

/* ---- the program around a Manager ---- */

static uint64_t memory_bytes(_unused_ void *userdata) { return 1 << 30; }

static int read_file(void *userdata, const char *path, char **ret, size_t *ret_n, Error *err)
{
    const TestNode *n = userdata;
    if (!n->file)
        return error_set(err, -ENOENT, "%s: there is none", path);
    *ret = strdup(n->file);
    *ret_n = strlen(n->file);
    return 0;
}

static int write_file(void *userdata, const char *path, const char *text, _unused_ Error *err)
{
    TestNode *n = userdata;
    assert_non_null(strstr(path, "/history.json"));
    free(n->file);
    n->file = strdup(text);
    return 0;
}

static void on_check(void *userdata, const EtcdKeyValue *request, bool clear)
{
    TestNode *n = userdata;
    assert_non_null(request->key);
    n->n_checks += !clear;
    n->n_clears += clear;
}

static void on_doctor(void *userdata, _unused_ const RequestRecord *request)
{
    TestNode *n = userdata;
    n->n_doctors++;
}

static void leave_health(void *userdata) { ((TestNode *)userdata)->n_left_health++; }
static bool is_health_written(void *userdata) { return !((TestNode *)userdata)->health_under_way; }
static void on_registered(void *userdata) { ((TestNode *)userdata)->n_registered++; }
static void on_draining(void *userdata) { ((TestNode *)userdata)->n_draining++; }
static void on_ticked(void *userdata, _unused_ uint64_t now_usec)
{
    ((TestNode *)userdata)->n_ticks++;
}
static void on_ended(void *userdata) { ((TestNode *)userdata)->n_ended++; }

static void on_failed(void *userdata, const Error *err)
{
    TestNode *n = userdata;
    n->n_failed++;
    n->failed = *err;
}

static void on_lease(void *userdata, bool renewed)
{
    TestNode *n = userdata;
    n->n_renewals += renewed;
    n->n_losses += !renewed;
}

static void on_fenced(void *userdata) { ((TestNode *)userdata)->n_fenced++; }

static void on_commit(void *userdata, _unused_ const char *job, bool committed)
{
    TestNode *n = userdata;
    n->n_committed += committed;
    n->n_refused += !committed;
}

static void on_rank(void *userdata, _unused_ const Rank *rank)
{
    ((TestNode *)userdata)->n_ranks_started++;
}

static void on_end(void *userdata, _unused_ const Rank *rank, const ExitVerdict *v)
{
    TestNode *n = userdata;
    n->n_ranks_ended++;
    n->last_end = *v;
}

static void on_step(void *userdata, _unused_ Rank *rank, const ChannelMessage *m)
{
    assert_int_equal(m->type, CHANNEL_STEP);
    ((TestNode *)userdata)->n_steps++;
}

static void on_save(void *userdata, _unused_ Rank *rank, const ChannelMessage *m)
{
    assert_int_equal(m->type, CHANNEL_SAVED);
    ((TestNode *)userdata)->n_saves++;
}

static void on_job(void *userdata, const char *job)
{
    TestNode *n = userdata;
    (void)snprintf(n->forgotten, sizeof(n->forgotten), "%s", job);
}

/* ---- start and end ---- */

static void begin(TestNode *n, const char *name, char machine, uint64_t incarnation)
{
    memset(n, 0, sizeof(*n));
    n->config = (DaemonConfig){.cluster = "lab",
                               .slots = 16,
                               .lease_sec = 10,
                               .fence_sec = 30,
                               .drain_sec = 60,
                               .hang_floor_sec = 3600,
                               .hang_factor = 10,
                               .startup_sec = 3600,
                               .save_sec = 3600,
                               .run_dir = "/run/lab",
                               .state_dir = "/state"};
    (void)snprintf(n->config.node, sizeof(n->config.node), "%s", name);
    memset(n->config.machine_id, machine, 32);
    n->incarnation = incarnation;
    n->is_probed = true;
    machine_init(&n->machine);
}

void nodes_begin(void)
{
    memory_begin();
    (void)snprintf(submission, sizeof(submission), "0123456789abcdef0123456789abcdef");
    begin(&n1, "n1", '1', 5);
    begin(&n2, "n2", '2', 6);
}

static void end(TestNode *n)
{
    n->manager = manager_free(n->manager);
    free(n->file);
    n->file = NULL;
}

void nodes_end(void)
{
    end(&n1);
    end(&n2);
    machines_end();
}

int nodes_set_up(_unused_ void **state)
{
    nodes_begin();
    submit("a");
    return 0;
}

int nodes_tear_down(_unused_ void **state)
{
    nodes_end();
    return 0;
}

void start(TestNode *n)
{
    Error err = ERROR_INIT;
    const ManagerNeeds needs = {.config = &n->config,
                                .etcd = &n->etcd,
                                .ranks = &n->machine.ranks,
                                .timers = &n->machine.timers,
                                .boot_id = "8c5a3f1e-0000-0000-0000-000000000000",
                                .is_probed = &n->is_probed,
                                .incarnation = n->incarnation,
                                .userdata = n,
                                .memory_bytes = memory_bytes,
                                .read_file = read_file,
                                .write_file = write_file,
                                .check = on_check,
                                .doctor = on_doctor,
                                .leave_health = leave_health,
                                .is_health_written = is_health_written};
    const ManagerEvents events = {.userdata = n,
                                  .registered = on_registered,
                                  .draining = on_draining,
                                  .ticked = on_ticked,
                                  .ended = on_ended,
                                  .failed = on_failed,
                                  .lease_changed = on_lease,
                                  .fenced = on_fenced,
                                  .commit_decided = on_commit,
                                  .rank_started = on_rank,
                                  .rank_ended = on_end,
                                  .rank_stepped = on_step,
                                  .rank_saved = on_save,
                                  .job_forgotten = on_job};
    n->manager = manager_new(&needs, &events);
    if (manager_start(n->manager, &err) < 0)
        fail_msg("%s", err.text);
}

void join(TestNode *n)
{
    start(n);
    settle();
    grant(&n->etcd);
    settle();
    assert_int_equal(n->n_registered, 1);
}

void show_kind(const Etcd *etcd, KeyKind kind)
{
    char prefix[KEY_MAX];
    (void)key_prefix("lab", (int)kind, prefix);
    while (show_one(etcd, prefix))
        ;
}

void restart(TestNode *n, uint64_t incarnation)
{
    n->manager = manager_free(n->manager);
    machine_init(&n->machine);
    n->n_registered = 0;
    n->incarnation = incarnation;
    start(n);
}

/* ---- the leader's records ---- */

static int64_t put_record(KeyKind kind, const char *name, char *text)
{
    char key[KEY_MAX];
    int64_t at = put(key_of("lab", kind, name, key), text, 0);
    free(text);
    return at;
}

void submit(const char *job)
{
    SpecRecord spec = {.spec = (char *)"{}"};
    memcpy(spec.submission, submission, sizeof(submission));
    (void)put_record(KEY_SPECS, job, spec_record_encode(&spec, NULL));
}

int64_t decide(const char *job, int64_t generation, uint64_t slots1, uint64_t slots2)
{
    WorldRun runs[2];
    size_t n = 0;
    if (slots1)
        runs[n++] = (WorldRun){.node = "n1", .incarnation = n1.incarnation, .slots = slots1};
    if (slots2)
        runs[n++] = (WorldRun){.node = "n2", .incarnation = n2.incarnation, .slots = slots2};
    WorldRecord world = {.generation = generation,
                         .size = __builtin_popcountll(slots1) + __builtin_popcountll(slots2),
                         .runs = runs,
                         .n_runs = n};
    memcpy(world.submission, submission, sizeof(submission));
    return put_record(KEY_WORLDS, job, world_record_encode(&world, NULL));
}

void set_phase(const char *job, PhaseRecord phase)
{
    memcpy(phase.submission, submission, sizeof(submission));
    (void)put_record(KEY_PHASES, job, phase_record_encode(&phase, NULL));
}

void let_go(const char *job, int64_t generation)
{
    set_phase(job, (PhaseRecord){.phase = PHASE_RUNNING, .generation = generation, .go = true});
}

void set_rendezvous(const char *job, int64_t generation, const char *address)
{
    char key[KEY_MAX];
    RendezvousRecord record;
    (void)snprintf(record.address, sizeof(record.address), "%s", address);
    _cleanup_free_ char *text = rendezvous_record_encode(&record, NULL);
    (void)put(key_rendezvous("lab", job, generation, key), text, 0);
}

void remove_job(const char *job)
{
    char key[KEY_MAX];
    (void)delete_key(key_of("lab", KEY_WORLDS, job, key));
    (void)delete_key(key_of("lab", KEY_PHASES, job, key));
}

static void all_say(TestNode *n, uint64_t slots, ChannelType type)
{
    for (int slot = 0; slot < RECORD_SLOTS_MAX; slot++)
        if (slots >> slot & 1)
            says(&n->machine, slot, type, 0);
}

void run_world(const char *job, int64_t generation, uint64_t slots1, uint64_t slots2)
{
    (void)decide(job, generation, slots1, slots2);
    settle();
    all_say(&n1, slots1, CHANNEL_HELLO);
    all_say(&n2, slots2, CHANNEL_HELLO);
    settle();
    if (slots1)
        says(&n1.machine, __builtin_ctzll(slots1), CHANNEL_RENDEZVOUS, 0);
    else
        says(&n2.machine, __builtin_ctzll(slots2), CHANNEL_RENDEZVOUS, 0);
    all_say(&n1, slots1, CHANNEL_READY);
    all_say(&n2, slots2, CHANNEL_READY);
    settle();
    let_go(job, generation);
    settle();
    for (int slot = 0; slot < RECORD_SLOTS_MAX; slot++) {
        if (slots1 >> slot & 1)
            assert_int_equal(n1.machine.trainers[slot].n_told[CHANNEL_GO], 1);
        if (slots2 >> slot & 1)
            assert_int_equal(n2.machine.trainers[slot].n_told[CHANNEL_GO], 1);
    }
}

void make_ready(const char *job, int64_t generation, int slot)
{
    (void)decide(job, generation, UINT64_C(1) << slot, 0);
    settle();
    says(&n1.machine, slot, CHANNEL_HELLO, 0);
    says(&n1.machine, slot, CHANNEL_READY, 0);
    settle();
    assert_int_equal(state_of(&n1, job, generation, 0), RANK_READY);
}

/* ---- records of the nodes ---- */

int64_t put_node(const TestNode *n, const char *machine_id, uint64_t incarnation, int64_t lease)
{
    char key[KEY_MAX];
    NodeRecord record = {.incarnation = incarnation, .n_slots = 1, .verdict = NODE_ISOLATE};
    (void)snprintf(record.name, sizeof(record.name), "%s", n->config.node);
    (void)snprintf(record.machine_id, sizeof(record.machine_id), "%s", machine_id);
    _cleanup_free_ char *text = node_record_encode(&record, NULL);
    return put(key_of("lab", KEY_NODES, n->config.node, key), text, lease);
}

static const StoredKey *find_node(const TestNode *n)
{
    char key[KEY_MAX];
    return find(key_of("lab", KEY_NODES, n->config.node, key));
}

bool has_node_key(const TestNode *n) { return find_node(n) != NULL; }

const StoredKey *node_key(const TestNode *n)
{
    const StoredKey *k = find_node(n);
    assert_non_null(k);
    return k;
}

NodeRecord node_record(const TestNode *n)
{
    const StoredKey *k = node_key(n);
    NodeRecord record;
    Error err = ERROR_INIT;
    if (node_record_decode(k->key, k->value, strlen(k->value), &record, &err) < 0)
        fail_msg("%s", err.text);
    return record;
}

const StoredKey *report_key(const TestNode *n, const char *job, int64_t generation)
{
    char key[KEY_MAX];
    return find(key_ranks("lab", job, generation, n->config.node, key));
}

RanksRecord report_of(const TestNode *n, const char *job, int64_t generation)
{
    const StoredKey *k = report_key(n, job, generation);
    RanksRecord record;
    Error err = ERROR_INIT;
    assert_non_null(k);
    if (ranks_record_decode(k->key, k->value, strlen(k->value), &record, &err) < 0)
        fail_msg("%s", err.text);
    return record;
}

RankState state_of(const TestNode *n, const char *job, int64_t generation, size_t i)
{
    RanksRecord record = report_of(n, job, generation);
    assert_true(i < record.n_ranks);
    RankState state = record.ranks[i].state;
    ranks_record_clear(&record);
    return state;
}

uint64_t killed_of(const TestNode *n, const char *job, int64_t generation)
{
    RanksRecord record = report_of(n, job, generation);
    uint64_t killed_usec = record.killed_usec;
    ranks_record_clear(&record);
    return killed_usec;
}

/* ---- messages to trainers ---- */

void assert_killed(TestNode *n, int slot, bool killed)
{
    assert_non_null(trainer_in(&n->machine, slot)->process);
    assert_int_equal(trainer_in(&n->machine, slot)->killed, killed);
}

int told(TestNode *n, int slot, ChannelType type)
{
    return trainer_in(&n->machine, slot)->n_told[type];
}
