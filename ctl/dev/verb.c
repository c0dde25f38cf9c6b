/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c - `sdctl dev`: runs a cluster for trials and tests on this machine, with its files in one folder. */
#include "ctl/dev/dev.h"

#include "base/clock.h"
#include "base/text/nearest.h"
#include "cluster/keys.h"
#include "cluster/records.h"
#include "ctl/arguments.h"
#include "ctl/dev/verbs.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>

static_assert(DEV_NODES_MAX == 64, "as --nodes says");

enum {
    REGISTER_SEC = 30,
    STOP_SEC = 5,
    LEAVE_SEC = 60
}; /* LEAVE_SEC is long, because a node's ranks finish a step and save before the node ends */

typedef struct Registration {
    const Dev *dev;
    const bool *started; /* started[i]: this call started process i, at from_usec or later */
    uint64_t from_usec;
    bool up[DEV_PROCESSES_MAX];
    int missing;
    bool leader;
    const DevProcess *dead;
} Registration;

/* Tells whether a node's record was written by the process that this call started. The record of a node that was killed
 * shortly before remains until its lease ends, so it does not show that the new process has registered. */
static bool is_of_this_life(const Registration *g, size_t i, const EtcdEvent *event)
{
    NodeRecord record;
    Error err = ERROR_INIT;
    return !g->started[i] || (node_record_decode(event->kv.key, event->kv.value, event->kv.n_value,
                                                 &record, &err) == 0 &&
                              record.incarnation >= g->from_usec);
}

static int on_dev_record(const EtcdEvent *event, void *userdata)
{
    Registration *g = userdata;
    if (!event)
        return g->missing == 0 && g->leader ? 1 : 0;

    KeyKind kind;
    const char *rest;
    if (key_parse("dev", event->kv.key, &kind, &rest) < 0 || event->kind != ETCD_EVENT_PUT)
        return 0;
    if (kind == KEY_LEADER)
        g->leader = true;
    for (size_t i = 0; kind == KEY_NODES && i < g->dev->n_processes; i++)
        if (strcmp(g->dev->processes[i].name, rest) == 0 && !g->up[i] &&
            is_of_this_life(g, i, event)) {
            g->up[i] = true;
            g->missing--;
        }
    return 0;
}

static int on_death(sd_event_source *source, int fd, _unused_ uint32_t revents, void *userdata)
{
    Registration *g = userdata;
    for (size_t i = 0; i < g->dev->n_processes; i++)
        if (!dev_process_alive(&g->dev->processes[i]))
            g->dead = &g->dev->processes[i];
    (void)fd;
    return sd_event_exit(sd_event_source_get_event(source), 1);
}

/* Watches all processes, so that the wait for registrations ends at once when a process dies. */
static int watch_processes(CtlClient *client, Registration *g, Error *err)
{
    for (size_t i = 0; i < g->dev->n_processes; i++) {
        int pidfd = pidfd_open(g->dev->processes[i].pid, 0);
        sd_event_source *source = NULL;
        int r = pidfd < 0 ? -errno
                          : sd_event_add_io(client->event, &source, pidfd, EPOLLIN, on_death, g);
        if (r >= 0)
            r = sd_event_source_set_io_fd_own(source, true);
        else
            (void)fd_close(pidfd);
        if (r >= 0)
            r = sd_event_source_set_floating(source, true);
        sd_event_source_unref(source);
        if (r == -ESRCH)
            return error_set(err, r, "%s ended at once: see %s/%s/log", g->dev->processes[i].name,
                             g->dev->folder, g->dev->processes[i].name);
        if (r < 0)
            return error_errno(err, r, "cannot watch %s", g->dev->processes[i].name);
    }
    return 0;
}

