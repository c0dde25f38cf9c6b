/* config.c - see config.h.
 *
 * One table names every key once; the file and the command line are read through it.
 */
#include "daemon/config.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cluster/keys.h"

#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <string.h>

typedef enum SettingKind { TEXT, INTEGER, NUMBER, CHOICE, LIST, MAP } SettingKind;

typedef struct Setting {
    const char *key;
    SettingKind kind;
    size_t offset, size;
    double min, max;
    bool reloads;
    const char *help;
} Setting;

#define AT(field) offsetof(Config, field), sizeof(((Config *)0)->field)
#define GIB 1073741824.0

static const Setting settings[] = {
    {"cluster", TEXT, AT(cluster), 0, 0, false, "name of the cluster (\"default\")"},
    {"node", TEXT, AT(node), 0, 0, false, "name of this node (the host's name)"},
    {"machine_id", TEXT, AT(machine_id), 0, 0, false, "32 hex digits (/etc/machine-id)"},
    {"etcd", TEXT, AT(etcd), 0, 0, false, "endpoints, HOST:PORT,... ($SDTRAIN_ETCD)"},
    {"etcd_ca", TEXT, AT(etcd_ca), 0, 0, false, "PEM file of the authority; turns TLS on"},
    {"etcd_cert", TEXT, AT(etcd_cert), 0, 0, false, "PEM file of this client's certificate"},
    {"etcd_key", TEXT, AT(etcd_key), 0, 0, false, "PEM file of its key"},
    {"etcd_tls_name", TEXT, AT(etcd_tls_name), 0, 0, false, "name in the members' certificates"},
    {"etcd_user", TEXT, AT(etcd_user), 0, 0, false, "user of etcd's authentication"},
    {"etcd_password_file", TEXT, AT(etcd_password_file), 0, 0, false, "file with its password"},
    {"address", TEXT, AT(address), 0, 0, false, "where other nodes reach the ranks of this one"},
    {"slots", INTEGER, AT(slots), 1, CONFIG_SLOTS_MAX, false, "devices that can host a rank (1)"},
    {"lease_sec", INTEGER, AT(lease_sec), 1, 600, false, "silence after which a node is gone (10)"},
    {"fence_sec", INTEGER, AT(fence_sec), 1, 86400, true, "training on without etcd (600)"},
    {"drain_sec", INTEGER, AT(drain_sec), 0, 86400, true, "for a last checkpoint at SIGTERM (60)"},
    {"run_dir", TEXT, AT(run_dir), 0, 0, false, "state of this instance (/run/sdtrain)"},
    {"log_dir", TEXT, AT(log_dir), 0, 0, false, "what ranks print (/var/log/sdtrain)"},
    {"log_bytes", INTEGER, AT(log_bytes), 8192, 1024 * GIB, true, "kept of one rank (64 MiB)"},
    {"trainer", TEXT, AT(trainer), 0, 0, true, "the program (sdtrainer beside sdtraind)"},
    {"cgroup", CHOICE, AT(cgroup), 0, 0, false, "auto, or off: process groups alone"},
    {"hang_floor_sec", NUMBER, AT(hang_floor_sec), 0.1, 86400, true, "no hang before this (5)"},
    {"hang_factor", NUMBER, AT(hang_factor), 2, 1000, true, "hang, in median steps (10)"},
    {"startup_sec", NUMBER, AT(startup_sec), 0.1, 86400, true, "start, restore, join (600)"},
    {"save_sec", NUMBER, AT(save_sec), 0.1, 86400, true, "a save that ranks wait for (600)"},
    {"health_sec", INTEGER, AT(health_sec), 1, 86400, true, "between two rounds of probes (60)"},
    {"disk_min_bytes", INTEGER, AT(disk_min_bytes), 0, 1024 * 1024 * GIB, true,
     "free space below which the node is suspect (1 GiB)"},
    {"trainer_environment", LIST, AT(trainer_environment), 0, 0, true, "KEY=VALUE for trainers"},
    {"labels", MAP, AT(labels), 0, 0, true, "KEY=VALUE of this node"},
};

static const char *const cgroup_mode[] = {"auto", "off"};

enum { OPTION_CONFIG = 256, OPTION_CHECK, OPTION_PROBE, OPTION_HELP, OPTION_VERSION, OPTION_FIRST };

