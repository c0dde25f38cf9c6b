/* SPDX-License-Identifier: Apache-2.0 */
/* dev.h - a whole cluster on this machine, in one folder: etcd, controllers, nodes.
 *
 * The folder holds dev.json (ports, counts, and each process with its pid) and a sub-folder per
 * process with its configuration, state and log. A process has its start time beside its pid, so
 * that another process with the same pid is not taken for it.
 *
 * Ownership: dev_open() and dev_create() give the caller a Dev.
 * Units:     pids, ports; *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -ENOENT: no cluster in that folder; -EBUSY: another verb works on it; texts name folder
 *            and process.
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
    uint64_t start_ticks; /* of /proc/<pid>/stat */
    int metrics_port;     /* of /metrics; 0: etcd, or a cluster that an older sdctl made */
} DevProcess;

typedef struct Dev {
    char folder[PATH_MAX]; /* absolute */
    int lock_fd;           /* locks the cluster for one verb */
    int client_port, peer_port;
    int n_nodes, n_slots, n_controllers;
    char alerts_file[PATH_MAX]; /* absolute; empty: none */
    DevProcess processes[DEV_PROCESSES_MAX];
    size_t n_processes;
} Dev;

/* Finds the folder: the option --dir, else SDTRAIN_DEV, else ./sdtrain-dev. */
int dev_folder(const char *option, char ret[PATH_MAX], Error *err);
int dev_open(const char *folder, Dev *ret, Error *err);
/* alerts_file: absolute; empty: none. */
int dev_create(const char *folder, int n_nodes, int n_slots, int n_controllers,
               const char *alerts_file, Dev *ret, Error *err);
/* Makes an absolute path of the name, and has sdcontroller check the file: it tells standard error what is wrong. */
int dev_check_alerts(const char *name, char ret[PATH_MAX], Error *err);
void dev_close(Dev *dev);
int dev_save(const Dev *dev, Error *err);
/* Removes the state that the next cluster in the folder must not find; logs stay. */
int dev_forget(const Dev *dev, Error *err);

bool dev_process_alive(const DevProcess *process);
DevProcess *dev_find(Dev *dev, const char *name);
/* Starts one process in a session of its own, its output appended to <folder>/<name>/log, and
 * records it. */
int dev_start(Dev *dev, DevProcess *process, Error *err);
/* Sends SIGTERM or SIGKILL and waits until the process is gone; after timeout_usec it sends SIGKILL.
 * A process that was gone before is success. */
int dev_stop(Dev *dev, DevProcess *process, int signal_number, uint64_t timeout_usec, Error *err);
