/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - see machine.h. */
#include "tests/sim/seams/machine.h"

#include "base/memory.h"
#include "cluster/records.h"
#include "daemon/process/logs.h"
#include "tests/sim/seams/loop.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    /* Task k has the channel FIRST_FD + 2 k, the pidfd FIRST_FD + 2 k + 1, and the pid FIRST_PID + k. */
    FIRST_FD = 1 << 24, /* the descriptors of seams/wire.c begin at 1 << 20 */
    FIRST_PID = 1000,
};

typedef struct Queue { /* messages that were sent and not read, oldest first */
    ChannelMessage *all[TASK_MESSAGES_MAX];
    size_t n;
} Queue;

struct Task {
    Machine *machine;
    int slot, number; /* number: unique while the task exists */
    bool lives, leaves;
    int status;
    Process *process; /* the daemon's Process; NULL: the daemon has given it up */
    Queue up, down;   /* up: messages to the daemon; down: messages from the daemon */
    void *userdata;
};

struct Machine {
    TaskProgram program;
    sd_event *loop; /* loop of the daemon; NULL: no daemon runs */
    Task *of[RECORD_SLOTS_MAX];
    Machine *next;
};

static Machine *machines;                    /* the list of all machines */
static Task **tasks;                         /* indexed by number; NULL: the number is free */
static size_t n_tasks, tasks_room, n_living; /* n_living: how many numbers are in use */

/* ---- messages ---- */

static ChannelMessage *copy(const ChannelMessage *message)
{
    ChannelMessage *m = memory_resize(NULL, 1, sizeof(*m));
    *m = *message;
    if (m->type == CHANNEL_ASSIGN && m->assign.spec)
        m->assign.spec = memory_text(m->assign.spec);
    return m;
}

static bool queue_put(Queue *queue, const ChannelMessage *message)
{
    if (queue->n == TASK_MESSAGES_MAX)
        return false;
    queue->all[queue->n++] = copy(message);
    return true;
}

static bool queue_take(Queue *queue, ChannelMessage *ret)
{
    if (queue->n == 0)
        return false;
    *ret = *queue->all[0];
    free(queue->all[0]);
    memmove(queue->all, queue->all + 1, --queue->n * sizeof(queue->all[0]));
    return true;
}

static void queue_clear(Queue *queue)
{
    ChannelMessage m;
    while (queue_take(queue, &m))
        channel_message_clear(&m);
}

/* ---- tasks ---- */

static int channel_of(const Task *task) { return FIRST_FD + 2 * task->number; }
static int pidfd_of(const Task *task) { return channel_of(task) + 1; }

static Task *task_at(int channel)
{
    size_t number = (size_t)(channel - FIRST_FD) / 2;
    assert(channel >= FIRST_FD && (channel - FIRST_FD) % 2 == 0 && number < n_tasks);
    assert(tasks[number] && tasks[number]->process);
    return tasks[number];
}

static Task *task_of(const Process *process)
{
    return process->channel < 0 ? NULL : task_at(process->channel);
}

/* Makes the loop's descriptors of the task ready: the task's channel if there is something to read,
 * its pidfd if the task has ended. */
static void show(const Task *task)
{
    sd_event *loop = task->machine->loop;
    if (!task->process || !loop)
        return;
    loop_set_ready(loop, channel_of(task), task->up.n > 0 || !task->lives ? EPOLLIN : 0);
    loop_set_ready(loop, pidfd_of(task), task->lives ? 0 : EPOLLIN);
}

static Task *task_new(Machine *machine, int slot)
{
    size_t number = 0;
    while (number < n_tasks && tasks[number])
        number++;
    if (number == n_tasks) {
        tasks = memory_grow(tasks, n_tasks, &tasks_room, sizeof(Task *));
        n_tasks++;
    }
    Task *task = tasks[number] = memory_new(Task);
    *task = (Task){.machine = machine, .slot = slot, .number = (int)number, .lives = true};
    n_living++;
    return task;
}

