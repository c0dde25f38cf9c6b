/* config.c - see config.h. One table names every key once; file and command line go through it. */
#include "controller/config.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "cluster/keys.h"

#include <getopt.h>
#include <string.h>

typedef struct Setting {
    const char *key;
    bool is_text;
    size_t offset, size;
    int64_t min, max;
    const char *help;
} Setting;

#define AT(field) offsetof(Config, field), sizeof(((Config *)0)->field)

static const Setting settings[] = {
    {"cluster", true, AT(cluster), 0, 0, "name of the cluster (\"default\")"},
    {"name", true, AT(name), 0, 0, "name of this controller (the host's name)"},
    {"etcd", true, AT(etcd), 0, 0, "endpoints, HOST:PORT,... ($SDTRAIN_ETCD)"},
    {"etcd_ca", true, AT(etcd_ca), 0, 0, "PEM file of the authority; turns TLS on"},
    {"etcd_cert", true, AT(etcd_cert), 0, 0, "PEM file of this client's certificate"},
    {"etcd_key", true, AT(etcd_key), 0, 0, "PEM file of its key"},
    {"etcd_tls_name", true, AT(etcd_tls_name), 0, 0, "name in the members' certificates"},
    {"etcd_user", true, AT(etcd_user), 0, 0, "user of etcd's authentication"},
    {"etcd_password_file", true, AT(etcd_password_file), 0, 0, "file with its password"},
    {"lease_sec", false, AT(lease_sec), 1, 600, "silence after which a node is gone (10)"},
    {"start_deadline_sec", false, AT(start_deadline_sec), 1, 86400,
     "from a new world to its ranks being ready (60)"},
    {"leave_deadline_sec", false, AT(leave_deadline_sec), 1, 86400,
     "for a resize, drain or stop to save and leave (120)"},
    {"max_strikes", false, AT(max_strikes), 0, 1000,
     "deaths of trainers that quarantine a node; 0 never (5)"},
    {"strike_window_sec", false, AT(strike_window_sec), 1, 86400 * 30,
     "after which strikes are forgotten (600)"},
    {"quarantine_sec", false, AT(quarantine_sec), 1, 86400 * 365,
     "how long strikes keep a node out (3600)"},
    {"incidents_kept", false, AT(incidents_kept), 1, 10000, "incidents kept in etcd (100)"},
    {"max_nodes", false, AT(max_nodes), 1, 10000, "nodes that there is room for (1024)"},
    {"max_jobs", false, AT(max_jobs), 1, 1000, "jobs that there is room for (64)"},
    {"record", true, AT(record), 0, 0, "file to append every input event to"},
};

enum { OPTION_CONFIG = 256, OPTION_CHECK, OPTION_HELP, OPTION_VERSION, OPTION_FIRST };

/* ---- the command line ---- */

static int override_set(json_t *overrides, const Setting *s, const char *value, Error *err)
{
    json_t *json = NULL;
    if (s->is_text) {
        json = json_string(value);
    } else {
        char *end;
        errno = 0;
        long long number = strtoll(value, &end, 10);
        if (end == value || *end != '\0' || errno != 0)
            return error_set(err, -EINVAL, "command line: %s: %s is not a whole number", s->key,
                             value);
        json = json_integer(number);
    }
    if (json_object_set_new(overrides, s->key, json) < 0)
        return error_set(err, -EINVAL, "command line: %s: %s is not UTF-8", s->key, value);
    return 0;
}