/* ---- the command line ---- */

static int override_append(json_t *overrides, const Setting *s, const char *value, Error *err)
{
    const char *equals = strchr(value, '=');
    if (!equals || equals == value)
        return error_set(err, -EINVAL, "command line: %s: %s is not KEY=VALUE", s->key, value);

    json_t *list = json_object_get(overrides, s->key);
    if (!list) {
        list = s->kind == LIST ? json_array() : json_object();
        if (json_object_set_new(overrides, s->key, list) < 0)
            return error_set(err, -ENOMEM, "command line: %s: not UTF-8, or no memory", s->key);
    }
    _cleanup_free_ char *name = strndup(value, (size_t)(equals - value));
    int r = !name             ? -1
            : s->kind == LIST ? json_array_append_new(list, json_string(value))
                              : json_object_set_new(list, name, json_string(equals + 1));
    return r < 0 ? error_set(err, -EINVAL, "command line: %s: %s is not UTF-8", s->key, value) : 0;
}

static int override_set(json_t *overrides, const Setting *s, const char *value, Error *err)
{
    if (s->kind == LIST || s->kind == MAP)
        return override_append(overrides, s, value, err);

    json_t *json = NULL;
    if (s->kind == INTEGER || s->kind == NUMBER) {
        char *end;
        errno = 0;
        double number = strtod(value, &end);
        if (end == value || *end != '\0' || errno != 0 || !isfinite(number))
            return error_set(err, -EINVAL, "command line: %s: %s is not a number", s->key, value);
        json = json_real(number);
    } else {
        json = json_string(value);
    }
    if (json_object_set_new(overrides, s->key, json) < 0)
        return error_set(err, -EINVAL, "command line: %s: %s is not UTF-8", s->key, value);
    return 0;
}

static void print_help(void)
{
    printf("sdtraind [OPTION...]\n\n"
           "Registers this node with its cluster and hosts the ranks that the leader gives it.\n\n"
           "      --config FILE        read these settings from a JSON object first\n"
           "      --check-config       say whether the settings are good, and exit\n"
           "      --probe NAME         run one health probe, print what it found, and exit\n"
           "      --help, --version\n\n");
    for (size_t i = 0; i < ELEMENTSOF(settings); i++) {
        char option[40];
        (void)snprintf(option, sizeof(option), "%s", settings[i].key);
        for (char *c = option; *c; c++)
            *c = *c == '_' ? '-' : *c;
        printf("      --%-22s %s\n", option, settings[i].help);
    }
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
    case OPTION_PROBE:
        call->probe = optarg;
        return 0;
    case OPTION_HELP:
        print_help();
        return -ECANCELED;
    case OPTION_VERSION:
        printf("sdtraind %s\n", SDTRAIN_VERSION);
        return -ECANCELED;
    case '?':
        return error_set(err, -EINVAL, "see sdtraind --help");
    default:
        return override_set(call->overrides, &settings[option - OPTION_FIRST], optarg, err);
    }
}

int config_parse_arguments(int argc, char *argv[], ConfigCall *ret, Error *err)
{
    enum { FIXED = 5 };
    static struct option options[FIXED + ELEMENTSOF(settings) + 1] = {
        {"config", required_argument, NULL, OPTION_CONFIG},
        {"check-config", no_argument, NULL, OPTION_CHECK},
        {"probe", required_argument, NULL, OPTION_PROBE},
        {"help", no_argument, NULL, OPTION_HELP},
        {"version", no_argument, NULL, OPTION_VERSION},
    };
    static char names[ELEMENTSOF(settings)][40];
    for (size_t i = 0; i < ELEMENTSOF(settings); i++) {
        (void)snprintf(names[i], sizeof(names[i]), "%s", settings[i].key);
        for (char *c = names[i]; *c; c++)
            *c = *c == '_' ? '-' : *c;
        options[FIXED + i] =
            (struct option){names[i], required_argument, NULL, OPTION_FIRST + (int)i};
    }

    ConfigCall call = {.overrides = json_object()};
    optind = 0; /* glibc: start afresh, for a second call */
    int option, r = 0;
    while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1)
        r = parse_option(option, &call, err);
    if (r == 0 && optind < argc)
        r = error_set(err, -EINVAL, "unexpected argument %s; see sdtraind --help", argv[optind]);
    if (r < 0) {
        config_call_clear(&call);
        return r;
    }
    *ret = call;
    return 0;
}

