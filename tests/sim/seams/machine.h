/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - the trainer processes of a simulated machine, as its kernel would keep them.
 *
 * machine.c defines the functions of daemon/process/process.h and logs.h, channel_send(), channel_receive() and
 * orphans_owner_tag(). So daemon/world starts Tasks instead of processes, exchanges messages with them, kills them, and
 * waits until nothing of the Tasks is left.
 *
 *     machine_open(machine, loop);   // an sdtraind begins to run on it
 *     ...                            // it calls process_start(): program->started()
 *     task_say(task, &message);      // to the daemon
 *     task_end(task, 83);            // it exits
 *
 * A Task lives until the model of its program ends it, whatever happens to its daemon. Its slot is clear only when the
 * task has ended and left nothing behind. After a daemon was killed, the next daemon finds the slots unchanged.
 *
 * Ownership: machine_new() gives the caller a Machine, which owns its Tasks; machine_free() accepts NULL. A Task is
 *            freed when a new Task is started in its slot.
 * Units:     exit codes; signals negative.
 * Errors:    those of process.h and channel.h. A channel holds at most TASK_MESSAGES_MAX unread messages: -EAGAIN.
 * Threads:   one.
 */
#pragma once

#include "daemon/process/process.h"
#include "protocol/channel.h"

enum { TASK_MESSAGES_MAX = 64 };

typedef struct Machine Machine;
typedef struct Task Task;

/* The model of the program that is started in the slots. Its functions are called in the middle of
 * the daemon's work: they must only note the event, and act later. */
typedef struct TaskProgram {
    void *userdata;
    void (*started)(void *userdata, Task *task);
    /* A message for the task has arrived; task_hear() takes it. */
    void (*told)(void *userdata, Task *task);
    /* The task got SIGKILL: end the task by task_end(task, -SIGKILL), unless the model lets it
     * survive. */
    void (*killed)(void *userdata, Task *task);
    /* The daemon has killed the task and is waiting, blocked, until it ends: end the task now; a
     * task that ends later does not end in time. */
    void (*awaited)(void *userdata, Task *task);
    /* The daemon has closed its end of the channel. */
    void (*hung_up)(void *userdata, Task *task);
    /* The Task is freed after this call. */
    void (*cleared)(void *userdata, Task *task);
} TaskProgram;

Machine *machine_new(const TaskProgram *program);
Machine *machine_free(Machine *machine);

/* From now on, a process that code of the given loop starts runs on this machine. */
void machine_open(Machine *machine, sd_event *loop);
/* Notes that the daemon has ended. The tasks of the daemon stay. */
void machine_close(Machine *machine);

/* Returns the task in the slot; NULL: no task was started in this slot since the machine was
 * made. */
Task *machine_task(Machine *machine, int slot);

int task_slot(const Task *task);
bool task_lives(const Task *task);
/* Sets the userdata of the task, which is NULL at first. */
void task_set_userdata(Task *task, void *userdata);
void *task_userdata(const Task *task);

/* Takes the oldest message from the daemon. Returns false if there is no message. The caller clears *ret. */
bool task_hear(Task *task, ChannelMessage *ret);
/* Sends a message to the daemon. Returns false if the daemon has ended or does not read. Strings
 * are copied. */
bool task_say(Task *task, const ChannelMessage *message);
/* Ends a task. status: exit code, or -signal. Has no effect on a task that has ended. */
void task_end(Task *task, int status);
/* Sets whether something that the task started still lives. */
void task_leave_behind(Task *task, bool leaves);