static Task *task_free(Task *task)
{
    if (!task)
        return NULL;
    assert(!task->process);
    task->machine->program.cleared(task->machine->program.userdata, task);
    queue_clear(&task->up);
    queue_clear(&task->down);
    tasks[task->number] = NULL;
    free(task);
    if (--n_living == 0) {
        free(tasks);
        tasks = NULL;
        n_tasks = tasks_room = 0;
    }
    return NULL;
}

int task_slot(const Task *task) { return task->slot; }
bool task_lives(const Task *task) { return task->lives; }
void task_set_userdata(Task *task, void *userdata) { task->userdata = userdata; }
void *task_userdata(const Task *task) { return task->userdata; }

bool task_hear(Task *task, ChannelMessage *ret)
{
    assert(task->lives);
    return queue_take(&task->down, ret);
}

bool task_say(Task *task, const ChannelMessage *message)
{
    assert(task->lives);
    if (!task->process || !queue_put(&task->up, message))
        return false;
    show(task);
    return true;
}

void task_end(Task *task, int status)
{
    if (!task->lives)
        return;
    task->lives = false;
    task->status = status;
    show(task);
}

void task_leave_behind(Task *task, bool leaves) { task->leaves = leaves; }

/* ---- machines ---- */

Machine *machine_new(const TaskProgram *program)
{
    Machine *machine = memory_new(Machine);
    *machine = (Machine){.program = *program, .next = machines};
    machines = machine;
    return machine;
}

Machine *machine_free(Machine *machine)
{
    if (!machine)
        return NULL;
    Machine **at = &machines;
    assert(!machine->loop);
    for (int slot = 0; slot < RECORD_SLOTS_MAX; slot++)
        machine->of[slot] = task_free(machine->of[slot]);
    while (*at != machine)
        at = &(*at)->next;
    *at = machine->next;
    free(machine);
    return NULL;
}

void machine_open(Machine *machine, sd_event *loop)
{
    assert(!machine->loop);
    machine->loop = loop;
}

void machine_close(Machine *machine)
{
    for (int slot = 0; slot < RECORD_SLOTS_MAX; slot++)
        assert(!machine->of[slot] || !machine->of[slot]->process);
    machine->loop = NULL;
}

Task *machine_task(Machine *machine, int slot) { return machine->of[slot]; }

static Machine *machine_at(const sd_event *loop)
{
    for (Machine *machine = machines; machine; machine = machine->next)
        if (machine->loop == loop)
            return machine;
    assert(!"no machine has that loop");
    return NULL;
}

/* ---- daemon/process/process.h ---- */

int process_start(const ProcessNeeds *needs, int slot, _unused_ const ProcessProgram *program,
                  Process *ret, _unused_ Error *err)
{
    Machine *machine = machine_at(needs->event);
    assert(slot >= 0 && slot < RECORD_SLOTS_MAX);
    Task *task = machine->of[slot];
    assert(!task || (!task->lives && !task->leaves)); /* the daemon starts only in clear slots */
    (void)task_free(task);                            /* always returns NULL */
    task = machine->of[slot] = task_new(machine, slot);
    *ret = (Process){.needs = needs,
                     .slot = slot,
                     .pid = FIRST_PID + task->number,
                     .pidfd = pidfd_of(task),
                     .channel = channel_of(task),
                     .cgroup = -EBADF,
                     .cgroup_events = -EBADF};
    task->process = ret;
    machine->program.started(machine->program.userdata, task);
    return 0;
}

static int on_channel(_unused_ sd_event_source *source, _unused_ int fd, _unused_ uint32_t revents,
                      void *userdata)
{
    const Process *p = userdata;
    p->events.heard(p->events.userdata);
    return 0;
}

static int on_exit_event(_unused_ sd_event_source *source, _unused_ int fd,
                         _unused_ uint32_t revents, void *userdata)
{
    const Process *p = userdata;
    p->events.moved(p->events.userdata);
    return 0;
}

