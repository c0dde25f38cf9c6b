/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - see config.h. One table describes every key; base/json/settings.c reads the settings with the table. */
#include "daemon/config/config.h"

#include "base/cleanup.h"
#include "cluster/keys.h"
#include "cluster/records.h"
#include "health/xid-table.h"
#include "metrics/http-server.h"

#include <arpa/inet.h>
#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <string.h>

#define SETTINGS_STRUCT DaemonConfig /* used by SETTING() */

#define GIB 1073741824.0

static const char *const cgroup_mode[] = {"auto", "off"};

static const Setting table[] = {
    SETTING(TEXT, cluster, 0, 0, "name of the cluster (\"default\")"),
    SETTING(TEXT, node, 0, 0, "name of this node (the host's name)"),
    SETTING(TEXT, machine_id, 0, 0,
            "32 hex digits; a live name of another machine is not taken (/etc/machine-id)"),
    ETCD_SETTINGS(etcd),
    SETTING(TEXT, metrics, 0, 0, "ADDRESS:PORT of /metrics and /healthz (off)"),
    SETTING(TEXT, address, 0, 0, "where other nodes reach the ranks of this one (required)"),
    SETTING(INTEGER, slots, 1, CONFIG_SLOTS_MAX, "devices, each hosts one rank (1)"),
    SETTING(INTEGER, lease_sec, 1, 600,
            "silence after which a node is taken for gone; the same everywhere (10)"),
    SETTING(INTEGER, fence_sec, 1, 86400, "how long ranks train on without a word from etcd (600)",
            .reloads = true),
    SETTING(INTEGER, drain_sec, 0, 86400,
            "for a last checkpoint at SIGTERM; then ranks are killed (60)", .reloads = true),
    SETTING(TEXT, run_dir, 0, 0, "folder of this instance, one each (/run/sdtrain)"),
    SETTING(TEXT, log_dir, 0, 0, "folder of what ranks print (/var/log/sdtrain)"),
    SETTING(INTEGER, log_bytes, 8192, 1024 * GIB, "bytes kept of what one rank prints (64 MiB)",
            .reloads = true),
    SETTING(TEXT, trainer, 0, 0, "program of a rank (sdtrainer beside sdtraind)", .reloads = true),
    SETTING(FLAG, allow_exec, 0, 0, "true: jobs of kind exec may run programs here (false)",
            .reloads = true),
    SETTING(TEXT, runner, 0, 0, "hosts such a program (sdtrain-exec beside sdtraind)"),
    SETTING(TEXT, exec_secrets, 0, 0,
            "file of NAME=VALUE that jobs' programs may ask for (/etc/sdtrain/exec.secrets)",
            .reloads = true),
    SETTING(TEXT, exec_user, 0, 0, "user as whom such programs run, by exec_socket (sdtraind's)"),
    SETTING(TEXT, exec_socket, 0, 0,
            "socket of the units in which they run as exec_user (/run/sdtrain-exec.sock)"),
    SETTING(TEXT, exec_slice, 0, 0,
            "cgroup that holds these units (/sdtrain.slice/sdtrain-exec.slice)"),
    SETTING(CHOICE, cgroup, 0, ELEMENTSOF(cgroup_mode), "auto, or off: only process groups (auto)",
            .choices = cgroup_mode),
    SETTING(NUMBER, hang_floor_sec, 0.1, 86400, "a rank that is silent for less does not hang (5)",
            .reloads = true),
    SETTING(NUMBER, hang_factor, 2, 1000, "a rank hangs after so many median steps (10)",
            .reloads = true),
    SETTING(NUMBER, startup_sec, 0.1, 86400,
            "bound of starting and joining; twice SDTRAIN_S3_DEADLINE_SEC (600)", .reloads = true),
    SETTING(NUMBER, save_sec, 0.1, 86400, "bound of a save that ranks wait for in silence (600)",
            .reloads = true),
    SETTING(INTEGER, health_sec, 1, 86400, "between two rounds of probes (60)", .reloads = true),
    SETTING(INTEGER, probe_sec, 1, 600,
            "for one probe; then it hangs, and twice in a row isolates the node (30)",
            .reloads = true),
    SETTING(INTEGER, disk_min_bytes, 0, 1024 * 1024 * GIB,
            "free space below which the node is suspect (1 GiB)", .reloads = true),
    SETTING(INTEGER, gpus, 0, CONFIG_SLOTS_MAX,
            "GPUs that the node must have; with fewer it gets no ranks (0)"),
    SETTING(INTEGER, rdma_devices, 0, 1024,
            "EFA and other RDMA devices that the node must have (0)"),
    SETTING(TEXT, state_dir, 0, 0,
            "folder of what probes and jobs remember; one that stays (run_dir/health)"),
    SETTING(TEXT, nvml, 0, 0, "NVIDIA's library for the GPU probe (libnvidia-ml.so.1)"),
    SETTING(TEXT, kernel_log, 0, 0,
            "followed for what drivers say of devices; off: not (/dev/kmsg)"),
    SETTING(MAP, xid_actions, 0, XID_OVERRIDES_MAX,
            "ROW=ACTION in place of a row of the table of drivers' words; may be repeated",
            .reloads = true),
    SETTING(TEXT, sysfs, 0, 0, "where PCI and RDMA devices are looked for (/sys)"),
    SETTING(TEXT, spot_endpoint, 0, 0,
            "URL of AWS's instance metadata: its spot notices drain the node (off)",
            .reloads = true),
    SETTING(LIST, trainer_environment, 0, CONFIG_ENVIRONMENT_MAX,
            "KEY=VALUE of trainers' environment; may be repeated", .reloads = true),
    SETTING(TEXTS, paths_read, 0, CONFIG_PATHS_MAX,
            "folder or s3://... that jobs may read; may be repeated (all)", .reloads = true),
    SETTING(TEXTS, paths_write, 0, CONFIG_PATHS_MAX,
            "folder or s3://... that jobs may also write; may be repeated (all)", .reloads = true),
    SETTING(MAP, labels, 0, CONFIG_LABELS_MAX,
            "KEY=VALUE kept in the node's record; may be repeated", .reloads = true),
};