static const char *option_of(const Setting *s, char ret[40])
{
    (void)snprintf(ret, 40, "%s", s->key);
    for (char *c = ret; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return ret;
}

static void print_help(void)
{
    printf("sdcontroller [OPTION...]\n\n"
           "Campaigns for leadership of a cluster; the leader decides about worlds, recovery and\n"
           "resizes. Any number may run.\n\n"
           "      --config FILE        read these settings from a JSON object first\n"
           "      --check-config       say whether the settings are good, and exit\n"
           "      --help, --version\n\n");
    char option[40];
    for (size_t i = 0; i < ELEMENTSOF(settings); i++)
        printf("      --%-20s %s\n", option_of(&settings[i], option), settings[i].help);
}

static int parse_option(int option, ConfigCall *call, Error *err)
{
    switch (option) {
    case OPTION_CONFIG:
        call->file = optarg;
        return 0;
    case OPTION_CHECK:
        call->check = true;
        return 0;
    case OPTION_HELP:
        print_help();
        return -ECANCELED;
    case OPTION_VERSION:
        printf("sdcontroller 0.1.0\n");
        return -ECANCELED;
    default:
        break;
    }
    if (option < OPTION_FIRST)
        return error_set(err, -EINVAL, "command line: try sdcontroller --help");
    return override_set(call->overrides, &settings[option - OPTION_FIRST], optarg, err);
}

int config_parse_arguments(int argc, char *argv[], ConfigCall *ret, Error *err)
{
    static char names[ELEMENTSOF(settings)][40];
    struct option options[ELEMENTSOF(settings) + 5] = {
        {"config", required_argument, NULL, OPTION_CONFIG},
        {"check-config", no_argument, NULL, OPTION_CHECK},
        {"help", no_argument, NULL, OPTION_HELP},
        {"version", no_argument, NULL, OPTION_VERSION},
    };
    for (size_t i = 0; i < ELEMENTSOF(settings); i++)
        options[4 + i] = (struct option){option_of(&settings[i], names[i]), required_argument, NULL,
                                         OPTION_FIRST + (int)i};

    *ret = (ConfigCall){.overrides = json_object()};
    if (!ret->overrides)
        return error_set(err, -ENOMEM, "out of memory");
    optind = 0;
    int option, r = 0;
    while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) >= 0)
        r = parse_option(option, ret, err);
    if (r == 0 && optind < argc)
        r = error_set(err, -EINVAL, "command line: %s: not an option", argv[optind]);
    if (r < 0)
        config_call_clear(ret);
    return r;
}

void config_call_clear(ConfigCall *call)
{
    json_decref(call->overrides);
    *call = (ConfigCall){0};
}

/* ---- values ---- */

static int read_settings(const char *source, json_t *root, Config *config, Error *err)
{
    JsonReader r = json_open(source, root, JSON_KNOWN_KEYS, err);
    for (size_t i = 0; i < ELEMENTSOF(settings); i++) {
        const Setting *s = &settings[i];
        void *at = (char *)config + s->offset;
        if (s->is_text)
            json_get_text(&r, s->key, JSON_OPTIONAL, at, s->size);
        else
            json_get_int(&r, s->key, JSON_OPTIONAL, s->min, s->max, at);
    }
    return json_close(&r);
}

static int set_defaults(Config *c, Error *err)
{
    const ClusterConfig *d = &cluster_config_default;
    *c = (Config){.cluster = "default",
                  .lease_sec = (int64_t)(d->ttl_usec / USEC_PER_SEC),
                  .start_deadline_sec = (int64_t)(d->start_deadline_usec / USEC_PER_SEC),
                  .leave_deadline_sec = (int64_t)(d->leave_deadline_usec / USEC_PER_SEC),
                  .max_strikes = d->max_strikes,
                  .strike_window_sec = (int64_t)(d->strike_window_usec / USEC_PER_SEC),
                  .quarantine_sec = (int64_t)(d->quarantine_usec / USEC_PER_SEC),
                  .incidents_kept = d->incidents_kept,
                  .max_nodes = 1024,
                  .max_jobs = 64};
    if (gethostname(c->name, sizeof(c->name) - 1) < 0)
        return error_errno(err, -errno, "cannot read the host's name");

    EtcdOptions from_environment;
    int r = etcd_options_from_environment(&from_environment, err);
    if (r < 0)
        return r;
    const struct {
        const char *from;
        char *to;
        size_t size;
    } texts[] = {
        {from_environment.endpoints, c->etcd, sizeof(c->etcd)},
        {from_environment.ca_file, c->etcd_ca, sizeof(c->etcd_ca)},
        {from_environment.cert_file, c->etcd_cert, sizeof(c->etcd_cert)},
        {from_environment.key_file, c->etcd_key, sizeof(c->etcd_key)},
        {from_environment.tls_name, c->etcd_tls_name, sizeof(c->etcd_tls_name)},
        {from_environment.user, c->etcd_user, sizeof(c->etcd_user)},
        {from_environment.password, c->etcd_password, sizeof(c->etcd_password)},
    };
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if (texts[i].from &&
            (size_t)snprintf(texts[i].to, texts[i].size, "%s", texts[i].from) >= texts[i].size)
            return error_set(err, -EINVAL, "environment: %.40s... is too long", texts[i].from);
    return 0;
}