int process_watch(Process *p, const ProcessEvents *events)
{
    sd_event *loop = p->needs->event;
    p->events = *events;
    int r = sd_event_add_io(loop, &p->exit_source, p->pidfd, EPOLLIN, on_exit_event, p);
    if (r >= 0)
        r = sd_event_source_set_priority(p->exit_source, SD_EVENT_PRIORITY_IMPORTANT);
    if (r >= 0)
        r = sd_event_add_io(loop, &p->channel_source, p->channel, EPOLLIN, on_channel, p);
    show(task_of(p));
    return r;
}

void process_deafen(Process *p)
{
    p->channel_source = sd_event_source_disable_unref(p->channel_source);
}

/* A simulated process is not in /proc. */
void process_log_standstill(_unused_ const Process *p) {}

void process_kill(const Process *p)
{
    Task *task = task_of(p);
    const TaskProgram *program = &task->machine->program;
    if (task->lives)
        program->killed(program->userdata, task);
}

bool process_reap(Process *p, siginfo_t *ret)
{
    const Task *task = task_of(p);
    *ret = (siginfo_t){0};
    if (p->exited || task->lives)
        return false;
    ret->si_code = task->status < 0 ? CLD_KILLED : CLD_EXITED;
    ret->si_status = task->status < 0 ? -task->status : task->status;
    p->exited = true;
    p->exit_source = sd_event_source_disable_unref(p->exit_source);
    return true;
}

bool process_is_gone(const Process *p, _unused_ const char *run_dir,
                     _unused_ bool (*is_ours)(void *userdata, pid_t pid), _unused_ void *userdata)
{
    return p->exited && !task_of(p)->leaves;
}

void process_await_exit(const Process *p, _unused_ int timeout_msec)
{
    Task *task = task_of(p);
    const TaskProgram *program = &task->machine->program;
    if (task->lives)
        program->awaited(program->userdata, task);
}

void process_close(Process *p)
{
    Task *task = p->needs ? task_of(p) : NULL;
    p->exit_source = sd_event_source_disable_unref(p->exit_source);
    p->channel_source = sd_event_source_disable_unref(p->channel_source);
    p->pidfd = p->channel = -EBADF;
    if (!task)
        return;
    const TaskProgram *program = &task->machine->program;
    task->process = NULL;
    queue_clear(&task->up);
    if (task->lives)
        program->hung_up(program->userdata, task);
}

void process_retire(Process *p)
{
    assert(process_is_gone(p, NULL, NULL, NULL));
    process_close(p);
}

void orphans_owner_tag(char *ret, size_t n_ret, _unused_ const char *run_dir, int slot)
{
    (void)snprintf(ret, n_ret, "SDTRAIN_RUN=slot%d", slot);
}

/* ---- protocol/channel.h ---- */

int channel_send(int fd, const ChannelMessage *message, Error *err)
{
    Task *task = task_at(fd);
    const TaskProgram *program = &task->machine->program;
    if (!task->lives)
        return error_set(err, -EPIPE, "the other side closed the channel");
    if (!queue_put(&task->down, message))
        return error_set(err, -EAGAIN, "it does not read");
    program->told(program->userdata, task);
    return 0;
}

int channel_receive(int fd, ChannelMessage *ret, Error *err)
{
    Task *task = task_at(fd);
    if (queue_take(&task->up, ret)) {
        show(task);
        return 0;
    }
    return task->lives ? -EAGAIN : error_set(err, -EPIPE, "the other side closed the channel");
}

/* ---- daemon/process/logs.h: no task prints anything ---- */

struct RankLog {
    char nothing;
};

int rank_log_new(_unused_ sd_event *event, _unused_ const char *log_dir, _unused_ const char *job,
                 _unused_ int64_t generation, _unused_ int rank, _unused_ int64_t max_bytes,
                 int *ret_write_fd, RankLog **ret, _unused_ Error *err)
{
    *ret_write_fd = -EBADF;
    *ret = memory_new(RankLog);
    **ret = (RankLog){0};
    return 0;
}

RankLog *rank_log_free(RankLog *log)
{
    free(log);
    return NULL;
}

void rank_log_drain(_unused_ RankLog *log) {}
const char *rank_log_last_line(_unused_ const RankLog *log) { return ""; }
void rank_log_prune(_unused_ const char *log_dir, _unused_ const char *job) {}