static const Settings settings = {
    .table = table,
    .n = ELEMENTSOF(table),
    .program = "sdtraind",
    .version = SDTRAIN_VERSION,
    .purpose = "Registers this node with its cluster and hosts the ranks that the leader gives it.",
    .help_columns = 22,
    .own = "probe",
    .own_help = "--probe NAME         run one health probe, print what it found, and exit",
    .refusal = "see sdtraind --help",
    .stray = {"unexpected argument ", "; see sdtraind --help"},
};

int config_parse_arguments(int argc, char *argv[], SettingsCall *ret, Error *err)
{
    return settings_parse_arguments(&settings, argc, argv, ret, err);
}

/* ---- defaults and checks ---- */

static int set_defaults(DaemonConfig *c, Error *err)
{
    *c = (DaemonConfig){.cluster = "default",
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
                        .probe_sec = 30,
                        .disk_min_bytes = 1 << 30,
                        .nvml = "libnvidia-ml.so.1",
                        .kernel_log = "/dev/kmsg",
                        .sysfs = "/sys",
                        .exec_secrets = "/etc/sdtrain/exec.secrets",
                        .exec_socket = "/run/sdtrain-exec.sock",
                        .exec_slice = "/sdtrain.slice/sdtrain-exec.slice"};
    if (gethostname(c->node, sizeof(c->node) - 1) < 0)
        c->node[0] = '\0';
    int r = etcd_settings_begin(&c->etcd, err);
    if (r < 0)
        return r;

    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = '\0';
        const char *folder = dirname(self);
        (void)snprintf(c->trainer, sizeof(c->trainer), "%.480s/sdtrainer", folder);
        (void)snprintf(c->runner, sizeof(c->runner), "%.480s/sdtrain-exec", folder);
    }
    return 0;
}

static bool is_machine_id(const char *text)
{
    return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

/* Returns whether host is a loopback address, an IPv4 link-local address or AWS's IPv6 metadata address. Other hosts
 * are refused, so that queries stay on this machine. */
static bool is_of_this_machine(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6, instance;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127 || ntohl(v4.s_addr) >> 16 == 0xa9fe;
    return inet_pton(AF_INET6, host, &v6) == 1 &&
           inet_pton(AF_INET6, "fd00:ec2::254", &instance) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || memcmp(&v6, &instance, sizeof(v6)) == 0);
}

/* Accepts "http://ADDRESS" and "http://ADDRESS:PORT" where is_of_this_machine() accepts ADDRESS. */
static int check_spot_endpoint(const char *source, const char *url, Error *err)
{
    static const char scheme[] = "http://";
    char host[64] = "";
    int n = 0;
    const char *rest = strncmp(url, scheme, strlen(scheme)) == 0 ? url + strlen(scheme) : "";
    if (sscanf(rest, *rest == '[' ? "[%63[0-9a-f:]]%n" : "%63[0-9.]%n", host, &n) == 1)
        rest += n;
    size_t digits = *rest == ':' ? strspn(rest + 1, "0123456789") : 0;
    unsigned long port = digits > 0 && digits < 6 ? strtoul(rest + 1, NULL, 10) : 0;
    if (!is_of_this_machine(host) || (*rest && (port < 1 || port > 65535 || rest[1 + digits])))
        return error_set(err, -EINVAL,
                         "%s: spot_endpoint: \"%s\" is not http://ADDRESS[:PORT] of this machine "
                         "itself (127.*, 169.254.*, [::1], [fd00:ec2::254])",
                         source, url);
    return 0;
}

/* Refuses a price class that the controllers' price list cannot name: the node would silently count as free of
 * charge. */
static int check_price_class(const char *source, const json_t *labels, Error *err)
{
    const char *price = json_string_value(json_object_get(labels, "price"));
    if (price && (!*price || strpbrk(price, ",= ") || strlen(price) > RECORD_PRICE_CLASS_MAX))
        return error_set(err, -EINVAL,
                         "%s: labels: price: \"%.60s\" is not a class of 1 to %d bytes without "
                         "',', '=' and ' '",
                         source, price, RECORD_PRICE_CLASS_MAX);
    return 0;
}

