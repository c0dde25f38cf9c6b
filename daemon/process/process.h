/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - the processes of one slot: a program with a channel to it, and whatever it starts. The program is a child
 * of this process, or, with a host, of another user in a unit of its own (host.h).
 *
 * Ownership: process_start() fills a Process, a value that must not move until process_close(). Borrows its needs.
 * Units:     milliseconds.
 * Errors:    -errno from starting.
 * Threads:   main thread only, as in spawn.h.
 * Invariant: a slot is clear when no process of its program lives: its cgroup is not populated, or its process group
 *            and every process with its mark that became our child are gone. The end of the program alone does not
 *            clear the slot.
 */
#pragma once

#include "daemon/process/cgroup.h"
#include "daemon/process/host-messages.h"
#include "daemon/process/orphans.h"

#include <signal.h>
#include <systemd/sd-event.h>

typedef struct ProcessNeeds {
    sd_event *event; /* the loop that watches pidfd, channel and cgroup */
    const CgroupBase *cgroups;
    RankSessions *sessions; /* shared with the keeper */
} ProcessNeeds;

typedef struct ProcessEvents {
    void *userdata;
    /* Called when the channel can be read. */
    void (*heard)(void *userdata);
    /* Called when a process of the slot has ended; process_reap() and process_is_gone() return what has ended. */
    void (*moved)(void *userdata);
} ProcessEvents;

typedef struct Process {
    const ProcessNeeds *needs;
    ProcessEvents events;
    int slot;
    pid_t
        pid; /* pid of the program, which leads a session and a process group; 0: its host has not started it yet */
    int pidfd;
    int channel; /* our end of a SOCK_SEQPACKET socket pair; non-blocking. Negative: another process has that end */
    /* Descriptors; negative: the program is in no cgroup of its own. With a host, cgroup_events is the unit's. */
    int cgroup, cgroup_events;
    int host; /* the connection to the program's host; negative: the program is a child of this process */
    uid_t host_user;
    int host_output; /* the program's output until the host has started it */
    bool host_ended;
    bool has_ended; /* the host has reported how the program ended: `ending` */
    bool host_is_clear;
    siginfo_t ending;
    sd_event_source *exit_source, *channel_source, *cgroup_source;
    bool exited; /* the program was reaped */
} Process;

typedef struct ProcessProgram {
    char *const *argv; /* as in SpawnRequest */
    int program;       /* as in SpawnRequest */
    char *const *environment;
    int output; /* for standard output and error; process_start() closes it */
    int channel; /* the program's end of the channel, which process_start() closes; 0: a channel is made */
    /* The socket of the unit that runs the program, as that user; argv does not count then. NULL: the program
     * becomes a child of this process. */
    const char *host;
    uid_t host_user;
} ProcessProgram;

/* Starts the program in its slot, which must be clear. On error the caller must close *ret, too. */
int process_start(const ProcessNeeds *needs, int slot, const ProcessProgram *program, Process *ret,
                  Error *err);
/* Begins to call `heard` and `moved`. */
int process_watch(Process *process, const ProcessEvents *events);
/* Ends the calls of `heard`, because the channel is broken. */
void process_deafen(Process *process);

/* Logs what each process of the program does, as /proc shows it (standstill.h): before a program that hangs is killed.
 */
void process_log_standstill(const Process *process);
/* Sends SIGKILL to all processes of the slot. */
void process_kill(const Process *process);
/* Reaps the program if it has ended. Returns true once: then *ret says how the program ended, and the processes that
 * it started have got SIGKILL. */
bool process_reap(Process *process, siginfo_t *ret);
/* Returns whether no process lives in the slot. is_ours returns whether a child of this process was started for
 * another slot, or for no slot. */
bool process_is_gone(const Process *process, const char *run_dir,
                     bool (*is_ours)(void *userdata, pid_t pid), void *userdata);
/* Waits until the program has ended, at most timeout_msec. Blocks the loop. */
void process_await_exit(const Process *process, int timeout_msec);

/* Accepts a Process that was not started. */
void process_close(Process *process);
/* Closes a Process of which no process lives, and removes the session and the cgroup of its slot. */
void process_retire(Process *process);
