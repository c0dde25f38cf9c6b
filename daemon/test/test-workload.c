/* SPDX-License-Identifier: Apache-2.0 */
/* test-workload.c - daemon/world runs without a process around it: here etcd is a list of keys, time stands still
 * until the test moves it, and a trainer is a struct that does what the test says. So it may also run in a simulator.
 *
 * The functions below replace etcd.h, timer.h, clock.h, process.h and logs.h when this program is linked. */
#include "base/clock.h"
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "daemon/world/local-world.h"
#include "daemon/world/rank.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { KEYS_MAX = 16, CALLS_MAX = 32, TIMERS_MAX = 16, LEASE = 77, INCARNATION = 5 };

static Workload w;

/* ---- a clock that the test moves ---- */

static uint64_t now_usec = 1000 * USEC_PER_SEC;

uint64_t clock_boottime_usec(void) { return now_usec; }
uint64_t clock_realtime_usec(void) { return now_usec; }
uint64_t clock_monotonic_usec(void) { return now_usec; }

static struct {
    Timer *timer;
    uint64_t due_usec;
} timers[TIMERS_MAX];

void timer_stop(Timer *timer)
{
    for (size_t i = 0; i < TIMERS_MAX; i++)
        if (timers[i].timer == timer)
            timers[i].timer = NULL;
    timer->source = NULL;
}

void timer_start(_unused_ const Timers *loop, Timer *timer, uint64_t after_usec, TimerDue due,
                 void *userdata)
{
    size_t i = 0;
    timer_stop(timer);
    while (i < TIMERS_MAX && timers[i].timer)
        i++;
    assert_true(i < TIMERS_MAX);
    *timer = (Timer){.source = (sd_event_source *)timer, .due = due, .userdata = userdata};
    timers[i].timer = timer;
    timers[i].due_usec = now_usec + after_usec;
}

static void pass(uint64_t usec)
{
    now_usec += usec;
    for (size_t i = 0; i < TIMERS_MAX; i++) {
        Timer *timer = timers[i].timer;
        if (!timer || timers[i].due_usec > now_usec)
            continue;
        timer_stop(timer);
        timer->due(timer->userdata);
    }
}

/* ---- an etcd that answers when the test says so ---- */

static struct {
    char key[KEY_MAX], *value; /* value NULL: free place */
    int64_t revision, lease;
} store[KEYS_MAX];
static int64_t revision = 100;

struct EtcdCall {
    char key[KEY_MAX];     /* of a get */
    EtcdRangeHandler read; /* NULL: a transaction */
    EtcdTxnHandler written;
    void *userdata;
    struct {
        char key[KEY_MAX];
        int64_t equals;
    } guards[2];
    size_t n_guards, n_ops;
    EtcdOp ops[2]; /* keys and values are copies */
};

static EtcdCall *calls[CALLS_MAX];
static size_t n_calls;

static size_t find(const char *key)
{
    size_t i = 0;
    while (i < KEYS_MAX && !(store[i].value && strcmp(store[i].key, key) == 0))
        i++;
    return i;
}

static int64_t put(const char *key, const char *value, int64_t lease)
{
    size_t i = find(key);
    for (size_t k = 0; i == KEYS_MAX && k < KEYS_MAX; k++)
        if (!store[k].value)
            i = k;
    assert_true(i < KEYS_MAX);
    free(store[i].value);
    (void)snprintf(store[i].key, sizeof(store[i].key), "%s", key);
    store[i].value = strdup(value);
    store[i].revision = ++revision;
    store[i].lease = lease;
    return revision;
}

static EtcdKeyValue kv_of(size_t i)
{
    return (EtcdKeyValue){.key = store[i].key,
                          .value = store[i].value,
                          .n_value = strlen(store[i].value),
                          .mod_revision = store[i].revision,
                          .lease = store[i].lease};
}

static EtcdCall *add_call(void *userdata, EtcdCall **home)
{
    EtcdCall *call = calloc(1, sizeof(*call));
    assert_true(call && n_calls < CALLS_MAX);
    call->userdata = userdata;
    *home = calls[n_calls++] = call;
    return call;
}