static int judge_registration(const Registration *g, int r, Error *err)
{
    const char *folder = g->dev->folder;
    if (g->dead)
        return error_set(err, -ESRCH, "%s has ended: see %s/%s/log", g->dead->name, folder,
                         g->dead->name);
    if (r != -ETIMEDOUT)
        return MIN(r, 0);
    for (size_t i = 0; i < g->dev->n_processes; i++)
        if (g->dev->processes[i].kind == DEV_NODE && !g->up[i])
            return error_set(err, r, "%s did not register within %d s: see %s/%s/log",
                             g->dev->processes[i].name, REGISTER_SEC, folder,
                             g->dev->processes[i].name);
    return error_set(err, r, "no controller leads after %d s: see %s/controller1/log", REGISTER_SEC,
                     folder);
}

/* Waits until etcd answers, a controller leads and every node has registered. */
static int wait_registered(const Dev *dev, const bool *started, uint64_t from_usec, Error *err)
{
    char etcd[64];
    (void)snprintf(etcd, sizeof(etcd), "127.0.0.1:%d", dev->client_port);
    CtlClient client;
    Registration g = {.dev = dev,
                      .started = started,
                      .from_usec = from_usec,
                      .missing = dev->n_nodes};
    int r = client_open(&(ClientOptions){.etcd = etcd, .cluster = "dev"}, &client, err);
    if (r < 0)
        return r;
    client.patience_usec = REGISTER_SEC * USEC_PER_SEC; /* etcd may have only just started */
    r = watch_processes(&client, &g, err);
    if (r == 0)
        r = judge_registration(
            &g, client_watch(&client, on_dev_record, &g, REGISTER_SEC * USEC_PER_SEC, err), err);
    client_close(&client);
    return r;
}

/* Prints text with the quotes that a shell needs, or without quotes if it needs none. */
static void print_quoted(const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+";
    if (text[strspn(text, plain)] == '\0') {
        printf("%s", text);
        return;
    }
    putchar('\'');
    for (; *text; text++)
        if (*text == '\'')
            printf("'\\''");
        else
            putchar(*text);
    putchar('\'');
}

static void print_environment(const Dev *dev)
{
    printf("export SDTRAIN_ETCD=127.0.0.1:%d SDTRAIN_CLUSTER=dev SDTRAIN_DEV=", dev->client_port);
    print_quoted(dev->folder);
    printf("\n");
}

/* Prints that the cluster is up, and commands to try. A shell can source the output: every line except the export is a
 * comment. */
static void print_up(const Dev *dev)
{
    const DevProcess *node = NULL, *controller = NULL;
    for (size_t i = dev->n_processes; i-- > 0;) {
        const DevProcess *p = &dev->processes[i];
        node = p->kind == DEV_NODE ? p : node;
        controller = p->kind == DEV_CONTROLLER ? p : controller;
    }
    printf("# cluster \"dev\" is up in %s: etcd, %d controller%s, %d node%s with %d slot%s each\n",
           dev->folder, dev->n_controllers, dev->n_controllers == 1 ? "" : "s", dev->n_nodes,
           dev->n_nodes == 1 ? "" : "s", dev->n_slots, dev->n_slots == 1 ? "" : "s");
    print_environment(dev);
    if (node)
        printf("# once a job runs, try:\n"
               "#   pkill -KILL -P %-8d its trainers on node1 die\n"
               "#   kill -KILL %-13d node1 dies with them; sdctl dev start node1 brings it "
               "back\n",
               (int)node->pid, (int)node->pid);
    if (node && controller)
        printf("#   kill -KILL %-13d the controller dies; training goes on\n",
               (int)controller->pid);
    if (controller)
        printf("# http://127.0.0.1:%d/ is its page\n", controller->metrics_port);
    if (dev->alerts_file[0])
        printf("# alerts go where %s says; sdctl alerts test tries it\n", dev->alerts_file);
    printf("# sdctl dev down ends it all\n");
}

/* Starts all processes that do not run. If a process fails, stops the processes that this call has started. */
static int start_all(Dev *dev, Error *err)
{
    bool started[DEV_PROCESSES_MAX] = {false};
    const uint64_t from_usec = clock_realtime_usec();
    int r = 0;
    for (size_t i = 0; i < dev->n_processes && r == 0; i++) {
        if (dev_process_alive(&dev->processes[i]))
            continue;
        r = dev_start(dev, &dev->processes[i], err);
        started[i] = r == 0;
    }
    r = r < 0 ? r : wait_registered(dev, started, from_usec, err);
    Error ignored = ERROR_INIT; /* the error of the start is reported instead */
    for (size_t i = dev->n_processes; r < 0 && i-- > 0;)
        if (started[i])
            (void)dev_stop(dev, &dev->processes[i], SIGKILL, STOP_SEC * USEC_PER_SEC, &ignored);
    return r;
}

