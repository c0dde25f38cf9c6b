/* SPDX-License-Identifier: Apache-2.0 */
/* testing-machine.c - see testing-machine.h. */
#include "daemon/test/testing-machine.h"

#include <string.h>

enum { OTHER_CHILD = 500, PIPE = 600 };

/* ---- the processes of a slot ---- */

static Machine *machine_of(const ProcessNeeds *needs)
{
    return (Machine *)((char *)needs - offsetof(Machine, ranks.process));
}

void put_spec(const SpecRecord *spec)
{
    char key[KEY_MAX];
    _cleanup_free_ char *text = spec_record_encode(spec, NULL);
    (void)put(key_of("lab", KEY_SPECS, "a", key), text, 0);
}

FakeTrainer *trainer_in(Machine *machine, int slot)
{
    assert_true(slot >= 0 && slot < RECORD_SLOTS_MAX);
    return &machine->trainers[slot];
}

static FakeTrainer *trainer_of(const Process *p)
{
    return trainer_in(machine_of(p->needs), p->slot);
}

/* A fake descriptor is the index of an open channel in this list. */
static FakeTrainer *channels[2 * RECORD_SLOTS_MAX];

static FakeTrainer *behind(int fd)
{
    assert_true(fd >= 0 && fd < (int)ELEMENTSOF(channels) && channels[fd]);
    return channels[fd];
}

static RankLog *newest_log; /* the log whose process is started next */

int process_start(const ProcessNeeds *needs, int slot, const ProcessProgram *program, Process *ret,
                  Error *err)
{
    Machine *machine = machine_of(needs);
    FakeTrainer *t = trainer_in(machine, slot);
    int fd = 0;
    assert_null(t->process); /* the slot must be clear */
    assert_string_equal(program->argv[1], "run");
    assert_int_equal(program->output, PIPE);
    if (machine->check_program)
        machine->check_program(program, slot);
    if (machine->cannot_start)
        return error_set(err, -EAGAIN, "cannot start the trainer");
    while (fd < (int)ELEMENTSOF(channels) && channels[fd])
        fd++;
    assert_true(fd < (int)ELEMENTSOF(channels));
    channels[fd] = t;
    machine->n_started++;
    *ret = (Process){.needs = needs,
                     .slot = slot,
                     .pid = program->host ? 0 : 1000 + machine->n_started,
                     .channel = fd};
    *t = (FakeTrainer){.process = ret, .status = ENDS_NOT, .log = newest_log};
    return 0;
}

int process_watch(Process *p, const ProcessEvents *events)
{
    p->events = *events;
    return machine_of(p->needs)->cannot_watch ? -ENOSPC : 0;
}

void process_deafen(Process *p) { trainer_of(p)->deafened = true; }
void process_log_standstill(const Process *p) { trainer_of(p)->n_looks++; }
void process_kill(const Process *p) { trainer_of(p)->killed = true; }

bool process_reap(Process *p, siginfo_t *ret)
{
    const int status = trainer_of(p)->status;
    if (p->exited || status == ENDS_NOT)
        return false;
    *ret = (siginfo_t){.si_code = status < 0 ? CLD_KILLED : CLD_EXITED, .si_status = abs(status)};
    return p->exited = true;
}

/* Also checks is_ours, which must return true for every process of a rank that holds a slot. */
bool process_is_gone(const Process *p, _unused_ const char *run_dir, bool (*is_ours)(void *, pid_t),
                     void *userdata)
{
    const Machine *machine = machine_of(p->needs);
    for (size_t i = 0; is_ours && i < ELEMENTSOF(machine->trainers); i++)
        assert_true(!machine->trainers[i].process ||
                    is_ours(userdata, machine->trainers[i].process->pid));
    assert_true(!is_ours ||
                (is_ours(userdata, OTHER_CHILD) && !is_ours(userdata, OTHER_CHILD + 1)));
    return p->exited && !trainer_of(p)->leaves;
}

void process_await_exit(const Process *p, int timeout_msec)
{
    assert_int_equal(timeout_msec, RANK_KILL_CONFIRM_MSEC);
    machine_of(p->needs)->n_awaited++;
}

void process_close(Process *p)
{
    if (!p->needs)
        return;
    FakeTrainer *t = trainer_of(p);
    assert_ptr_equal(t->process, p);
    assert_ptr_equal(behind(p->channel), t);
    channels[p->channel] = NULL;
    t->process = NULL;
    p->needs = NULL;
}

void process_retire(Process *p)
{
    assert_true(process_is_gone(p, NULL, NULL, NULL));
    process_close(p);
}

/* ---- the channel ---- */

int channel_send(int fd, const ChannelMessage *message, Error *err)
{
    FakeTrainer *t = behind(fd);
    if (t->hung_up)
        return error_set(err, -EPIPE, "the other side closed the channel");
    if (t->deaf)
        return error_set(err, -EAGAIN, "cannot send");
    t->generation = message->generation;
    t->n_told[message->type]++;
    if (message->type != CHANNEL_ALIVE)
        t->told = message->type;
    else
        t->alive_usec = message->alive_usec;
    t->lease_usec = message->lease_usec;
    if (message->type == CHANNEL_ASSIGN) {
        t->assigned = *message;
        t->assigned.assign.spec = NULL; /* the spec is borrowed */
    }
    if (message->type == CHANNEL_GO || message->type == CHANNEL_COMMITTED)
        t->held = message->held;
    if (message->type == CHANNEL_GO)
        memcpy(t->address, message->address, sizeof(t->address));
    return 0;
}