void config_call_clear(ConfigCall *call)
{
    json_decref(call->overrides);
    call->overrides = NULL;
}

/* ---- reading ---- */

static void read_list(JsonReader *r, const Setting *s, json_t **field)
{
    json_t *list;
    if (!json_get_array(r, s->key, JSON_OPTIONAL, CONFIG_ENVIRONMENT_MAX, &list))
        return;

    size_t i;
    json_t *one;
    json_array_foreach (list, i, one) {
        const char *text = json_string_value(one);
        if (!text || !strchr(text, '=') || *text == '=') {
            json_refuse(r, s->key, "element %zu is not a string \"KEY=VALUE\"", i);
            return;
        }
    }
    json_decref(*field);
    *field = json_incref(list);
}

static void read_map(JsonReader *r, const Setting *s, json_t **field)
{
    json_t *map, *one;
    const char *key;
    if (!json_get_any(r, s->key, JSON_OPTIONAL, &map))
        return;
    if (!json_is_object(map) || json_object_size(map) > CONFIG_LABELS_MAX) {
        json_refuse(r, s->key, "expected an object of at most %d strings", CONFIG_LABELS_MAX);
        return;
    }
    json_object_foreach (map, key, one)
        if (!json_is_string(one)) {
            json_refuse(r, s->key, "the value of %s is not a string", key);
            return;
        }
    json_decref(*field);
    *field = json_incref(map);
}

static void read_setting(JsonReader *r, const Setting *s, Config *config)
{
    void *field = (char *)config + s->offset;
    switch (s->kind) {
    case TEXT:
        (void)json_get_text(r, s->key, JSON_OPTIONAL, field,
                            s->size); /* absent keeps the default */
        break;
    case INTEGER:
        (void)json_get_int(r, s->key, JSON_OPTIONAL, (int64_t)s->min, (int64_t)s->max, field);
        break;
    case NUMBER:
        (void)json_get_double(r, s->key, JSON_OPTIONAL, s->min, s->max, field);
        break;
    case CHOICE:
        (void)json_get_choice(r, s->key, JSON_OPTIONAL, cgroup_mode, ELEMENTSOF(cgroup_mode),
                              field);
        break;
    case LIST:
        read_list(r, s, field);
        break;
    case MAP:
        read_map(r, s, field);
        break;
    }
}

static int read_settings(const char *source, json_t *object, Config *config, Error *err)
{
    JsonReader r = json_open(source, object, JSON_KNOWN_KEYS, err);
    for (size_t i = 0; i < ELEMENTSOF(settings); i++)
        read_setting(&r, &settings[i], config);
    return json_close(&r);
}

/* ---- defaults and checks ---- */

static int read_first_line(const char *path, char *ret, size_t size, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = file_read(path, 4096, &text, &n_bytes, err);
    if (r < 0)
        return r;
    text[strcspn(text, "\n")] = '\0';
    if (strlen(text) >= size)
        return error_set(err, -EINVAL, "%s: its first line is longer than %zu bytes", path,
                         size - 1);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

static int set_defaults(Config *c, Error *err)
{
    *c = (Config){.cluster = "default",
                  .slots = 1,
                  .lease_sec = 10,
                  .fence_sec = 600,
                  .drain_sec = 60,
                  .run_dir = "/run/sdtrain",
                  .log_dir = "/var/log/sdtrain",
                  .log_bytes = 64 << 20,
                  .hang_floor_sec = 5,
                  .hang_factor = 10,
                  .startup_sec = 600,
                  .save_sec = 600,
                  .health_sec = 60,
                  .disk_min_bytes = 1 << 30};
    if (gethostname(c->node, sizeof(c->node) - 1) < 0)
        c->node[0] = '\0';
    const char *endpoints = getenv("SDTRAIN_ETCD");
    if (endpoints && strlen(endpoints) >= sizeof(c->etcd))
        return error_set(err, -EINVAL, "SDTRAIN_ETCD: longer than %zu bytes", sizeof(c->etcd) - 1);
    if (endpoints)
        (void)snprintf(c->etcd, sizeof(c->etcd), "%s", endpoints);

    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = '\0';
        (void)snprintf(c->trainer, sizeof(c->trainer), "%.480s/sdtrainer", dirname(self));
    }
    return 0;
}