int etcd_get(_unused_ Etcd *etcd, const char *key, _unused_ bool prefix, EtcdRangeHandler handler,
             void *userdata, EtcdCall **ret)
{
    EtcdCall *call = add_call(userdata, ret);
    (void)snprintf(call->key, sizeof(call->key), "%s", key);
    call->read = handler;
    return 0;
}

int etcd_txn(_unused_ Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
             size_t n_ops, EtcdTxnHandler handler, void *userdata, EtcdCall **ret)
{
    EtcdCall *call = add_call(userdata, ret);
    assert_true(n_compares <= 2 && n_ops <= 2);
    call->written = handler;
    for (size_t i = 0; i < n_compares; i++) {
        (void)snprintf(call->guards[i].key, KEY_MAX, "%s", compares[i].key);
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

EtcdCall *etcd_call_free(EtcdCall *call)
{
    for (size_t i = 0; call && i < n_calls; i++)
        if (calls[i] == call) {
            memmove(&calls[i], &calls[i + 1], sizeof(calls[0]) * (--n_calls - i));
            end_call(call);
            break;
        }
    return NULL;
}

int64_t etcd_lease_id(_unused_ const EtcdLease *lease) { return LEASE; }
int64_t etcd_lease_ttl_sec(_unused_ const EtcdLease *lease) { return 10; }

static void answer_get(EtcdCall *call)
{
    size_t i = find(call->key);
    EtcdKeyValue kv = i < KEYS_MAX ? kv_of(i) : (EtcdKeyValue){0};
    EtcdRange range = {.kvs = &kv, .n_kvs = i < KEYS_MAX, .revision = revision};
    call->read(0, NULL, &range, call->userdata);
}

static void answer_txn(EtcdCall *call)
{
    EtcdKeyValue kvs[2];
    EtcdTxnResult result = {.succeeded = true, .kvs = kvs};
    for (size_t i = 0; i < call->n_guards; i++) {
        size_t at = find(call->guards[i].key);
        int64_t is = at < KEYS_MAX ? store[at].revision : 0;
        result.succeeded = result.succeeded && is == call->guards[i].equals;
    }
    for (size_t i = 0; result.succeeded && i < call->n_ops; i++) {
        const EtcdOp *op = &call->ops[i];
        if (op->kind == ETCD_PUT)
            result.revision = put(op->key, op->value, op->lease);
        else if (find(op->key) < KEYS_MAX)
            kvs[result.n_kvs++] = kv_of(find(op->key));
    }
    call->written(0, NULL, &result, call->userdata);
}

/* Answers what was asked, and what is asked then. */
static void answer_all(void)
{
    while (n_calls > 0) {
        EtcdCall *call = calls[0];
        memmove(&calls[0], &calls[1], sizeof(calls[0]) * --n_calls);
        if (call->read)
            answer_get(call);
        else
            answer_txn(call);
        end_call(call);
    }
}

/* ---- trainers that do what the test says ---- */

typedef struct FakeTrainer {
    Process *process; /* NULL: none was started in this slot, or its rank is gone */
    int far;          /* the trainer's end of the channel */
    bool killed;      /* it got SIGKILL */
    int status;       /* of its end: exit code, or -signal; ENDS_NOT: it lives */
    bool leaves;      /* something that it started lives on */
    ChannelType told; /* the last message to it, but for `alive` */
    char gpu[24];     /* as the last `assign` said */
} FakeTrainer;

enum { ENDS_NOT = -1000 };

static int n_started;
static FakeTrainer trainers[RECORD_SLOTS_MAX]; /* by slot */

static bool has(char *const *environment, const char *variable)
{
    for (; *environment; environment++)
        if (strcmp(*environment, variable) == 0)
            return true;
    return false;
}

int process_start(const ProcessNeeds *needs, int slot, const ProcessProgram *program, Process *ret,
                  _unused_ Error *err)
{
    int pair[2];
    assert_null(trainers[slot].process); /* the slot is clear */
    assert_string_equal(program->argv[1], "run");
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
                     0);
    *ret = (Process){.needs = needs, .slot = slot, .pid = 1000 + ++n_started, .channel = pair[0]};
    assert_true(has(program->environment, "LANG=C") && has(program->environment, "SDTRAIN_LOG=x"));
    assert_true(has(program->environment, slot ? "SDTRAIN_SLOT=1" : "SDTRAIN_SLOT=0"));
    assert_false(has(program->environment, "SDTRAIN_FAULT=x"));
    trainers[slot] = (FakeTrainer){.process = ret, .far = pair[1], .status = ENDS_NOT};
    return 0;
}

int process_watch(Process *p, const ProcessEvents *events)
{
    p->events = *events;
    return 0;
}

void process_deafen(_unused_ Process *p) {}
void process_kill(const Process *p) { trainers[p->slot].killed = true; }

bool process_reap(Process *p, siginfo_t *ret)
{
    const int status = trainers[p->slot].status;
    if (p->exited || status == ENDS_NOT)
        return false;
    *ret = (siginfo_t){.si_code = status < 0 ? CLD_KILLED : CLD_EXITED, .si_status = abs(status)};
    return p->exited = true;
}

bool process_is_gone(const Process *p, _unused_ const char *run_dir,
                     _unused_ bool (*is_ours)(void *, pid_t), _unused_ void *userdata)
{
    return p->exited && !trainers[p->slot].leaves;
}

void process_await_exit(_unused_ const Process *p, _unused_ int timeout_msec) {}

void process_close(Process *p)
{
    if (!p->needs)
        return;
    assert_ptr_equal(trainers[p->slot].process, p);
    (void)fd_close(p->channel);
    (void)fd_close(trainers[p->slot].far);
    trainers[p->slot].process = NULL;
    p->needs = NULL;
}

void process_retire(Process *p) { process_close(p); }

int rank_log_new(_unused_ sd_event *event, _unused_ const char *log_dir, _unused_ const char *job,
                 _unused_ int64_t generation, _unused_ int rank, _unused_ int64_t max_bytes,
                 int *ret_write_fd, RankLog **ret, _unused_ Error *err)
{
    *ret_write_fd = -EBADF;
    *ret = NULL;
    return 0;
}
RankLog *rank_log_free(_unused_ RankLog *log) { return NULL; }
void rank_log_drain(_unused_ RankLog *log) {}
const char *rank_log_last_line(_unused_ const RankLog *log) { return "its last line"; }

/* The last message to the trainer in that slot. */
static ChannelType told(int slot)
{
    FakeTrainer *t = &trainers[slot];
    Error err = ERROR_INIT;
    ChannelMessage m;
    while (channel_receive(t->far, &m, &err) >= 0) {
        if (m.type != CHANNEL_ALIVE)
            t->told = m.type;
        if (m.type == CHANNEL_ASSIGN)
            memcpy(t->gpu, m.gpu, sizeof(t->gpu));
        channel_message_clear(&m);
    }
    return t->told;
}

/* The trainer of that slot was killed, or ended with exit code 0. */
static void dies(int slot)
{
    FakeTrainer *t = &trainers[slot];
    if (t->status == ENDS_NOT)
        t->status = t->killed ? -SIGKILL : 0;
    t->process->events.moved(t->process->events.userdata);
}

/* The message waits in the channel. */
static void writes(int slot, ChannelType type, int64_t step)
{
    FakeTrainer *t = &trainers[slot];
    Error err = ERROR_INIT;
    const Rank *rank = w.slots.of[slot];
    ChannelMessage m = {.type = type, .generation = rank->generation, .step = step};
    (void)snprintf(m.address, sizeof(m.address), "127.0.0.1:4000");
    (void)snprintf(m.uri, sizeof(m.uri), "file:///c/%lld", (long long)step);
    if (channel_send(t->far, &m, &err) < 0)
        fail_msg("%s", err.text);
}

static void says(int slot, ChannelType type, int64_t step)
{
    writes(slot, type, step);
    trainers[slot].process->events.heard(trainers[slot].process->events.userdata);
}

/* ---- the daemon around it ---- */

static int n_committed, n_refused;

static void on_nothing(_unused_ void *userdata) {}
static void on_world(_unused_ void *userdata, _unused_ const LocalWorld *local) {}
static void on_rank(_unused_ void *userdata, _unused_ const Rank *rank) {}
static void on_end(_unused_ void *userdata, _unused_ const Rank *rank,
                   _unused_ const ExitVerdict *v)
{
}
static void on_word(_unused_ void *userdata, _unused_ Rank *rank, _unused_ const ChannelMessage *m)
{
}
static void on_job(_unused_ void *userdata, _unused_ const char *job) {}

static void on_commit(_unused_ void *userdata, _unused_ const LocalWorld *local,
                      _unused_ CommitMark mark, bool committed)
{
    n_committed += committed;
    n_refused += !committed;
}

static const char submission[] = "0123456789abcdef0123456789abcdef";
static DaemonConfig config = {.cluster = "lab", .node = "n1", .slots = 2, .lease_sec = 10};
static bool knows_secrets;
static SlotGpus gpus; /* of this node */

static int set_up(_unused_ void **state)
{
    static const int trainer = -1;
    static char *environment[] = {(char *)"LANG=C", (char *)"SDTRAIN_LOG=x",
                                  (char *)"SDTRAIN_FAULT=x", NULL};
    static const RankNeeds ranks = {.environment = environment, .trainer = &trainer};
    const WorkloadNeeds needs = {.config = &config,
                                 .ranks = &ranks,
                                 .knows_secrets = &knows_secrets,
                                 .gpus = &gpus,
                                 .incarnation = INCARNATION};
    const WorkloadEvents events = {.node_changed = on_nothing,
                                   .etcd_answered = on_nothing,
                                   .may_be_idle = on_nothing,
                                   .world_began = on_world,
                                   .commit_decided = on_commit,
                                   .rank_started = on_rank,
                                   .rank_ended = on_end,
                                   .rank_stepped = on_word,
                                   .rank_saved = on_word,
                                   .job_forgotten = on_job};
    char key[KEY_MAX];
    SpecRecord spec = {.spec = (char *)"{}"};
    _cleanup_free_ char *text = NULL;
    n_started = n_committed = n_refused = 0;
    workload_init(&w, &needs, &events);
    memcpy(spec.submission, submission, sizeof(submission));
    text = spec_record_encode(&spec, NULL);
    (void)put(key_of("lab", KEY_SPECS, "a", key), text, 0);
    return 0;
}

static int tear_down(_unused_ void **state)
{
    workload_clear(&w);
    assert_int_equal(n_calls, 0);
    for (size_t i = 0; i < TIMERS_MAX; i++)
        assert_null(timers[i].timer);
    for (size_t i = 0; i < KEYS_MAX; i++) {
        free(store[i].value);
        store[i].value = NULL;
    }
    return 0;
}

/* The leader decides a world of two ranks on this node, and the watch shows it. */
static void decide(int64_t generation)
{
    WorldRun run = {.node = "n1", .incarnation = INCARNATION, .slots = 3};
    WorldRecord world = {.generation = generation, .size = 2, .runs = &run, .n_runs = 1};
    char key[KEY_MAX];
    memcpy(world.submission, submission, sizeof(submission));
    int64_t at = put(key_of("lab", KEY_WORLDS, "a", key), "a world", 0);
    job_set_world(job_get(&w, "a"), &world, at);
}

static void phase(int64_t generation, JobPhase is, bool go)
{
    PhaseRecord record = {.phase = is, .generation = generation, .go = go};
    memcpy(record.submission, submission, sizeof(submission));
    job_set_phase(job_get(&w, "a"), &record);
}

static RanksRecord report_of(int64_t generation)
{
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    RanksRecord record;
    size_t i = find(key_ranks("lab", "a", generation, "n1", key));
    assert_true(i < KEYS_MAX);
    assert_int_equal(store[i].lease, LEASE);
    assert_int_equal(ranks_record_decode(key, store[i].value, strlen(store[i].value), &record,
                                         &err),
                     0);
    return record;
}

static void expect(int64_t generation, RankState rank0, RankState rank1, bool killed)
{
    RanksRecord record = report_of(generation);
    assert_int_equal(record.n_ranks, 2);
    assert_int_equal(record.ranks[0].state, rank0);
    assert_int_equal(record.ranks[1].state, rank1);
    assert_int_equal(record.killed_usec != 0, killed);
    ranks_record_clear(&record);
}

/* Both ranks say hello and are ready; the leader lets them go. */
static void run_world(int64_t generation)
{
    decide(generation);
    says(0, CHANNEL_HELLO, 0);
    says(1, CHANNEL_HELLO, 0);
    answer_all();
    assert_int_equal(told(0), CHANNEL_ASSIGN);
    assert_int_equal(told(1), CHANNEL_ASSIGN);
    says(0, CHANNEL_RENDEZVOUS, 0);
    says(0, CHANNEL_READY, 0);
    says(1, CHANNEL_READY, 0);
    answer_all();
    expect(generation, RANK_READY, RANK_READY, generation > 1);
    phase(generation, PHASE_RUNNING, true);
    assert_int_equal(told(0), CHANNEL_GO);
    assert_int_equal(told(1), CHANNEL_GO);
}

/* ---- cases ---- */

static void a_world_is_assigned_goes_and_steps(_unused_ void **state)
{
    run_world(1);
    says(0, CHANNEL_STEP, 1);
    answer_all();
    RanksRecord record = report_of(1);
    assert_int_equal(record.first_step, 1);
    assert_int_equal(record.ranks[0].state, RANK_RUNNING);
    ranks_record_clear(&record);
}

static void a_new_world_waits_until_the_old_is_dead(_unused_ void **state)
{
    run_world(1);
    decide(2);
    assert_true(w.slots.of[0]->killing && w.slots.of[1]->killing);
    assert_int_equal(n_started, 2);
    assert_true(workload_has_old_ranks(&w));

    dies(0);
    assert_int_equal(n_started,
                     3); /* its slot is clear; the other still holds a rank of the old world */
    answer_all();
    dies(1);
    assert_int_equal(n_started, 4);
    assert_false(workload_has_old_ranks(&w));
    answer_all();
    expect(1, RANK_EXITED, RANK_EXITED, true);
    expect(2, RANK_STARTING, RANK_STARTING, true);
    assert_null(w.jobs->over); /* etcd knows that it is dead */
}

/* Whether the job needs it is the trainer's business. */
static void a_rank_is_told_the_gpu_of_its_slot(_unused_ void **state)
{
    gpus = (SlotGpus){.pci = {"0000:3b:00"}, .n = 1};
    run_world(1);
    assert_string_equal(trainers[0].gpu, "0000:3b:00");
    assert_string_equal(trainers[1].gpu, "");
    gpus = (SlotGpus){.n = 0};
}

static void a_refused_write_kills_the_ranks(_unused_ void **state)
{
    char key[KEY_MAX];
    run_world(1);
    (void)put(key_of("lab", KEY_WORLDS, "a", key), "a world that no watch has shown yet", 0);
    says(0, CHANNEL_STEP, 1);
    assert_false(w.slots.of[0]->killing);
    answer_all();
    assert_true(w.slots.of[0]->killing && w.slots.of[1]->killing);
}

static void a_lost_slot_is_told_before_its_rank_counts_as_ended(_unused_ void **state)
{
    run_world(1);
    decide(2);
    dies(1);
    pass(RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC); /* nothing is heard of the other */
    answer_all();
    assert_int_equal(w.slots.lost, 1);
    expect(1, RANK_READY, RANK_EXITED, true);
    RanksRecord record =
        report_of(2); /* the new rank of that slot has failed, and is not started */
    assert_int_equal(record.ranks[0].state, RANK_EXITED);
    ranks_record_clear(&record);
    assert_int_equal(n_started, 3);

    workload_note_node_told(&w);
    answer_all();
    assert_null(w.jobs->over);
    dies(0);
    assert_int_equal(w.slots.lost, 0);
}

static void a_checkpoint_counts_only_in_its_world(_unused_ void **state)
{
    char key[KEY_MAX];
    run_world(1);
    says(0, CHANNEL_SAVED, 10);
    answer_all();
    assert_int_equal(told(0), CHANNEL_COMMITTED);
    (void)put(key_of("lab", KEY_WORLDS, "a", key), "a world that no watch has shown yet", 0);
    says(0, CHANNEL_SAVED, 20);
    answer_all();
    assert_int_equal(told(0), CHANNEL_REFUSED);
    assert_int_equal(n_committed, 1);
    assert_int_equal(n_refused, 1);
    assert_true(w.slots.of[0]->killing);
}

static void a_spec_that_is_late_is_read_again(_unused_ void **state)
{
    char key[KEY_MAX];
    size_t at = find(key_of("lab", KEY_SPECS, "a", key));
    char *late = TAKE_PTR(store[at].value);
    decide(1);
    says(0, CHANNEL_HELLO, 0);
    answer_all();
    assert_int_equal(told(0), 0);
    (void)put(key, late, 0);
    free(late);
    pass(USEC_PER_SEC);
    answer_all();
    assert_int_equal(told(0), CHANNEL_ASSIGN);
}

static void what_a_trainer_leaves_keeps_its_slot(_unused_ void **state)
{
    run_world(1);
    decide(2);
    assert_true(trainers[0].killed && trainers[1].killed);
    trainers[0].leaves = true;
    dies(0);
    dies(1);
    assert_int_equal(n_started, 3); /* that of slot 1 */
    trainers[0].leaves = false;
    dies(0); /* the rest of it */
    assert_int_equal(n_started, 4);
    answer_all();
    expect(2, RANK_STARTING, RANK_STARTING, true);
}

static void what_outlives_its_trainer_loses_the_slot(_unused_ void **state)
{
    run_world(1);
    trainers[0].leaves = true;
    dies(0); /* nobody has killed it */
    pass(RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC - 1);
    assert_int_equal(w.slots.lost, 0);
    pass(1);
    assert_int_equal(w.slots.lost, 1);
}

static void the_last_words_of_a_trainer_are_read(_unused_ void **state)
{
    run_world(1);
    writes(0, CHANNEL_STEP, 1);
    dies(0);
    answer_all();
    RanksRecord record = report_of(1);
    assert_int_equal(record.first_step, 1);
    assert_int_equal(record.ranks[0].state, RANK_EXITED);
    ranks_record_clear(&record);
}

static void who_is_killed_is_told_nothing(_unused_ void **state)
{
    run_world(1);
    ChannelMessage stop = {.type = CHANNEL_STOP, .generation = 1};
    rank_kill(w.slots.of[0], "the test says so");
    rank_send(w.slots.of[0], &stop);
    assert_int_equal(told(0), CHANNEL_GO);
}

static void a_trainer_that_hangs_up_has_a_moment_to_end(_unused_ void **state)
{
    run_world(1);
    assert_int_equal(shutdown(trainers[0].far, SHUT_RDWR), 0);
    trainers[0].process->events.heard(trainers[0].process->events.userdata);
    pass(RANK_LAST_WORDS_MSEC * USEC_PER_MSEC - 1);
    assert_false(trainers[0].killed);
    pass(1);
    assert_true(trainers[0].killed && w.slots.of[0]->killing);
    dies(0);
    answer_all();
    expect(1, RANK_EXITED, RANK_READY, false);
}

static void the_dead_mans_timer_looks_like_a_hang(_unused_ void **state)
{
    run_world(1);
    trainers[1].status = -SIGKILL; /* by somebody, early */
    dies(1);
    pass(8 * USEC_PER_SEC); /* more than three quarters of the lease */
    trainers[0].status = -SIGKILL;
    dies(0);
    answer_all();
    RanksRecord record = report_of(1);
    assert_int_equal(record.ranks[0].exit_code, -SIGKILL);
    assert_true(record.ranks[0].hung && !record.ranks[1].hung);
    assert_non_null(strstr(record.ranks[0].text, "stood still for 8.0 s"));
    ranks_record_clear(&record);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_world_is_assigned_goes_and_steps),
        CASE(a_rank_is_told_the_gpu_of_its_slot),
        CASE(a_new_world_waits_until_the_old_is_dead),
        CASE(a_refused_write_kills_the_ranks),
        CASE(a_lost_slot_is_told_before_its_rank_counts_as_ended),
        CASE(a_checkpoint_counts_only_in_its_world),
        CASE(a_spec_that_is_late_is_read_again),
        CASE(what_a_trainer_leaves_keeps_its_slot),
        CASE(what_outlives_its_trainer_loses_the_slot),
        CASE(the_last_words_of_a_trainer_are_read),
        CASE(who_is_killed_is_told_nothing),
        CASE(a_trainer_that_hangs_up_has_a_moment_to_end),
        CASE(the_dead_mans_timer_looks_like_a_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
