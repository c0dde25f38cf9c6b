/* SPDX-License-Identifier: Apache-2.0 */
/* dev.h - a whole cluster on this machine, in one folder: etcd, controllers, nodes.
 *
 * The folder holds dev.json (ports, counts, and each process with its pid) and a sub-folder per process with its
 * configuration, state and log. Each process has its start time beside its pid, so that another process that later gets
 * the same pid is not mistaken for it.
 *
 * Ownership: dev_open() and dev_create() give the caller a Dev.
 * Units:     pids, ports; *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -ENOENT: no cluster in that folder; -EBUSY: another verb is using the cluster; error texts name the
 *            folder and the process.
 * Threads:   the main thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <limits.h>
#include <sys/types.h>

enum { DEV_PROCESSES_MAX = 72, DEV_NODES_MAX = 64 };

typedef enum DevKind { DEV_ETCD, DEV_CONTROLLER, DEV_NODE } DevKind;

typedef struct DevProcess {
    DevKind kind;
    char name[24];        /* "etcd", "controller1", "node1" */
    pid_t pid;            /* 0: not started */
    uint64_t start_ticks; /* start time of the process, from /proc/<pid>/stat */
    /* Port of /metrics; 0: the process is etcd, or an older sdctl made the cluster. */
    int metrics_port;
} DevProcess;

typedef struct Dev {
    char folder[PATH_MAX]; /* absolute path */
    int lock_fd;           /* locks the cluster for one verb */
    int client_port, peer_port;
    int n_nodes, n_slots, n_controllers;
    char alerts_file[PATH_MAX]; /* absolute path; empty: no alerts file */
    bool allow_exec;            /* the nodes run programs of jobs of kind exec */
    DevProcess processes[DEV_PROCESSES_MAX];
    size_t n_processes;
} Dev;

/* Finds the folder: the option --dir, else SDTRAIN_DEV, else ./sdtrain-dev. */
int dev_folder(const char *option, char ret[PATH_MAX], Error *err);
int dev_open(const char *folder, Dev *ret, Error *err);
/* alerts_file is an absolute path, or empty for none. */
int dev_create(const char *folder, int n_nodes, int n_slots, int n_controllers,
               const char *alerts_file, Dev *ret, Error *err);
/* Stores the absolute path of the alerts file and lets sdcontroller check the file. sdcontroller prints errors of the
 * file on standard error. */
int dev_check_alerts(const char *name, char ret[PATH_MAX], Error *err);
void dev_close(Dev *dev);
int dev_save(const Dev *dev, Error *err);
/* Removes the state that must not remain for the next cluster in this folder. Logs are kept. */
int dev_forget(const Dev *dev, Error *err);

bool dev_process_alive(const DevProcess *process);
DevProcess *dev_find(Dev *dev, const char *name);
/* Starts one process in its own session, with its output appended to <folder>/<name>/log, and saves its pid in
 * dev.json. */
int dev_start(Dev *dev, DevProcess *process, Error *err);
/* Sends signal_number (SIGTERM or SIGKILL) and waits until the process has ended; sends SIGKILL after timeout_usec. If
 * the process had ended before, this succeeds. */
int dev_stop(Dev *dev, DevProcess *process, int signal_number, uint64_t timeout_usec, Error *err);
