/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - see config.h. One table names every key once; base/json/settings.c reads the settings by that table. */
#include "controller/config/config.h"

#include "cluster/keys.h"
#include "metrics/http-server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTINGS_STRUCT ControllerConfig /* the struct that SETTING() describes */

static const Setting table[] = {
    SETTING(TEXT, cluster, 0, 0, "name of the cluster (\"default\")"),
    SETTING(TEXT, name, 0, 0, "name that is shown while it leads (the host's name)"),
    ETCD_SETTINGS(etcd),
    SETTING(WHOLE, lease_sec, 1, 600,
            "silence after which a node is taken for gone; the same everywhere (10)"),
    SETTING(WHOLE, start_deadline_sec, 1, 86400,
            "from a new world to its processes being up; then startup_sec counts (60)",
            .reloads = true),
    SETTING(WHOLE, leave_deadline_sec, 1, 86400,
            "for a resize, drain or stop to save and leave; then the job goes on (120)",
            .reloads = true),
    SETTING(
        WHOLE, max_strikes, 0, 1000,
        "deaths and hangs of one job that have it refuse a node; of two, quarantine; 0: never (5)",
        .reloads = true),
    SETTING(WHOLE, strike_window_sec, 1, 86400 * 30, "after which strikes are forgotten (600)",
            .reloads = true),
    SETTING(WHOLE, quarantine_sec, 1, 86400 * 365, "how long strikes keep a node out (3600)",
            .reloads = true),
    SETTING(WHOLE, incidents_kept, 1, 10000, "incidents kept in etcd (100)", .reloads = true),
    SETTING(WHOLE, max_nodes, 1, 10000,
            "nodes that there is room for; memory is taken at the start (1024)"),
    SETTING(WHOLE, max_jobs, 1, 1000,
            "jobs that there is room for; they count until they are deleted (64)"),
    SETTING(WHOLE, queue_patience_sec, 0, 7 * 86400,
            "a job that could run and has waited this long goes before growth and later jobs (600)",
            .reloads = true),
    SETTING(WHOLE, escalate_sec, 0, 86400,
            "an incident that stays open this long is critical; 0: never (300)", .reloads = true),
    SETTING(TEXT, admit, 0, 0, "nodes that get ranks: open, or NAME,PREFIX*,NAME@MACHINE-ID (open)",
            .reloads = true),
    SETTING(TEXT, prices, 0, 0,
            "dollars of a slot for an hour by nodes' label `price`: CLASS=12.29,CLASS*=4",
            .reloads = true),
    SETTING(FILE, alerts_file, 0, 0,
            "JSON file that names who is notified of incidents; SIGHUP reads it again"),
    SETTING(TEXT, metrics, 0, 0, "ADDRESS:PORT of the live page, /metrics and /healthz (off)"),
    SETTING(TEXT, record, 0, 0,
            "file of every event and decision, or none ($LOGS_DIRECTORY/events.jsonl)"),
    SETTING(WHOLE, record_mib, 1, 65536, "MiB of that file and the part before it (64)"),
};

static const Settings settings = {
    .table = table,
    .n = ELEMENTSOF(table),
    .program = "sdcontroller",
    .version = SDTRAIN_VERSION,
    .purpose =
        "Campaigns for leadership of a cluster; the leader decides about worlds, recovery and\n"
        "resizes. Any number may run.",
    .help_columns = 20,
    .refusal = "command line: try sdcontroller --help",
    .stray = {"command line: ", ": not an option"},
};

int config_parse_arguments(int argc, char *argv[], SettingsCall *ret, Error *err)
{
    return settings_parse_arguments(&settings, argc, argv, ret, err);
}

static int set_defaults(ControllerConfig *c, Error *err)
{
    const ClusterConfig *d = &cluster_config_default;
    *c = (ControllerConfig){.cluster = "default",
                            .admit = "open",
                            .lease_sec = (int64_t)(d->ttl_usec / USEC_PER_SEC),
                            .start_deadline_sec = (int64_t)(d->start_deadline_usec / USEC_PER_SEC),
                            .leave_deadline_sec = (int64_t)(d->leave_deadline_usec / USEC_PER_SEC),
                            .max_strikes = d->max_strikes,
                            .strike_window_sec = (int64_t)(d->strike_window_usec / USEC_PER_SEC),
                            .quarantine_sec = (int64_t)(d->quarantine_usec / USEC_PER_SEC),
                            .incidents_kept = d->incidents_kept,
                            .queue_patience_sec = (int64_t)(d->queue_patience_usec / USEC_PER_SEC),
                            .escalate_sec = (int64_t)(d->escalate_usec / USEC_PER_SEC),
                            .max_nodes = 1024,
                            .max_jobs = 64,
                            .record_mib = 64};
    if (gethostname(c->name, sizeof(c->name) - 1) < 0)
        return error_errno(err, -errno, "cannot read the host's name");

    return etcd_settings_begin(&c->etcd, err);
}

/* Refuses a malformed list: a typing error must not exclude a cluster's nodes. */
static int check_admit(const char *list, Error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.-*@, ";
    size_t n = strspn(list, allowed), n_words = 0;
    if (strcmp(list, "open") == 0)
        return 0;
    if (list[n])
        return error_set(err, -EINVAL,
                         "admit: '%c': names of nodes have a-z, 0-9, '.' and '-'; '*' stands for "
                         "any, @ is before a machine's id",
                         list[n]);
    for (const char *word = list; *word; word += n + (word[n] != '\0')) {
        const char *at = memchr(word, '@', n = strcspn(word, ", "));
        if (at && (at == word || at + 1 == word + n))
            return error_set(err, -EINVAL, "admit: \"%.*s\" is not NAME@MACHINE-ID", (int)n, word);
        if (n == 4 && strncmp(word, "open", 4) == 0)
            return error_set(err, -EINVAL, "admit: \"open\" stands alone, or \"*\" is meant");
        n_words += n > 0;
    }
    return n_words > 0 ? 0 : error_set(err, -EINVAL, "admit: empty; say open, or which nodes");
}

