/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the settings of sdtraind: a JSON file, then the command line over it.
 *
 * Every key of the file is an option of the command line ("lease_sec", --lease-sec); unknown keys
 * are refused by name.
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
    char address[128]; /* at which ranks of other nodes reach those of this one */
    int64_t slots;
    int64_t lease_sec, fence_sec, drain_sec;
    char run_dir[CONFIG_PATH_MAX], log_dir[CONFIG_PATH_MAX], trainer[CONFIG_PATH_MAX];
    int64_t log_bytes; /* kept of what one rank prints in one generation */
    int cgroup;        /* CgroupMode */
    double hang_floor_sec, hang_factor, startup_sec, save_sec;
    int64_t health_sec, probe_sec, disk_min_bytes;
    int64_t gpus, rdma_devices;      /* numbers of devices that this node is expected to have */
    char state_dir[CONFIG_PATH_MAX]; /* folder of what probes remember; empty: run_dir/health */
    char nvml[CONFIG_PATH_MAX], kernel_log[CONFIG_PATH_MAX], sysfs[CONFIG_PATH_MAX];
    json_t *xid_actions; /* object of strings, as xid_overrides_read() takes them; NULL: none */
    char spot_endpoint[CONFIG_PATH_MAX]; /* of the instance's metadata; empty: no notices */
    json_t *trainer_environment;         /* array of "KEY=VALUE"; NULL: none */
    json_t *labels;                      /* object of strings; NULL: none */
    /* Prefixes that jobs may name, arrays of strings; NULL: all. */
    json_t *paths_read, *paths_write;
} DaemonConfig;

/* Returns -ECANCELED after --help or --version, which only print. ret->own: the probe's name after --probe. */
int config_parse_arguments(int argc, char *argv[], SettingsCall *ret, Error *err);

/* Reads the file, lays the command line over it, and fills in defaults. */
int config_load(const SettingsCall *call, DaemonConfig *ret, Error *err);
void config_clear(DaemonConfig *config);

/* Works as settings_reload(): fresh holds the old values afterwards. */
void config_reload(DaemonConfig *config, DaemonConfig *fresh);