/* The options of `sdctl dev up`. */
typedef struct UpOptions {
    int nodes, slots, controllers; /* -1: not given */
    const char *alerts;
    bool allow_exec;
} UpOptions;

#define OPTIONS_STRUCT UpOptions
static const CtlOption options[] = {
    {"nodes", 0, "N", "3 by default", TAKES_NUMBER(nodes, 0, DEV_NODES_MAX, "0 to 64 nodes")},
    {"slots", 0, "S", "of each node; 1 by default", TAKES_NUMBER(slots, 1, 64, "1 to 64 slots")},
    {"controllers", 0, "C", "1 by default", TAKES_NUMBER(controllers, 1, 7, "1 to 7 controllers")},
    {"alerts", 0, "FILE", "the leader notifies the sinks of this alerts file", TAKES(TEXT, alerts)},
    {"allow-exec", 0, NULL,
     "jobs may run programs; its etcd lets every user of this machine submit",
     TAKES(NOTHING, allow_exec)},
};
const CtlOptions dev_up_options = CTL_OPTIONS(options, .nodes = -1, .slots = -1, .controllers = -1);

/* Refuses options with another alerts file or another count than the cluster that exists in the folder has. */
static int check_counts(const Arguments *a, const char *alerts_file, Dev *dev, Error *err)
{
    const UpOptions *o = arguments_own(a);
    if (o->alerts && strcmp(alerts_file, dev->alerts_file) != 0) {
        dev_close(dev);
        return error_set(err, -EEXIST,
                         "%s holds a cluster that notifies by %s; sdctl dev down first, or give "
                         "another --dir",
                         dev->folder, dev->alerts_file[0] ? dev->alerts_file : "no alerts file");
    }
    if (o->allow_exec && !dev->allow_exec) {
        dev_close(dev);
        return error_set(err, -EEXIST,
                         "%s holds a cluster whose nodes run no programs; sdctl dev down first, or "
                         "give another --dir",
                         dev->folder);
    }
    if ((o->nodes < 0 || o->nodes == dev->n_nodes) && (o->slots < 0 || o->slots == dev->n_slots) &&
        (o->controllers < 0 || o->controllers == dev->n_controllers))
        return 0;
    dev_close(dev);
    return error_set(err, -EEXIST,
                     "%s holds a cluster of %d controllers and %d nodes with %d slots; sdctl dev "
                     "down first, or give another --dir",
                     dev->folder, dev->n_controllers, dev->n_nodes, dev->n_slots);
}

