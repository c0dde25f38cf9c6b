/* SPDX-License-Identifier: Apache-2.0 */
/* dev.c - see dev.h. */
#include "ctl/dev/dev.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json-build.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/number/hash.h"
#include "ctl/programs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { LEASE_SEC = 2 };

int dev_folder(const char *option, char ret[PATH_MAX], Error *err)
{
    const char *folder = option ? option : getenv("SDTRAIN_DEV");
    if (!folder)
        folder = "sdtrain-dev";
    if (*folder == '/') {
        (void)snprintf(ret, PATH_MAX, "%s", folder);
        return 0;
    }
    char here[PATH_MAX];
    if (!getcwd(here, sizeof(here)))
        return error_errno(err, -errno, "cannot tell the current folder");
    if (snprintf(ret, PATH_MAX, "%s/%s", here, folder) >= PATH_MAX)
        return error_set(err, -ENAMETOOLONG, "%s is too long a path", folder);
    return 0;
}

/* ---- dev.json ---- */

static json_t *process_to_json(const DevProcess *p)
{
    return json_pack("{s:i, s:s, s:i, s:I, s:i}", "kind", (int)p->kind, "name", p->name, "pid",
                     (int)p->pid, "start_ticks", (json_int_t)p->start_ticks, "metrics_port",
                     p->metrics_port);
}

static int write_json(const char *path, json_t *json, Error *err)
{
    _cleanup_free_ char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    if (!text)
        return error_set(err, -EINVAL, "%s: a path is not UTF-8", path);
    return file_write(path, text, strlen(text), 0, err);
}

int dev_save(const Dev *dev, Error *err)
{
    _cleanup_json_ json_t *processes = json_array();
    for (size_t i = 0; i < dev->n_processes; i++)
        json_array_append_new(processes, process_to_json(&dev->processes[i]));
    _cleanup_json_ json_t *root =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:O}", "v", 1, "client_port",
                  dev->client_port, "peer_port", dev->peer_port, "nodes", dev->n_nodes, "slots",
                  dev->n_slots, "controllers", dev->n_controllers, "alerts_file", dev->alerts_file,
                  "allow_exec", (int)dev->allow_exec, "processes", processes);
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/dev.json", dev->folder);
    return write_json(path, root, err);
}

int dev_forget(const Dev *dev, Error *err)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof(path), "%s/etcd/data", dev->folder);
    int r = folder_remove(path, err);
    for (size_t i = 0; i < dev->n_processes && r == 0; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s/config.json", dev->folder,
                       dev->processes[i].name);
        r = unlink(path) < 0 && errno != ENOENT ? -errno : 0;
    }
    (void)snprintf(path, sizeof(path), "%s/dev.json", dev->folder);
    if (r == 0 && unlink(path) < 0)
        r = -errno;
    return r < 0 ? error_errno(err, r, "cannot remove %s", path) : 0;
}

static int get_int(JsonReader *r, const char *key, int min, int max)
{
    int64_t v = min;
    json_get_int(r, key, JSON_REQUIRED, min, max, &v);
    return (int)v;
}

static int dev_load(Dev *dev, Error *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/dev.json", dev->folder);
    _cleanup_json_ json_t *root = NULL;
    int r = json_read_file(path, 1 << 20, &root, err);
    if (r < 0)
        return r;

    JsonReader j = json_open(path, root, JSON_ANY_KEYS, err);
    (void)get_int(&j, "v", 1, 1);
    dev->client_port = get_int(&j, "client_port", 1, 65535);
    dev->peer_port = get_int(&j, "peer_port", 1, 65535);
    dev->n_nodes = get_int(&j, "nodes", 0, DEV_NODES_MAX);
    dev->n_slots = get_int(&j, "slots", 1, 64);
    dev->n_controllers = get_int(&j, "controllers", 0, 7);
    /* The two keys may be missing, because an older sdctl did not write them. */
    (void)json_get_bool(&j, "allow_exec", JSON_OPTIONAL, &dev->allow_exec);
    (void)json_get_text(&j, "alerts_file", JSON_OPTIONAL, dev->alerts_file,
                        sizeof(dev->alerts_file));
    json_t *processes = NULL;
    if (json_get_array(&j, "processes", JSON_REQUIRED, DEV_PROCESSES_MAX, &processes))
        for (size_t i = 0; i < json_array_size(processes); i++) {
            JsonReader e = json_get_element(&j, "processes", processes, i);
            DevProcess *p = &dev->processes[dev->n_processes++];
            int64_t ticks = 0;
            p->kind = (DevKind)get_int(&e, "kind", DEV_ETCD, DEV_NODE);
            json_get_text(&e, "name", JSON_REQUIRED, p->name, sizeof(p->name));
            p->pid = get_int(&e, "pid", 0, INT32_MAX);
            json_get_int(&e, "start_ticks", JSON_REQUIRED, 0, INT64_MAX, &ticks);
            p->start_ticks = (uint64_t)ticks;
            int64_t port = 0;
            json_get_int(&e, "metrics_port", JSON_OPTIONAL, 0, 65535, &port);
            p->metrics_port = (int)port;
            json_close(&e);
        }
    return json_close(&j);
}

