/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - the processes of one slot: a program with a channel to it, and whatever it starts.
 *
 * Ownership: process_start() fills a Process, a value with an address of its own until process_close(). Borrows its
 *            needs.
 * Units:     milliseconds.
 * Errors:    -errno from starting.
 * Threads:   main thread only, as spawn.h.
 * Invariant: a slot is clear when nothing of its program lives: its cgroup is not populated, or its process group and
 *            every process handed to us with its mark are gone. The end of the program does not clear it by itself.
 */
#pragma once

#include "daemon/process/cgroup.h"
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
    /* The channel can be read. */
    void (*heard)(void *userdata);
    /* Something of the slot has ended: process_reap() and process_is_gone() tell what. */
    void (*moved)(void *userdata);
} ProcessEvents;

typedef struct Process {
    const ProcessNeeds *needs;
    ProcessEvents events;
    int slot;
    pid_t pid; /* of the program, which leads a session and a process group */
    int pidfd;
    int channel;               /* our end of a pair of SOCK_SEQPACKET; does not block */
    int cgroup, cgroup_events; /* negative: the program is in no cgroup of its own */
    sd_event_source *exit_source, *channel_source, *cgroup_source;
    bool exited; /* the program is reaped */
} Process;

typedef struct ProcessProgram {
    char *const *argv; /* as SpawnRequest */
    int program;       /* as SpawnRequest */
    char *const *environment;
    int output; /* standard output and error; process_start() closes it */
} ProcessProgram;

/* Starts the program in its slot, which must be clear. On error *ret is to be closed, too. */
int process_start(const ProcessNeeds *needs, int slot, const ProcessProgram *program, Process *ret,
                  Error *err);
/* Begins to call `heard` and `moved`. */
int process_watch(Process *process, const ProcessEvents *events);
/* Calls `heard` no more: the channel is broken. */
void process_deafen(Process *process);

/* Sends SIGKILL to everything of the slot. */
void process_kill(const Process *process);
/* Looks whether the program has ended. True once: it is reaped, what it started has got SIGKILL, and *ret says how it
 * ended. */
bool process_reap(Process *process, siginfo_t *ret);
/* Tells whether nothing lives in the slot. is_ours tells of a child of this process whether it was started for another
 * slot, or for none. */
bool process_is_gone(const Process *process, const char *run_dir,
                     bool (*is_ours)(void *userdata, pid_t pid), void *userdata);
/* Waits until the program has ended, a bounded time; blocks the loop. */
void process_await_exit(const Process *process, int timeout_msec);

/* Accepts a Process that has not started. */
void process_close(Process *process);
/* Closes a Process of which nothing lives, and removes what marked its slot: the session and the cgroup. */
void process_retire(Process *process);