int channel_receive(int fd, ChannelMessage *ret, Error *err)
{
    FakeTrainer *t = behind(fd);
    if (t->n_said == 0)
        return t->hung_up ? error_set(err, -EPIPE, "the other side closed the channel")
                          : error_set(err, -EAGAIN, "cannot receive");
    *ret = t->said[0];
    memmove(&t->said[0], &t->said[1], sizeof(t->said[0]) * --t->n_said);
    if (ret->type < CHANNEL_TYPES)
        return 0;
    *ret = (ChannelMessage){0};
    return error_set(err, -EBADMSG, "a message that is none");
}

/* ---- logs ---- */

struct RankLog {
    char waiting[200], last[200];
};

char pruned[RECORD_JOB_MAX + 1], newest_log_dir[CONFIG_PATH_MAX];
char newest_log_job[RECORD_JOB_MAX + 1];
int64_t newest_log_bytes, newest_log_generation;
int newest_log_rank;
static int n_logs;

int rank_log_new(_unused_ sd_event *event, const char *log_dir, const char *job, int64_t generation,
                 int rank, int64_t max_bytes, int *ret_write_fd, RankLog **ret, _unused_ Error *err)
{
    n_logs++;
    (void)snprintf(newest_log_job, sizeof(newest_log_job), "%s", job);
    newest_log_generation = generation;
    newest_log_rank = rank;
    *ret_write_fd = PIPE;
    *ret = newest_log = calloc(1, sizeof(**ret));
    assert_non_null(*ret);
    (void)snprintf(newest_log_dir, sizeof(newest_log_dir), "%s", log_dir);
    newest_log_bytes = max_bytes;
    (void)snprintf(newest_log->last, sizeof(newest_log->last), "its last line");
    return 0;
}

RankLog *rank_log_free(RankLog *log)
{
    n_logs -= log != NULL;
    free(log);
    return NULL;
}

void rank_log_drain(RankLog *log)
{
    if (*log->waiting)
        memcpy(log->last, log->waiting, sizeof(log->last));
    *log->waiting = '\0';
}

const char *rank_log_last_line(const RankLog *log) { return log->last; }

void rank_log_prune(_unused_ const char *log_dir, const char *job)
{
    (void)snprintf(pruned, sizeof(pruned), "%s", job);
}

void prints(Machine *machine, int slot, const char *line)
{
    const FakeTrainer *t = trainer_in(machine, slot);
    assert_non_null(t->process);
    (void)snprintf(t->log->waiting, sizeof(t->log->waiting), "%s", line);
}

void machines_end(void)
{
    memory_end();
    assert_int_equal(n_logs, 0);
}

/* ---- actions of the test ---- */

static bool is_other_child(_unused_ void *userdata, pid_t pid) { return pid == OTHER_CHILD; }

void machine_init(Machine *machine)
{
    static const int trainer = -1;
    static char *environment[] = {(char *)"LANG=C", (char *)"SDTRAIN_LOG=x",
                                  (char *)"SDTRAIN_FAULT=x", NULL};
    memset(machine, 0, sizeof(*machine)); /* too large for the stack */
    machine->timers.event = memory_loop;
    machine->ranks = (RankNeeds){.environment = environment,
                                 .trainer = &trainer,
                                 .runner = &trainer,
                                 .is_other_child = is_other_child};
}

void dies(Machine *machine, int slot)
{
    FakeTrainer *t = trainer_in(machine, slot);
    assert_non_null(t->process);
    if (t->status == ENDS_NOT)
        t->status = t->killed ? -SIGKILL : 0;
    t->process->events.moved(t->process->events.userdata);
}

void writes_message(Machine *machine, int slot, ChannelMessage message)
{
    FakeTrainer *t = trainer_in(machine, slot);
    assert_true(t->process && t->n_said < ELEMENTSOF(t->said) &&
                (message.type != CHANNEL_ASSIGN || !message.assign.spec));
    message.generation = t->generation;
    t->said[t->n_said++] = message;
}

void writes(Machine *machine, int slot, ChannelType type, int64_t step)
{
    ChannelMessage m = {.type = type, .step = step};
    if (type == CHANNEL_RENDEZVOUS)
        (void)snprintf(m.address, sizeof(m.address), "127.0.0.1:4000");
    if (type == CHANNEL_SAVED || type == CHANNEL_FOUND) {
        (void)snprintf(m.uri, sizeof(m.uri), "file:///c/%lld", (long long)step);
        (void)snprintf(m.plans, sizeof(m.plans), "%032lld", (long long)step);
    }
    writes_message(machine, slot, m);
}

void says(Machine *machine, int slot, ChannelType type, int64_t step)
{
    FakeTrainer *t = trainer_in(machine, slot);
    writes(machine, slot, type, step);
    t->process->events.heard(t->process->events.userdata);
}

void hangs_up(Machine *machine, int slot)
{
    FakeTrainer *t = trainer_in(machine, slot);
    t->hung_up = true;
    t->process->events.heard(t->process->events.userdata);
}

/* ---- events that do nothing ---- */

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
                      _unused_ CommitMark mark, _unused_ bool committed)
{
}

const WorkloadEvents unheard_events = {.node_changed = on_nothing,
                                       .etcd_answered = on_nothing,
                                       .may_be_idle = on_nothing,
                                       .world_began = on_world,
                                       .commit_decided = on_commit,
                                       .rank_started = on_rank,
                                       .rank_ended = on_end,
                                       .rank_stepped = on_word,
                                       .rank_saved = on_word,
                                       .job_forgotten = on_job};