static int dev_lock(Dev *dev, Error *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/lock", dev->folder);
    dev->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (dev->lock_fd < 0)
        return error_errno(err, -errno, "cannot open %s", path);
    if (flock(dev->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, -EBUSY, "another sdctl dev works on %s", dev->folder);
    return 0;
}

int dev_open(const char *folder, Dev *ret, Error *err)
{
    *ret = (Dev){.lock_fd = -EBADF};
    (void)snprintf(ret->folder, sizeof(ret->folder), "%s", folder);
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/dev.json", folder);
    if (access(path, F_OK) < 0)
        return error_set(err, -ENOENT, "no cluster in %s", folder);
    int r = dev_lock(ret, err);
    if (r == 0)
        r = dev_load(ret, err);
    if (r < 0)
        dev_close(ret);
    return r;
}

void dev_close(Dev *dev) { dev->lock_fd = fd_close(dev->lock_fd); }

/* Returns a port that is free now. It is in the range of ephemeral ports, so it is unlikely that another
 * process binds the port before the caller uses it. */
static int free_port(Error *err)
{
    _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return error_errno(err, -errno, "cannot find a free port");
    return ntohs(a.sin_port);
}

/* Returns a port that stays free while its process is restarted: it is below the ephemeral range, so no outgoing
 * connection uses it. */
static int lasting_port(const Dev *dev, Error *err)
{
    enum { FIRST = 20000, N = 12000, TRIES = 200 };
    for (int i = 0; i < TRIES; i++) {
        uint16_t random;
        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
            return error_errno(err, -errno, "cannot find a free port");
        int port = FIRST + random % N;
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        bool taken = false;
        for (size_t k = 0; k < dev->n_processes; k++)
            taken |= dev->processes[k].metrics_port == port;
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (!taken && fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return port;
    }
    return error_set(err, -EADDRINUSE, "cannot find a free port from %d to %d", FIRST,
                     FIRST + N - 1);
}

static int choose_ports(Dev *dev, Error *err)
{
    dev->client_port = free_port(err);
    dev->peer_port = free_port(err);
    if (dev->client_port < 0 || dev->peer_port < 0)
        return MIN(dev->client_port, dev->peer_port);
    for (size_t i = 0; i < dev->n_processes; i++) {
        DevProcess *p = &dev->processes[i];
        p->metrics_port = p->kind == DEV_ETCD ? 0 : lasting_port(dev, err);
        if (p->metrics_port < 0)
            return p->metrics_port;
    }
    return 0;
}

static void add_process(Dev *dev, DevKind kind, const char *name, int number)
{
    DevProcess *p = &dev->processes[dev->n_processes++];
    p->kind = kind;
    if (number > 0)
        (void)snprintf(p->name, sizeof(p->name), "%s%d", name, number);
    else
        (void)snprintf(p->name, sizeof(p->name), "%s", name);
}

int dev_create(const char *folder, int n_nodes, int n_slots, int n_controllers,
               const char *alerts_file, Dev *ret, Error *err)
{
    *ret = (Dev){.lock_fd = -EBADF,
                 .n_nodes = n_nodes,
                 .n_slots = n_slots,
                 .n_controllers = n_controllers};
    (void)snprintf(ret->folder, sizeof(ret->folder), "%s", folder);
    (void)snprintf(ret->alerts_file, sizeof(ret->alerts_file), "%s", alerts_file);
    int r = folder_make(folder, err);
    if (r == 0)
        r = dev_lock(ret, err);
    if (r < 0)
        return r;
    add_process(ret, DEV_ETCD, "etcd", 0);
    for (int i = 1; i <= n_controllers; i++)
        add_process(ret, DEV_CONTROLLER, "controller", i);
    for (int i = 1; i <= n_nodes; i++)
        add_process(ret, DEV_NODE, "node", i);
    r = choose_ports(ret, err);
    if (r == 0)
        r = dev_save(ret, err);
    if (r < 0)
        dev_close(ret);
    return r;
}

/* ---- processes ---- */

/* Returns field 22 of /proc/<pid>/stat, the start time of the process; 0 when the process does not exist or is a
 * zombie. */
static uint64_t start_ticks_of(pid_t pid)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *p = strrchr(text, ')');
    if (!p || p[1] != ' ' || p[2] == 'Z')
        return 0;
    p += 2;
    for (int field = 3; field < 22 && p; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p, NULL, 10) : 0;
}

bool dev_process_alive(const DevProcess *p)
{
    return p->pid > 0 && p->start_ticks > 0 && start_ticks_of(p->pid) == p->start_ticks;
}

DevProcess *dev_find(Dev *dev, const char *name)
{
    for (size_t i = 0; i < dev->n_processes; i++)
        if (strcmp(dev->processes[i].name, name) == 0)
            return &dev->processes[i];
    return NULL;
}

/* Makes the configuration of a node. All nodes of a dev cluster share this machine, so each node gets its own machine
 * id. */
static json_t *node_config(const Dev *dev, const DevProcess *p, const char *programs)
{
    char etcd[64], metrics[64], machine[HASH_TEXT_BYTES], run_dir[PATH_MAX + 64],
        log_dir[PATH_MAX + 64], trainer[PATH_MAX + 64];
    (void)snprintf(etcd, sizeof(etcd), "127.0.0.1:%d", dev->client_port);
    (void)snprintf(metrics, sizeof(metrics), "127.0.0.1:%d", p->metrics_port);
    _cleanup_free_ char *identity = memory_format("%s/%s", dev->folder, p->name);
    (void)hash_format(hash_bytes(identity, strlen(identity)), machine);
    (void)snprintf(run_dir, sizeof(run_dir), "%s/%s/run", dev->folder, p->name);
    (void)snprintf(log_dir, sizeof(log_dir), "%s/%s/logs", dev->folder, p->name);
    (void)snprintf(trainer, sizeof(trainer), "%s/sdtrainer", programs);
    JsonBuild b = json_build();
    json_add_text(&b, "cluster", "dev");
    json_add_text(&b, "node", p->name);
    json_add_text(&b, "machine_id", machine);
    json_add_text(&b, "etcd", etcd);
    json_add_text(&b, "address", "127.0.0.1");
    json_add_int(&b, "slots", dev->n_slots);
    json_add_int(&b, "lease_sec", LEASE_SEC);
    json_add_text(&b, "run_dir", run_dir);
    json_add_text(&b, "log_dir", log_dir);
    json_add_text(&b, "trainer", trainer);
    if (dev->allow_exec) /* an older sdtraind does not know the key */
        json_add(&b, "allow_exec", json_true());
    json_add_text(&b, "metrics", metrics);
    return json_build_end(&b);
}

static json_t *controller_config(const Dev *dev, const DevProcess *p)
{
    char etcd[64], metrics[64], record[PATH_MAX + 64];
    (void)snprintf(etcd, sizeof(etcd), "127.0.0.1:%d", dev->client_port);
    (void)snprintf(metrics, sizeof(metrics), "127.0.0.1:%d", p->metrics_port);
    (void)snprintf(record, sizeof(record), "%s/%s/events.jsonl", dev->folder, p->name);
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s*}", "cluster", "dev", "name", p->name,
                     "etcd", etcd, "lease_sec", LEASE_SEC, "record", record, "metrics", metrics,
                     "alerts_file", dev->alerts_file[0] ? dev->alerts_file : NULL);
}