/* Refuses a malformed list: the slots that a wrong word should price would silently cost nothing. */
static int check_prices(const char *list, Error *err)
{
    size_t n, n_pattern;
    int64_t price;
    for (const char *word = list; *word; word += n + (word[n] != '\0')) {
        n = strcspn(word, ", ");
        if (n > 0 && !cost_parse_word(word, n, &n_pattern, &price))
            return error_set(err, -EINVAL,
                             "prices: \"%.*s\" is not CLASS=DOLLARS with at most six decimals, "
                             "from 0 to %lld",
                             (int)n, word, (long long)(COST_PRICE_MAX / COST_DOLLAR));
        if (n > 0 && n_pattern > RECORD_PRICE_CLASS_MAX)
            return error_set(err, -EINVAL, "prices: \"%.*s\" is longer than %d bytes",
                             (int)n_pattern, word, RECORD_PRICE_CLASS_MAX);
    }
    return 0;
}

int config_load(const SettingsCall *call, ControllerConfig *ret, Error *err)
{
    const char *source = call->file ? call->file : "command line";
    int r = set_defaults(ret, err);
    r = r < 0 ? r : settings_load(&settings, call->file, call->overrides, ret, err);
    r = r < 0 ? r : etcd_settings_finish(&ret->etcd, source, err);
    if (r < 0)
        return r;
    if (!name_is_valid(ret->cluster))
        return error_set(err, -EINVAL, "cluster: \"%s\" is not a name of a-z, 0-9, '.' and '-'",
                         ret->cluster);
    r = check_admit(ret->admit, err);
    r = r < 0 ? r : check_prices(ret->prices, err);
    if (r < 0)
        return error_prefix(err, r, "%s", source);
    r = ret->metrics[0] ? http_address_check(ret->metrics, err) : 0;
    return r < 0 ? error_prefix(err, r, "metrics") : 0;
}

void config_reload(ControllerConfig *config, ControllerConfig *fresh)
{
    settings_reload(&settings, config, fresh);
}

bool config_record(const ControllerConfig *c, char *ret, size_t size)
{
    if (c->record[0]) {
        (void)snprintf(ret, size, "%s", c->record);
        return strcmp(c->record, "none") != 0;
    }
    static const char *const folders[] = {"LOGS_DIRECTORY", "STATE_DIRECTORY"};
    for (size_t i = 0; i < ELEMENTSOF(folders); i++) {
        const char *folder =
            getenv(folders[i]); /* set by systemd; may name several folders, separated by ':' */
        size_t n = folder ? strcspn(folder, ":") : 0;
        if (n > 0 && snprintf(ret, size, "%.*s/events.jsonl", (int)n, folder) < (int)size)
            return true;
    }
    return false;
}

ClusterConfig config_cluster(const ControllerConfig *c)
{
    ClusterConfig config = cluster_config_default;
    config.ttl_usec = (uint64_t)c->lease_sec * USEC_PER_SEC;
    config.start_deadline_usec = (uint64_t)c->start_deadline_sec * USEC_PER_SEC;
    config.leave_deadline_usec = (uint64_t)c->leave_deadline_sec * USEC_PER_SEC;
    config.max_strikes = (int)c->max_strikes;
    config.strike_window_usec = (uint64_t)c->strike_window_sec * USEC_PER_SEC;
    config.quarantine_usec = (uint64_t)c->quarantine_sec * USEC_PER_SEC;
    config.incidents_kept = (int)c->incidents_kept;
    config.queue_patience_usec = (uint64_t)c->queue_patience_sec * USEC_PER_SEC;
    config.escalate_usec = (uint64_t)c->escalate_sec * USEC_PER_SEC;
    if (strcmp(c->admit, "open") != 0)
        memcpy(config.admit, c->admit, sizeof(config.admit));
    memcpy(config.prices, c->prices, sizeof(config.prices));
    return config;
}

ClusterLimits config_limits(const ControllerConfig *c)
{
    return (ClusterLimits){.nodes = (int)c->max_nodes,
                           .jobs = (int)c->max_jobs,
                           .reports = 4 * (int)c->max_nodes,
                           .incidents = 2 * (int)c->incidents_kept,
                           .requests = 256};
}

LeaderRecord config_leader(const ControllerConfig *c)
{
    char journal[CONFIG_PATH_MAX + 16];
    LeaderRecord record = {.max_nodes = (int)c->max_nodes,
                           .max_jobs = (int)c->max_jobs,
                           .lease_sec = (int)c->lease_sec};
    if (config_record(c, journal, sizeof(journal)))
        (void)snprintf(record.journal, sizeof(record.journal), "%s",
                       journal); /* the path may be cut: the record only shows it to people */
    (void)snprintf(record.name, sizeof(record.name), "%s", c->name);
    (void)snprintf(record.version, sizeof(record.version), "%s", SDTRAIN_VERSION);
    if (strcmp(c->admit, "open") != 0)
        memcpy(record.admit, c->admit, sizeof(record.admit));
    return record;
}
