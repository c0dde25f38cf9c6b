/* dev_verb.c - `sdctl dev`: a cluster for trying things out and for tests, on this machine, in one
 * folder. */
#include "ctl/dev.h"

#include "cluster/keys.h"
#include "cluster/records.h"
#include "ctl/client.h"

#include <getopt.h>
#include <signal.h>
#include <string.h>

enum { REGISTER_SEC = 30, STOP_SEC = 5 };

typedef struct DevArguments {
    char folder[PATH_MAX];
    int n_nodes, n_slots, n_controllers;
    const char *name; /* the operand */
} DevArguments;

static int parse_count(const char *option, const char *text, int min, int max, int *ret, Error *err)
{
    char *end;
    long v = strtol(text, &end, 10);
    if (*end || end == text || v < min || v > max)
        return error_set(err, -EINVAL, "--%s %s is not in %d..%d", option, text, min, max);
    *ret = (int)v;
    return 0;
}

/* 0, CTL_USAGE + 1 for --help. */
static int parse(int argc, char **argv, DevArguments *ret, Error *err)
{
    static const struct option options[] = {{"nodes", required_argument, NULL, 'n'},
                                            {"slots", required_argument, NULL, 's'},
                                            {"controllers", required_argument, NULL, 'c'},
                                            {"dir", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *dir = NULL;
    int r = 0;
    *ret = (DevArguments){.n_nodes = 3, .n_slots = 1, .n_controllers = 1};
    optind = 1;
    for (int c; r == 0 && (c = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        switch (c) {
        case 'n':
            r = parse_count("nodes", optarg, 0, DEV_NODES_MAX, &ret->n_nodes, err);
            break;
        case 's':
            r = parse_count("slots", optarg, 1, 64, &ret->n_slots, err);
            break;
        case 'c':
            r = parse_count("controllers", optarg, 1, 7, &ret->n_controllers, err);
            break;
        case 'd':
            dir = optarg;
            break;
        case 'h':
            ctl_help("dev", argv[0]);
            return 1;
        default:
            return error_set(err, -EINVAL, "see sdctl dev %s --help", argv[0]);
        }
    ret->name = argv[optind];
    return r < 0 ? r : dev_folder(dir, ret->folder, err);
}

typedef struct Registration {
    const Dev *dev;
    bool up[DEV_PROCESSES_MAX];
    int missing;
    bool leader;
} Registration;

static int on_record(const EtcdEvent *event, bool initial, void *userdata)
{
    (void)initial;
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
        if (strcmp(g->dev->processes[i].name, rest) == 0 && !g->up[i]) {
            g->up[i] = true;
            g->missing--;
        }
    return 0;
}

/* Until etcd answers, a controller campaigns and every node has registered. */
static int wait_registered(const Dev *dev, Error *err)
{
    char etcd[64];
    (void)snprintf(etcd, sizeof(etcd), "127.0.0.1:%d", dev->client_port);
    Client client;
    int r = client_open(&(ClientOptions){.etcd = etcd, .cluster = "dev"}, &client, err);
    if (r < 0)
        return r;
    Registration g = {.dev = dev, .missing = dev->n_nodes};
    r = client_watch(&client, on_record, &g, REGISTER_SEC * USEC_PER_SEC, err);
    client_close(&client);
    if (r == -ETIMEDOUT)
        return error_set(err, r, "%s did not register within %d s: see %s/*/log",
                         g.missing ? "a node" : "no controller", REGISTER_SEC, dev->folder);
    return MIN(r, 0);
}

static void print_up(const Dev *dev)
{
    printf("# cluster \"dev\" is up in %s: etcd, %d controller%s, %d node%s with %d slot%s each\n",
           dev->folder, dev->n_controllers, dev->n_controllers == 1 ? "" : "s", dev->n_nodes,
           dev->n_nodes == 1 ? "" : "s", dev->n_slots, dev->n_slots == 1 ? "" : "s");
    printf("export SDTRAIN_ETCD=127.0.0.1:%d SDTRAIN_CLUSTER=dev SDTRAIN_DEV=%s\n",
           dev->client_port, dev->folder);
    printf("# things to try once a job runs:\n");
    for (size_t i = 0; i < dev->n_processes; i++) {
        const DevProcess *p = &dev->processes[i];
        if (p->kind == DEV_NODE && strcmp(p->name, "node1") == 0)
            printf("#   pkill -KILL -P %-8d one of %s's trainers dies\n", (int)p->pid, p->name);
        if (p->kind == DEV_NODE)
            printf("#   kill -KILL %-12d %s dies with its trainers; sdctl dev start-node %s brings "
                   "it back\n",
                   (int)p->pid, p->name, p->name);
        if (p->kind == DEV_CONTROLLER)
            printf("#   kill -KILL %-12d %s dies\n", (int)p->pid, p->name);
    }
    printf("# sdctl dev down ends it all\n");
}

static int start_all(Dev *dev, Error *err)
{
    for (size_t i = 0; i < dev->n_processes; i++) {
        if (dev_process_alive(&dev->processes[i]))
            continue;
        int r = dev_start(dev, &dev->processes[i], err);
        if (r < 0)
            return r;
    }
    return wait_registered(dev, err);
}

int dev_up(int argc, char **argv)
{
    Error err = ERROR_INIT;
    DevArguments a;
    int r = parse(argc, argv, &a, &err);
    if (r == 1)
        return CTL_DONE;
    if (r < 0 || a.name) {
        fprintf(stderr, "sdctl: dev up: %s\n", r < 0 ? err.text : "takes no operand");
        return CTL_USAGE;
    }
    Dev dev;
    r = dev_open(a.folder, &dev, &err);
    if (r == -ENOENT)
        r = dev_create(a.folder, a.n_nodes, a.n_slots, a.n_controllers, &dev, &err);
    if (r < 0)
        return ctl_fail(&err, r == -ENOENT ? -EIO : r);
    r = start_all(&dev, &err);
    if (r == 0)
        print_up(&dev);
    dev_close(&dev);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}

/* Opens the instance that the arguments name, for the verbs that need one. */
static int open_instance(int argc, char **argv, bool wants_name, Dev *ret, DevArguments *a,
                         int *ret_exit)
{
    Error err = ERROR_INIT;
    int r = parse(argc, argv, a, &err);
    if (r == 1) {
        *ret_exit = CTL_DONE;
        return -ECANCELED;
    }
    if (r == 0 && wants_name != (a->name != NULL))
        r = error_set(&err, -EINVAL, wants_name ? "which node?" : "takes no operand");
    if (r < 0) {
        fprintf(stderr, "sdctl: dev %s: %s\n", argv[0], err.text);
        *ret_exit = CTL_USAGE;
        return r;
    }
    r = dev_open(a->folder, ret, &err);
    if (r < 0)
        *ret_exit = ctl_fail(&err, r);
    return r;
}

int dev_down(int argc, char **argv)
{
    Dev dev;
    DevArguments a;
    int code = CTL_DONE;
    int r = open_instance(argc, argv, false, &dev, &a, &code);
    if (r < 0)
        return code == CTL_NOT_FOUND ? CTL_DONE : code; /* nothing is up: that is what was wanted */

    Error err = ERROR_INIT;
    /* Nodes first, so that they can still say that they leave; etcd last. */
    for (int kind = DEV_NODE; kind >= DEV_ETCD; kind--)
        for (size_t i = 0; i < dev.n_processes && r == 0; i++)
            if ((int)dev.processes[i].kind == kind)
                r = dev_stop(&dev, &dev.processes[i], kind == DEV_NODE ? SIGKILL : SIGTERM,
                             STOP_SEC * USEC_PER_SEC, &err);
    if (r == 0) {
        char path[PATH_MAX + 16];
        (void)snprintf(path, sizeof(path), "%s/dev.json", dev.folder);
        (void)unlink(path); /* the next `dev up` begins with other ports */
        printf("cluster \"dev\" in %s is down; its logs are still there\n", dev.folder);
    }
    dev_close(&dev);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}

int dev_status(int argc, char **argv)
{
    Dev dev;
    DevArguments a;
    int code = CTL_DONE;
    if (open_instance(argc, argv, false, &dev, &a, &code) < 0)
        return code;
    for (size_t i = 0; i < dev.n_processes; i++) {
        const DevProcess *p = &dev.processes[i];
        bool alive = dev_process_alive(p);
        printf("%-14s %-8s", p->name, alive ? "running" : "gone");
        if (alive)
            printf(" pid %d", (int)p->pid);
        printf("\n");
    }
    printf("export SDTRAIN_ETCD=127.0.0.1:%d SDTRAIN_CLUSTER=dev SDTRAIN_DEV=%s\n", dev.client_port,
           dev.folder);
    dev_close(&dev);
    return CTL_DONE;
}

static int with_process(int argc, char **argv,
                        int (*act)(Dev *dev, DevProcess *process, Error *err))
{
    Dev dev;
    DevArguments a;
    int code = CTL_DONE;
    if (open_instance(argc, argv, true, &dev, &a, &code) < 0)
        return code;
    Error err = ERROR_INIT;
    DevProcess *p = dev_find(&dev, a.name);
    int r = p ? act(&dev, p, &err)
              : error_set(&err, -ENOENT, "no process %s in %s", a.name, dev.folder);
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

int dev_kill_node(int argc, char **argv) { return with_process(argc, argv, kill_process); }

int dev_start_node(int argc, char **argv) { return with_process(argc, argv, start_process); }