enum { ARGUMENTS_MAX = 24 };

typedef struct Command {
    char *arguments[ARGUMENTS_MAX];
    int n;
} Command;

static void add(Command *c, const char *format, ...) _printf_(2, 3);
static void add(Command *c, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    assert(c->n < ARGUMENTS_MAX - 1);
    if (vasprintf(&c->arguments[c->n], format, ap) < 0)
        c->arguments[c->n] = NULL;
    c->n++;
    va_end(ap);
}

static void command_clear(Command *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->arguments[i]);
}

/* Makes the command of etcd: one member that does not sync its writes to disk. A cluster for trials may lose its last
 * writes. */
static void etcd_command(const Dev *dev, Command *c)
{
    add(c, "etcd");
    add(c, "--name=dev");
    add(c, "--data-dir=%s/etcd/data", dev->folder);
    add(c, "--listen-client-urls=http://127.0.0.1:%d", dev->client_port);
    add(c, "--advertise-client-urls=http://127.0.0.1:%d", dev->client_port);
    add(c, "--listen-peer-urls=http://127.0.0.1:%d", dev->peer_port);
    add(c, "--initial-advertise-peer-urls=http://127.0.0.1:%d", dev->peer_port);
    add(c, "--initial-cluster=dev=http://127.0.0.1:%d", dev->peer_port);
    add(c, "--heartbeat-interval=50");
    add(c, "--election-timeout=500");
    add(c, "--auto-compaction-mode=revision");
    add(c, "--auto-compaction-retention=20000");
    add(c, "--unsafe-no-fsync");
    add(c, "--logger=zap");
}