static int read_password(Config *config, Error *err)
{
    if (!config->etcd_password_file[0])
        return 0;
    _cleanup_free_ char *text = NULL;
    size_t n;
    int r =
        file_read(config->etcd_password_file, sizeof(config->etcd_password) - 1, &text, &n, err);
    if (r < 0)
        return error_prefix(err, r, "etcd_password_file");
    text[strcspn(text, "\r\n")] = '\0';
    (void)snprintf(config->etcd_password, sizeof(config->etcd_password), "%s", text);
    return 0;
}

int config_load(const ConfigCall *call, Config *ret, Error *err)
{
    int r = set_defaults(ret, err);
    if (r < 0)
        return r;
    if (call->file) {
        _cleanup_json_ json_t *root = NULL;
        r = json_read_file(call->file, 1 << 20, &root, err);
        r = r < 0 ? r : read_settings(call->file, root, ret, err);
        if (r < 0)
            return r;
    }
    r = read_settings("command line", call->overrides, ret, err);
    r = r < 0 ? r : read_password(ret, err);
    if (r < 0)
        return r;
    if (!name_is_valid(ret->cluster))
        return error_set(err, -EINVAL, "cluster: \"%s\" is not a name of a-z, 0-9, '.' and '-'",
                         ret->cluster);
    if (!ret->etcd[0])
        return error_set(err, -EINVAL, "etcd: missing; say --etcd HOST:PORT or set SDTRAIN_ETCD");
    return 0;
}

EtcdOptions config_etcd(const Config *c)
{
    return (EtcdOptions){.endpoints = c->etcd,
                         .ca_file = c->etcd_ca[0] ? c->etcd_ca : NULL,
                         .cert_file = c->etcd_cert[0] ? c->etcd_cert : NULL,
                         .key_file = c->etcd_key[0] ? c->etcd_key : NULL,
                         .tls_name = c->etcd_tls_name[0] ? c->etcd_tls_name : NULL,
                         .user = c->etcd_user[0] ? c->etcd_user : NULL,
                         .password = c->etcd_password[0] ? c->etcd_password : NULL};
}

ClusterConfig config_cluster(const Config *c)
{
    ClusterConfig config = cluster_config_default;
    config.ttl_usec = (uint64_t)c->lease_sec * USEC_PER_SEC;
    config.start_deadline_usec = (uint64_t)c->start_deadline_sec * USEC_PER_SEC;
    config.leave_deadline_usec = (uint64_t)c->leave_deadline_sec * USEC_PER_SEC;
    config.max_strikes = (int)c->max_strikes;
    config.strike_window_usec = (uint64_t)c->strike_window_sec * USEC_PER_SEC;
    config.quarantine_usec = (uint64_t)c->quarantine_sec * USEC_PER_SEC;
    config.incidents_kept = (int)c->incidents_kept;
    return config;
}

ClusterLimits config_limits(const Config *c)
{
    return (ClusterLimits){.nodes = (int)c->max_nodes,
                           .jobs = (int)c->max_jobs,
                           .reports = 4 * (int)c->max_nodes,
                           .incidents = 2 * (int)c->incidents_kept,
                           .requests = 256};
}