static int check_xid_actions(const char *source, const json_t *map, Error *err)
{
    XidOverrides overrides;
    int r = xid_overrides_read(map, &overrides, err);
    return r < 0 ? error_prefix(err, r, "%s: xid_actions", source) : 0;
}

static int check_exec_user(const char *source, DaemonConfig *c, Error *err)
{
    const struct passwd *user = getpwnam(c->exec_user);
    if (!user)
        return error_set(err, -EINVAL, "%s: exec_user: %s is not a user of this machine", source,
                         c->exec_user);
    if (user->pw_uid == 0)
        return error_set(err, -EINVAL, "%s: exec_user: programs of jobs do not run as root",
                         source);
    if (user->pw_uid == geteuid())
        return error_set(err, -EINVAL,
                         "%s: exec_user: sdtraind itself runs as %s, and programs could read its "
                         "keys; leave exec_user out if they may",
                         source, c->exec_user);
    c->exec_uid = user->pw_uid;
    return 0;
}

static int check(const char *source, DaemonConfig *c, Error *err)
{
    if (!name_is_valid(c->cluster))
        return error_set(err, -EINVAL, "%s: cluster: \"%s\" is not a name (a-z 0-9 . -)", source,
                         c->cluster);
    if (!name_is_valid(c->node))
        return error_set(err, -EINVAL, "%s: node: \"%s\" is not a name (a-z 0-9 . -)", source,
                         c->node);
    int r = etcd_settings_finish(&c->etcd, source, err);
    if (r < 0)
        return r;
    if (!*c->address)
        return error_set(err, -EINVAL,
                         "%s: address: missing; the address at which other nodes reach this one",
                         source);
    if (c->run_dir[0] != '/' || c->log_dir[0] != '/')
        return error_set(err, -EINVAL, "%s: %s: %s is not an absolute path", source,
                         c->run_dir[0] != '/' ? "run_dir" : "log_dir",
                         c->run_dir[0] != '/' ? c->run_dir : c->log_dir);
    if (!*c->state_dir)
        (void)snprintf(c->state_dir, sizeof(c->state_dir), "%.500s/health", c->run_dir);
    if (c->state_dir[0] != '/')
        return error_set(err, -EINVAL, "%s: state_dir: %s is not an absolute path", source,
                         c->state_dir);
    if (access(c->trainer, X_OK) < 0)
        return error_errno(err, -errno, "%s: trainer: %s", source, c->trainer);
    if (c->allow_exec && access(c->runner, X_OK) < 0)
        return error_errno(err, -errno, "%s: allow_exec: runner: %s", source, c->runner);
    if (*c->exec_user && (c->exec_socket[0] != '/' || c->exec_slice[0] != '/'))
        return error_set(err, -EINVAL, "%s: %s: %s is not an absolute path", source,
                         c->exec_socket[0] != '/' ? "exec_socket" : "exec_slice",
                         c->exec_socket[0] != '/' ? c->exec_socket : c->exec_slice);
    if (*c->exec_user && (r = check_exec_user(source, c, err)) < 0)
        return r;
    if (!*c->machine_id) {
        r = settings_read_line("/etc/machine-id", c->machine_id, sizeof(c->machine_id), err);
        if (r < 0)
            return error_prefix(err, r, "%s: machine_id: missing", source);
    }
    if (!is_machine_id(c->machine_id))
        return error_set(err, -EINVAL, "%s: machine_id: \"%s\" is not 32 hexadecimal digits",
                         source, c->machine_id);
    if (*c->metrics) {
        r = http_address_check(c->metrics, err);
        if (r < 0)
            return error_prefix(err, r, "%s: metrics", source);
    }
    if (*c->spot_endpoint) {
        r = check_spot_endpoint(source, c->spot_endpoint, err);
        if (r < 0)
            return r;
    }
    r = check_xid_actions(source, c->xid_actions, err);
    return r < 0 ? r : check_price_class(source, c->labels, err);
}

int config_load(const SettingsCall *call, DaemonConfig *ret, Error *err)
{
    _cleanup_(config_clear) DaemonConfig config = {0};
    int r = set_defaults(&config, err);
    r = r < 0 ? r : settings_load(&settings, call->file, call->overrides, &config, err);
    r = r < 0 ? r : check(call->file ? call->file : "command line", &config, err);
    if (r < 0)
        return r;

    *ret = config;
    config = (DaemonConfig){0};
    return 0;
}

void config_clear(DaemonConfig *config)
{
    json_decref(config->trainer_environment);
    json_decref(config->labels);
    json_decref(config->xid_actions);
    json_decref(config->paths_read);
    json_decref(config->paths_write);
    config->trainer_environment = config->labels = config->xid_actions = NULL;
    config->paths_read = config->paths_write = NULL;
}

void config_reload(DaemonConfig *config, DaemonConfig *fresh)
{
    settings_reload(&settings, config, fresh);
}