static int make_command(const Dev *dev, const DevProcess *p, Command *c, Error *err)
{
    char programs[PATH_MAX], config[PATH_MAX + 64];
    int r = programs_folder(programs, err);
    if (r < 0)
        return r;
    if (p->kind == DEV_ETCD) {
        etcd_command(dev, c);
        return 0;
    }
    (void)snprintf(config, sizeof(config), "%s/%s/config.json", dev->folder, p->name);
    _cleanup_json_ json_t *json =
        p->kind == DEV_NODE ? node_config(dev, p, programs) : controller_config(dev, p);
    /* An existing configuration is kept, because a person may have edited it. */
    r = access(config, F_OK) == 0 ? 0 : write_json(config, json, err);
    if (r < 0)
        return r;
    add(c, "%s/%s", programs, p->kind == DEV_NODE ? "sdtraind" : "sdcontroller");
    add(c, "--config");
    add(c, "%s", config);
    return 0;
}

static _noreturn_ void child(const char *log, char *const *arguments)
{
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int null = open("/dev/null", O_RDONLY);
    if (fd < 0 || null < 0 || dup2(null, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        _exit(126);
    if (close_range(3, ~0U, 0) < 0 || setsid() < 0)
        _exit(126);
    execvp(arguments[0], arguments);
    dprintf(2, "cannot run %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

int dev_check_alerts(const char *name, char ret[PATH_MAX], Error *err)
{
    char programs[PATH_MAX];
    if (!realpath(name, ret))
        return error_errno(err, -errno, "--alerts %s", name);
    int r = programs_folder(programs, err);
    if (r < 0)
        return r;
    Command command = {.n = 0};
    add(&command, "%s/sdcontroller", programs);
    add(&command, "--check-config");
    add(&command, "--etcd=127.0.0.1:1"); /* required, but --check-config does not use it */
    add(&command, "--alerts-file=%s", ret);
    int status = -1;
    pid_t pid = fork(); /* safe: this process has no other thread, as in dev_start() */
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        if (null >= 0 && dup2(null, 1) >= 0) /* drops sdcontroller's report of success */
            execv(command.arguments[0], command.arguments);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        r = error_errno(err, -errno, "cannot start %s", command.arguments[0]);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        r = error_set(err, -EINVAL, "--alerts %s: sdcontroller refuses it; nothing was started",
                      name);
    command_clear(&command);
    return r;
}

int dev_start(Dev *dev, DevProcess *p, Error *err)
{
    char folder[PATH_MAX + 40], log[PATH_MAX + 40];
    /* Makes the folder for the logs of a node's ranks before the node checks its disk. */
    (void)snprintf(folder, sizeof(folder), "%s/%s%s", dev->folder, p->name,
                   p->kind == DEV_NODE ? "/logs" : "");
    (void)snprintf(log, sizeof(log), "%s/%s/log", dev->folder, p->name);
    int r = folder_make(folder, err);
    if (r < 0)
        return r;

    Command command = {.n = 0};
    r = make_command(dev, p, &command, err);
    if (r == 0) {
        /* fork() is safe: this process has no other thread and no gRPC yet, because dev verbs connect to etcd later. */
        pid_t pid = fork();
        if (pid < 0)
            r = error_errno(err, -errno, "cannot start %s", p->name);
        if (pid == 0)
            child(log, command.arguments);
        if (pid > 0) {
            p->pid = pid;
            p->start_ticks = start_ticks_of(pid);
            r = dev_save(dev, err);
        }
    }
    command_clear(&command);
    return r;
}

int dev_stop(Dev *dev, DevProcess *p, int signal_number, uint64_t timeout_usec, Error *err)
{
    _cleanup_fd_ int pidfd = p->pid > 0 ? pidfd_open(p->pid, 0) : -EBADF;
    if (pidfd >= 0 && dev_process_alive(p)) {
        struct pollfd poller = {.fd = pidfd, .events = POLLIN};
        if (pidfd_send_signal(pidfd, signal_number, NULL, 0) < 0 && errno != ESRCH)
            return error_errno(err, -errno, "cannot end %s (pid %d)", p->name, (int)p->pid);
        if (poll(&poller, 1, (int)(timeout_usec / USEC_PER_MSEC)) == 0) {
            /* This can fail only if the process has ended. */
            (void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
            if (poll(&poller, 1, 5000) == 0)
                return error_set(err, -ETIMEDOUT, "%s (pid %d) does not end even after SIGKILL",
                                 p->name, (int)p->pid);
        }
    }
    (void)waitpid(p->pid, NULL, WNOHANG); /* reaps the process if it is a child of this sdctl */
    p->pid = 0;
    p->start_ticks = 0;
    return dev_save(dev, err);
}
