/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the settings of sdtraind: a JSON file, whose values the command line overrides.
 *
 * Every key of the file is an option of the command line ("lease_sec", --lease-sec); an unknown key is refused with
 * a message that names the key.
 *
 * Ownership: config_load() fills a DaemonConfig; config_clear() frees its lists and accepts a zeroed one.
 * Units:     *_sec seconds, *_bytes bytes.
 * Errors:    -EINVAL with "<file or 'command line'>: <key>: <what is wrong with which value>".
 * Threads:   loop thread only.
 */
#pragma once

#include "base/json/settings.h"
#include "etcd/settings.h"

enum {
    CONFIG_PATH_MAX = 512,
    CONFIG_SLOTS_MAX = 64,
    CONFIG_ENVIRONMENT_MAX = 32,
    CONFIG_LABELS_MAX = 32,
    CONFIG_PATHS_MAX = 64,
};

typedef enum CgroupMode { CGROUP_AUTO, CGROUP_OFF } CgroupMode;

typedef struct DaemonConfig {
    char cluster[64], node[64], machine_id[33];
    EtcdSettings etcd;
    char metrics[80];  /* address:port of /metrics; empty: off */
    char address[128]; /* address at which ranks of other nodes reach the ranks of this node */
    int64_t slots;
    int64_t lease_sec, fence_sec, drain_sec;
    char run_dir[CONFIG_PATH_MAX], log_dir[CONFIG_PATH_MAX], trainer[CONFIG_PATH_MAX];
    bool allow_exec; /* jobs of kind exec may run programs on this node */
    char runner[CONFIG_PATH_MAX], exec_secrets[CONFIG_PATH_MAX];
    /* A program runs as this user, in a unit that systemd starts for a connection to exec_socket, below the cgroup
     * exec_slice; empty: as the user of sdtraind, and as its child. */
    char exec_user[64], exec_socket[CONFIG_PATH_MAX], exec_slice[CONFIG_PATH_MAX];
    uid_t exec_uid;    /* of exec_user, which was looked up when the settings were loaded */
    int64_t log_bytes; /* bytes kept of one rank's output in one generation */
    int cgroup;        /* CgroupMode */
    double hang_floor_sec, hang_factor, startup_sec, save_sec;
    int64_t health_sec, probe_sec, disk_min_bytes;
    int64_t gpus, rdma_devices;      /* numbers of devices that this node is expected to have */
    char state_dir[CONFIG_PATH_MAX]; /* folder of probes' and jobs' state; empty: run_dir/health */
    char nvml[CONFIG_PATH_MAX], kernel_log[CONFIG_PATH_MAX], sysfs[CONFIG_PATH_MAX];
    json_t *xid_actions; /* object of strings for xid_overrides_read(); NULL: none */
    char spot_endpoint[CONFIG_PATH_MAX]; /* URL of the instance's metadata; empty: no notices */
    json_t *trainer_environment;         /* array of "KEY=VALUE"; NULL: none */
    json_t *labels;                      /* object of strings; NULL: none */
    /* Arrays of the path prefixes that jobs may name; NULL: jobs may name every path. */
    json_t *paths_read, *paths_write;
} DaemonConfig;

/* Parses the command line. Returns -ECANCELED after it has printed the text of --help or --version. With --probe,
 * ret->own is the probe's name. */
int config_parse_arguments(int argc, char *argv[], SettingsCall *ret, Error *err);

/* Reads the settings file, applies the command line over it, and fills in defaults. */
int config_load(const SettingsCall *call, DaemonConfig *ret, Error *err);
void config_clear(DaemonConfig *config);

/* Exchanges the settings that a reload may change between config and fresh, see settings_reload(). Afterwards fresh
 * holds the old values of these settings. */
void config_reload(DaemonConfig *config, DaemonConfig *fresh);
