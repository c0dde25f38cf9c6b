/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - the trainer processes of a simulated machine, as its kernel keeps them.
 *
 * machine.c defines the functions of daemon/process/process.h and logs.h, channel_send(), channel_receive() and
 * orphans_owner_tag(). So daemon/world starts Tasks instead of processes, talks to them, kills them, and waits until
 * nothing of them lives.
 *
 *     machine_open(machine, loop);   // an sdtraind begins to run on it
 *     ...                            // it calls process_start(): program->started()
 *     task_say(task, &message);      // to the daemon
 *     task_end(task, 83);            // it exits
 *
 * A Task lives until the model of its program ends it, whatever happens to its daemon, and its slot is clear only when
 * the task has ended and left nothing behind. A daemon that was killed finds the slots as they are.
 *
 * Ownership: machine_new() gives the caller a Machine, which owns its Tasks; machine_free() accepts NULL. A Task is
 *            gone when its slot is started anew.
 * Units:     exit codes; signals negative.
 * Errors:    those of process.h and channel.h. A channel takes TASK_MESSAGES_MAX messages that nobody reads: -EAGAIN.
 * Threads:   one.
 */
#pragma once

#include "daemon/process/process.h"
#include "protocol/channel.h"

enum { TASK_MESSAGES_MAX = 64 };

typedef struct Machine Machine;
typedef struct Task Task;

/* The model of the program that is started in the slots. Called in the middle of the daemon's work: a callee notes what
 * it is told, and acts later. */
typedef struct TaskProgram {
    void *userdata;
    void (*started)(void *userdata, Task *task);
    /* A message waits: task_hear(). */
    void (*told)(void *userdata, Task *task);
    /* It got SIGKILL, and is to be ended by task_end(task, -SIGKILL) unless nothing can end it. */
    void (*killed)(void *userdata, Task *task);
    /* Its daemon has killed it and stands still until it ends: it is to be ended now, or it will not end in time. */
    void (*awaited)(void *userdata, Task *task);
    /* Its daemon closed its end of the channel. */
    void (*hung_up)(void *userdata, Task *task);
    /* The Task is gone after this call. */
    void (*cleared)(void *userdata, Task *task);
} TaskProgram;

Machine *machine_new(const TaskProgram *program);
Machine *machine_free(Machine *machine);

/* From now on a process that is started on that loop is one of this machine. */
void machine_open(Machine *machine, sd_event *loop);
/* The daemon is gone. Its tasks stay. */
void machine_close(Machine *machine);

/* NULL: none was started there since the machine was made. */
Task *machine_task(Machine *machine, int slot);

int task_slot(const Task *task);
bool task_lives(const Task *task);
/* Attaches the model's data to the task, which has none (NULL) at first. */
void task_set_userdata(Task *task, void *userdata);
void *task_userdata(const Task *task);

/* Takes the oldest message of its daemon; false: there is none. *ret is to be cleared. */
bool task_hear(Task *task, ChannelMessage *ret);
/* False: its daemon is gone, or does not read. Strings are copied. */
bool task_say(Task *task, const ChannelMessage *message);
/* status: exit code, or -signal. A task that has ended stays as it is. */
void task_end(Task *task, int status);
/* Something that it started lives on, or does not any more. */
void task_leave_behind(Task *task, bool leaves);