int dev_up(const Arguments *a)
{
    const UpOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    char folder[PATH_MAX], alerts_file[PATH_MAX] = "";
    Dev dev;
    int r = dev_folder(a->dir, folder, &err);
    if (r == 0 && o->alerts)
        r = dev_check_alerts(o->alerts, alerts_file, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    r = dev_open(folder, &dev, &err);
    if (r == 0)
        r = check_counts(a, alerts_file, &dev, &err);
    else if (r == -ENOENT)
        r = dev_create(folder, o->nodes < 0 ? 3 : o->nodes, o->slots < 0 ? 1 : o->slots,
                       o->controllers < 0 ? 1 : o->controllers, alerts_file, &dev, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    dev.allow_exec |= o->allow_exec;
    r = start_all(&dev, &err);
    if (r == 0)
        print_up(&dev);
    dev_close(&dev);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}

static int open_instance(const Arguments *a, Dev *ret, Error *err)
{
    char folder[PATH_MAX];
    int r = dev_folder(a->dir, folder, err);
    return r < 0 ? r : dev_open(folder, ret, err);
}

/* Stops the nodes first, so that no controller reports them missing, and etcd last. */
static int stop_all(Dev *dev, Error *err)
{
    for (int kind = DEV_NODE; kind >= DEV_ETCD; kind--)
        for (size_t i = 0; i < dev->n_processes; i++) {
            DevProcess *p = &dev->processes[i];
            if ((int)p->kind != kind)
                continue;
            int r = dev_stop(dev, p, kind == DEV_NODE ? SIGKILL : SIGTERM, STOP_SEC * USEC_PER_SEC,
                             err);
            if (r < 0)
                return r;
        }
    return 0;
}

int dev_down(const Arguments *a)
{
    Error err = ERROR_INIT;
    Dev dev;
    int r = open_instance(a, &dev, &err);
    if (r == -ENOENT) {
        printf("%s: nothing is up\n", err.text);
        return CTL_DONE;
    }
    if (r < 0)
        return ctl_fail(&err, r);
    r = stop_all(&dev, &err);
    if (r == 0)
        r = dev_forget(&dev, &err);
    if (r == 0)
        printf("cluster \"dev\" in %s is down; its logs are still there\n", dev.folder);
    dev_close(&dev);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}

static void print_running(const DevProcess *p)
{
    printf("%-14s running  pid %-8d", p->name, (int)p->pid);
    if (p->metrics_port > 0)
        printf(" http://127.0.0.1:%d/metrics", p->metrics_port);
    printf("\n");
}

int dev_status(const Arguments *a)
{
    Error err = ERROR_INIT;
    Dev dev;
    int r = open_instance(a, &dev, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    for (size_t i = 0; i < dev.n_processes; i++) {
        const DevProcess *p = &dev.processes[i];
        if (dev_process_alive(p))
            print_running(p);
        else
            printf("%-14s gone\n", p->name);
    }
    print_environment(&dev);
    dev_close(&dev);
    return CTL_DONE;
}

static int refuse_process(const Dev *dev, const char *name, Error *err)
{
    char hint[NEAREST_TEXT_BYTES];
    Nearest meant = nearest_to(name);
    for (size_t i = 0; i < dev->n_processes; i++)
        nearest_offer(&meant, dev->processes[i].name);
    return error_set(err, -ENOENT, "no process %s in %s%s; sdctl dev status shows all", name,
                     dev->folder, nearest_text(&meant, hint));
}

static int with_process(const Arguments *a, int (*act)(Dev *dev, DevProcess *process, Error *err))
{
    Error err = ERROR_INIT;
    Dev dev;
    int r = open_instance(a, &dev, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    DevProcess *p = dev_find(&dev, a->operand);
    r = p ? act(&dev, p, &err) : refuse_process(&dev, a->operand, &err);
    dev_close(&dev);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}

static int kill_process(Dev *dev, DevProcess *p, Error *err)
{
    if (!dev_process_alive(p))
        return error_set(err, -ESRCH, "%s does not run", p->name);
    printf("%s (pid %d) gets SIGKILL\n", p->name, (int)p->pid);
    return dev_stop(dev, p, SIGKILL, STOP_SEC * USEC_PER_SEC, err);
}

static int start_process(Dev *dev, DevProcess *p, Error *err)
{
    if (dev_process_alive(p))
        return error_set(err, -EALREADY, "%s runs already (pid %d)", p->name, (int)p->pid);
    int r = dev_start(dev, p, err);
    if (r == 0)
        printf("%s runs (pid %d)\n", p->name, (int)p->pid);
    return r;
}

static int stop_process(Dev *dev, DevProcess *p, Error *err)
{
    if (!dev_process_alive(p))
        return error_set(err, -ESRCH, "%s does not run", p->name);
    printf("%s (pid %d) is told to end\n", p->name, (int)p->pid);
    return dev_stop(dev, p, SIGTERM, LEAVE_SEC * USEC_PER_SEC, err);
}

int dev_kill(const Arguments *a) { return with_process(a, kill_process); }

int dev_stop_one(const Arguments *a) { return with_process(a, stop_process); }

int dev_start_one(const Arguments *a) { return with_process(a, start_process); }
