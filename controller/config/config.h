/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the settings of sdcontroller: a JSON file, and the command line, which overrides the file.
 *
 * Every key of the file is an option of the command line ("lease_sec", --lease-sec); an error names each unknown key.
 *
 * Units: *_sec seconds. Threads: loop thread only.
 * Ownership: config_load() fills a ControllerConfig of fixed buffers.
 * Errors:    -EINVAL with "<file or 'command line'>: <key>: <what is wrong with which value>".
 */
#pragma once

#include "base/json/settings.h"
#include "cluster/records.h"
#include "controller/core/cluster.h"
#include "etcd/settings.h"

enum { CONFIG_PATH_MAX = 512 };

typedef struct ControllerConfig {
    char cluster[64], name[64];
    EtcdSettings etcd;
    int64_t lease_sec; /* TTL of the nodes' leases and of this controller's lease */
    int64_t start_deadline_sec, leave_deadline_sec;
    int64_t max_strikes, strike_window_sec, quarantine_sec;
    int64_t incidents_kept, max_nodes, max_jobs;
    int64_t escalate_sec, queue_patience_sec;
    char admit[ADMISSION_MAX + 1];     /* "open", or a list as in cluster/admission.h */
    char prices[PRICES_MAX + 1];       /* prices of slots as in cluster/cost.h; empty: none */
    char alerts_file[CONFIG_PATH_MAX]; /* file that names the sinks of incidents; empty: none */
    char metrics[80]; /* address:port of the live page, /metrics and /healthz; empty: off */
    /* the setting `record` as given; config_record() turns it into a path */
    char record[CONFIG_PATH_MAX];
    int64_t record_mib;
} ControllerConfig;

/* Returns -ECANCELED after --help or --version, which only print. */
int config_parse_arguments(int argc, char *argv[], SettingsCall *ret, Error *err);

int config_load(const SettingsCall *call, ControllerConfig *ret, Error *err);

/* Works as settings_reload(). */
void config_reload(ControllerConfig *config, ControllerConfig *fresh);

/* Writes the journal's path to ret: the setting, or for a service a file in $LOGS_DIRECTORY or $STATE_DIRECTORY.
 * Returns false if nothing is to be recorded. */
bool config_record(const ControllerConfig *config, char *ret, size_t size);

/* The results borrow the strings of config. */
ClusterConfig config_cluster(const ControllerConfig *config);
ClusterLimits config_limits(const ControllerConfig *config);
/* Makes this controller's record in the election, except for the fields that only the Leader knows. */
LeaderRecord config_leader(const ControllerConfig *config);