static bool is_machine_id(const char *text)
{
    return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static int check(const char *source, Config *c, Error *err)
{
    if (!name_is_valid(c->cluster))
        return error_set(err, -EINVAL, "%s: cluster: \"%s\" is not a name (a-z 0-9 . -)", source,
                         c->cluster);
    if (!name_is_valid(c->node))
        return error_set(err, -EINVAL, "%s: node: \"%s\" is not a name (a-z 0-9 . -)", source,
                         c->node);
    if (!*c->etcd)
        return error_set(err, -EINVAL,
                         "%s: etcd: missing; name the endpoints here or in SDTRAIN_ETCD", source);
    if (!*c->address)
        return error_set(err, -EINVAL,
                         "%s: address: missing; the address at which other nodes reach this one",
                         source);
    if (*c->etcd_cert && !*c->etcd_key)
        return error_set(err, -EINVAL, "%s: etcd_key: missing, though etcd_cert is %s", source,
                         c->etcd_cert);
    if (c->run_dir[0] != '/' || c->log_dir[0] != '/')
        return error_set(err, -EINVAL, "%s: %s: %s is not an absolute path", source,
                         c->run_dir[0] != '/' ? "run_dir" : "log_dir",
                         c->run_dir[0] != '/' ? c->run_dir : c->log_dir);
    if (access(c->trainer, X_OK) < 0)
        return error_errno(err, -errno, "%s: trainer: %s", source, c->trainer);
    if (!*c->machine_id) {
        int r = read_first_line("/etc/machine-id", c->machine_id, sizeof(c->machine_id), err);
        if (r < 0)
            return error_prefix(err, r, "%s: machine_id: missing", source);
    }
    if (!is_machine_id(c->machine_id))
        return error_set(err, -EINVAL, "%s: machine_id: \"%s\" is not 32 hexadecimal digits",
                         source, c->machine_id);
    if (*c->etcd_password_file) {
        int r =
            read_first_line(c->etcd_password_file, c->etcd_password, sizeof(c->etcd_password), err);
        if (r < 0)
            return error_prefix(err, r, "%s: etcd_password_file", source);
    }
    return 0;
}

int config_load(const ConfigCall *call, Config *ret, Error *err)
{
    _cleanup_(config_clear) Config config = {0};
    int r = set_defaults(&config, err);
    if (r < 0)
        return r;

    if (call->file) {
        _cleanup_json_ json_t *root = NULL;
        r = json_read_file(call->file, 1 << 20, &root, err);
        if (r < 0)
            return r;
        r = read_settings(call->file, root, &config, err);
        if (r < 0)
            return r;
    }
    r = read_settings("command line", call->overrides, &config, err);
    if (r < 0)
        return r;
    r = check(call->file ? call->file : "command line", &config, err);
    if (r < 0)
        return r;

    *ret = config;
    config = (Config){0};
    return 0;
}

void config_clear(Config *config)
{
    json_decref(config->trainer_environment);
    json_decref(config->labels);
    config->trainer_environment = config->labels = NULL;
}

static bool is_same(const Setting *s, const Config *a, const Config *b)
{
    const void *x = (const char *)a + s->offset, *y = (const char *)b + s->offset;
    if (s->kind == TEXT)
        return strcmp(x, y) == 0;
    return memcmp(x, y, s->size) == 0; /* lists reload, so they are never compared */
}

void config_reload(Config *config, Config *fresh)
{
    for (size_t i = 0; i < ELEMENTSOF(settings); i++) {
        const Setting *s = &settings[i];
        void *field = (char *)config + s->offset, *other = (char *)fresh + s->offset;
        if (!s->reloads) {
            if (!is_same(s, config, fresh))
                log_warning("%s changed; it takes effect when sdtraind restarts", s->key);
            continue;
        }
        char swap[CONFIG_PATH_MAX];
        assert(s->size <= sizeof(swap));
        memcpy(swap, field, s->size);
        memcpy(field, other, s->size);
        memcpy(other, swap, s->size); /* what was replaced is freed with fresh */
    }
}
