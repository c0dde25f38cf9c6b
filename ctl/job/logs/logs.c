/* SPDX-License-Identifier: Apache-2.0 */
/* logs.c - `sdctl job logs`: prints the logs of the ranks of one generation.
 *
 * The files are on the nodes: <log_dir>/<job>/g<generation>/rank<r>.log, and before it rank<r>.log.1
 * (daemon/process/logs.h). sdctl reads the files of this machine itself, and requests the ends of other files from the
 * daemons of their nodes (logs-reader.h). With --follow, sdctl prints new lines until the job has ended, also after
 * changes of the world. */
#include "base/clock.h"
#include "base/file.h"
#include "ctl/arguments.h"
#include "ctl/job/logs/logs-lines.h"
#include "ctl/job/logs/logs-reader.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

enum {
    FOLLOW_MSEC = 200,
    LAST_WORDS_SEC = 5,    /* time limit for the last lines of a world that has ended */
    RANKS_UNASKED = 16,    /* --all is needed to show more ranks than this */
    TAIL_ONE = 256 * 1024, /* bytes of the remote log, if only one rank is shown */
    TAIL_SOME = 64 * 1024, /* bytes of each remote log, if at most RANKS_UNASKED ranks are shown */
    TAIL_MANY = 8 * 1024,  /* bytes of each remote log, if more than RANKS_UNASKED are shown */
    FOLLOWED_MAX = LOG_READERS_AT_ONCE,
};

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

typedef struct LogsOptions {
    int rank, generation; /* -1: not given */
    bool all, follow;
} LogsOptions;

#define OPTIONS_STRUCT LogsOptions
static const CtlOption options[] = {
    {"rank", 0, "R", "of this rank only", TAKES_NUMBER(rank, 0, INT32_MAX, "a rank, 0 or more")},
    {"all", 0, NULL, "of all ranks, also when there are more than 16", TAKES(NOTHING, all)},
    {"generation", 0, "G", "of this generation; the present one by default",
     TAKES_NUMBER(generation, 1, INT32_MAX, "a generation, 1 or more")},
    OPTION_FOLLOW,
};
const CtlOptions job_logs_options = CTL_OPTIONS(options, .rank = -1, .generation = -1);

typedef struct Followed {
    char node[NODE_NAME_MAX + 1];
    bool gone; /* the node is not registered, and a message has reported it */
} Followed;

typedef struct Logs {
    const Arguments *a;
    const LogsOptions *o;
    CtlClient client;
    Model *model;
    char boot_id[40];
    int64_t generation;
    bool is_past; /* the generation is a past one, and the nodes of its ranks are unknown */
    bool follows; /* new lines may still arrive */
    LogLines lines;
    LogReaders *readers; /* NULL: no log of a daemon is needed, or no daemon can be asked */
    /* The reason that no daemon can be asked for logs; empty: the reason was printed, or daemons can be asked. */
    char denied[256];
    bool cannot_ask;
    Followed followed[FOLLOWED_MAX];
    size_t n_followed;
    /* Latest time at which the output changes to the new generation; 0: there is no new generation. */
    uint64_t moves_usec;
    int n_shown, n_failed;
    bool closed;
    int signal; /* the signal that ends sdctl; 0: none */
    sd_event_source *timer, *signal_sources[ELEMENTSOF(signals)];
} Logs;

/* ---- where the logs are ---- */

/* Reads this machine's boot id, which all nodes on this machine have in their records. */
static int read_boot_id(Logs *l, Error *err)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    int r = file_read_line(path, l->boot_id, sizeof(l->boot_id));
    return r < 0 ? error_errno(err, r, "cannot read %s", path) : 0;
}

/* Finds the node's log folder if it is on this machine. A node that is gone has no record, but the folder of a node of
 * `sdctl dev` is known. */
static bool find_log_dir(const Logs *l, const char *node, char *ret, size_t size)
{
    const NodeRecord *record = model_node(l->model, node);
    const char *dev = getenv("SDTRAIN_DEV");
    if (record && strcmp(record->boot_id, l->boot_id) == 0 && *record->log_dir)
        return snprintf(ret, size, "%s", record->log_dir) < (int)size;
    return !record && dev && snprintf(ret, size, "%s/%s/logs", dev, node) < (int)size &&
           access(ret, F_OK) == 0;
}

static bool can_request(const Logs *l, const char *node)
{
    const NodeRecord *record = model_node(l->model, node);
    return l->readers && record && node_knows(record, FEATURE_LOGS);
}

/* Finds the path of a rank's log if this process can read the log. This can fail although the boot id is the same,
 * because containers of one machine have different files. */
static bool find_file(const Logs *l, const char *node, int rank, char *ret, size_t size)
{
    char log_dir[512];
    if (!find_log_dir(l, node, log_dir, sizeof(log_dir)) || access(log_dir, X_OK) < 0)
        return false;
    int n = snprintf(ret, size, "%s/%s/g%lld/rank%d.log", log_dir, l->a->operand,
                     (long long)l->generation, rank);
    return n < (int)size && (access(ret, R_OK) == 0 || (!l->is_past && !can_request(l, node)));
}

static void print_denied(Logs *l)
{
    if (!*l->denied)
        return;
    fprintf(stderr, "sdctl: %s\n", l->denied);
    l->denied[0] = '\0';
    l->n_failed++;
}

static void print_elsewhere(Logs *l, const char *node, int rank)
{
    const NodeRecord *record = model_node(l->model, node);
    print_denied(l);
    fprintf(stderr, "sdctl: rank %d: its log is on %s", rank, node);
    if (!record) {
        fprintf(stderr, ", which is not registered now\n");
        return;
    }
    fprintf(stderr, " (%s) in %s/%s/g%lld/rank%d.log", record->address,
            *record->log_dir ? record->log_dir : "its log_dir", l->a->operand,
            (long long)l->generation, rank);
    if (!l->cannot_ask && !node_knows(record, FEATURE_LOGS))
        fprintf(stderr,
                "; sdtraind %s there hands out no logs: it is older, or has no right to "
                "(/usr/share/sdtrain/etcd-roles)",
                record->version);
    fprintf(stderr, "\n");
}

/* ---- what is to be shown ---- */

static int64_t tail_of(int n_ranks)
{
    return n_ranks == 1 ? TAIL_ONE : n_ranks <= RANKS_UNASKED ? TAIL_SOME : TAIL_MANY;
}

static void request_lines(Logs *l, LogWanted *wanted)
{
    const NodeRecord *record = model_node(l->model, wanted->node);
    (void)snprintf(wanted->address, sizeof(wanted->address), "%s", record->address);
    (void)snprintf(wanted->folder, sizeof(wanted->folder), "%s/%s/g%lld", record->log_dir,
                   l->a->operand, (long long)l->generation);
    if (wanted->follow && l->n_followed == FOLLOWED_MAX) {
        fprintf(stderr,
                "sdctl: %d nodes are followed already; the log of rank %d%s is in %s on %s\n",
                FOLLOWED_MAX, wanted->ranks[0], wanted->n_ranks > 1 ? " and others" : "",
                wanted->folder, wanted->node);
        return;
    }
    if (wanted->follow) {
        Followed *f = &l->followed[l->n_followed++];
        *f = (Followed){0};
        (void)snprintf(f->node, sizeof(f->node), "%s", wanted->node);
    }
    log_readers_add(l->readers, l->generation, wanted);
}

/* Lists the logs of the present world, whose record tells which node has which rank. */
static void list_present(Logs *l, const WorldRecord *world)
{
    char path[800];
    LogWanted wanted = {0};
    int shown = 0;
    for (int rank = 0; rank < world->size && shown < LOG_LINES_RANKS_MAX; rank++) {
        size_t run;
        int slot;
        if ((l->o->rank >= 0 && rank != l->o->rank) ||
            world_rank_place(world, rank, &run, &slot) < 0)
            continue;
        const char *node = world->runs[run].node;
        shown++;
        if (find_file(l, node, rank, path, sizeof(path))) {
            (void)log_lines_add(&l->lines, rank, path);
            continue;
        }
        if (!can_request(l, node)) {
            print_elsewhere(l, node, rank);
            continue;
        }
        if (wanted.n_ranks > 0 && strcmp(wanted.node, node) != 0) {
            request_lines(l, &wanted);
            wanted.n_ranks = 0;
        }
        wanted.follow = l->follows;
        wanted.tail_bytes = tail_of(l->o->rank >= 0 ? 1 : world->size);
        (void)snprintf(wanted.node, sizeof(wanted.node), "%s", node);
        wanted.ranks[wanted.n_ranks++] = rank; /* fits: a node has at most as many ranks as slots */
    }
    if (wanted.n_ranks > 0)
        request_lines(l, &wanted);
    if (l->o->rank < 0 && world->size > LOG_LINES_RANKS_MAX)
        fprintf(stderr, "sdctl: the first %d of %d ranks are shown\n", LOG_LINES_RANKS_MAX,
                world->size);
}

/* Lists all logs that the nodes have of a past world: it is no longer known which node had which rank. */
static void list_past(Logs *l)
{
    char path[800];
    for (size_t i = 0; i < l->model->n_nodes; i++) {
        const char *node = l->model->nodes[i].name;
        bool any = false;
        for (int rank = 0; rank < LOG_LINES_RANKS_MAX; rank++)
            if ((l->o->rank < 0 || rank == l->o->rank) &&
                find_file(l, node, rank, path, sizeof(path))) {
                (void)log_lines_add(&l->lines, rank, path);
                any = true;
            }
        if (!any)
            print_denied(l);
        if (any || !can_request(l, node))
            continue;
        LogWanted wanted = {.tail_bytes = tail_of(l->o->rank >= 0 ? 1 : RANKS_UNASKED)};
        (void)snprintf(wanted.node, sizeof(wanted.node), "%s", node);
        if (l->o->rank >= 0)
            wanted.ranks[wanted.n_ranks++] = l->o->rank;
        request_lines(l, &wanted);
    }
}

/* Returns the number of ranks of a generation; 0: unknown. */
static int size_of(const ModelJob *job, int64_t generation)
{
    if (job->has_world && job->world.generation == generation)
        return job->world.size;
    for (size_t i = 0; job->has_phase && i < job->phase.n_worlds; i++)
        if (job->phase.worlds[i].generation == generation)
            return job->phase.worlds[i].size;
    return 0;
}

static int list_ranks(Logs *l, const ModelJob *job, Error *err)
{
    int64_t present = job->has_world ? job->world.generation : 0;
    l->generation = l->o->generation > 0 ? l->o->generation : present;
    l->is_past = l->generation != present;
    l->follows = l->o->follow && !l->is_past && !model_has_ended(job);
    const int size = size_of(job, l->generation);
    if (l->generation == 0)
        return error_set(err, -ENOENT, "job %s has not run yet", job->name);
    if (present > 0 && l->generation > present)
        return error_set(err, -ENOENT,
                         "job %s is in generation %lld, there is no generation %lld yet", job->name,
                         (long long)present, (long long)l->generation);
    if (l->o->rank >= 0 && size > 0 && l->o->rank >= size)
        return error_set(err, -ENOENT, "job %s has %d ranks, no rank %d", job->name, size,
                         l->o->rank);
    if (l->o->rank < 0 && !l->o->all && size > RANKS_UNASKED)
        return error_set(err, -EINVAL,
                         "job %s has %d ranks: name one with --rank, or all of them with --all",
                         job->name, size);
    l->n_followed = 0;
    if (l->is_past)
        list_past(l);
    else
        list_present(l, &job->world);
    l->lines.prefixed = l->o->rank < 0 && (l->is_past ? size != 1 : size > 1) &&
                        (l->lines.n > 1 || log_readers_busy(l->readers));
    l->n_shown += (int)l->lines.n;
    return 0;
}

/* ---- answers of the daemons ---- */

static void on_text(void *userdata, int rank, const char *text, size_t n)
{
    Logs *l = userdata;
    l->n_shown++;
    log_lines_take(&l->lines, rank, text, n);
}

static void on_skipped(void *userdata, int rank, int64_t bytes, bool first, const LogWanted *wanted)
{
    Logs *l = userdata;
    l->n_shown++;
    (void)fflush(stdout); /* so that the note appears in the right place */
    fprintf(stderr, "sdctl: rank %d: %lld bytes %s; all that is kept is in %s on %s (%s)\n", rank,
            (long long)bytes, first ? "before this are not shown" : "are left out here",
            wanted->folder, wanted->node, wanted->address);
}

static void on_missing(void *userdata, int rank, const LogWanted *wanted)
{
    const Logs *l = userdata;
    if (!l->is_past)
        fprintf(stderr, "sdctl: rank %d: %s (%s) has no log of it in %s\n", rank, wanted->node,
                wanted->address, wanted->folder);
}

static void on_failed(void *userdata, const LogWanted *wanted, const char *why)
{
    Logs *l = userdata;
    l->n_failed++;
    fprintf(stderr, "sdctl: node %s (%s): %s; its logs are there in %s\n", wanted->node,
            wanted->address, why, wanted->folder);
}

/* Opens the readers, but only if a node can answer. A user without the right to read logs from etcd can still read the
 * files of this machine. */
static int open_readers(Logs *l, Error *err)
{
    const LogReadersEvents events = {.userdata = l,
                                     .text = on_text,
                                     .skipped = on_skipped,
                                     .missing = on_missing,
                                     .failed = on_failed};
    bool any = false;
    for (size_t i = 0; i < l->model->n_nodes; i++)
        any |= node_knows(&l->model->nodes[i], FEATURE_LOGS);
    if (!any)
        return 0;
    int r = log_readers_new(&l->client, l->a->operand, &events, &l->readers, err);
    if (r != -EACCES)
        return r;
    (void)snprintf(l->denied, sizeof(l->denied), "%s", err->text);
    l->cannot_ask = true;
    return 0;
}

/* ---- following ---- */

static void print_gone(Logs *l)
{
    for (size_t i = 0; i < l->n_followed; i++) {
        Followed *f = &l->followed[i];
        const bool gone = !model_node(l->model, f->node);
        if (gone != f->gone)
            fprintf(stderr, "sdctl: node %s is %s\n", f->node,
                    gone ? "not registered now: nothing of its ranks is shown until it is back, or "
                           "the job goes on without it"
                         : "registered again");
        f->gone = gone;
    }
}

/* Ends the reading of the old generation's logs. Nodes that are lost will not answer any more, so they are dropped. */
static void finish_old(Logs *l)
{
    if (!l->readers)
        return;
    log_readers_finish(l->readers);
    for (size_t i = 0; i < l->n_followed; i++)
        if (l->followed[i].gone)
            log_readers_forget(l->readers, l->followed[i].node);
}

static int on_logs_event(const EtcdEvent *event, void *userdata)
{
    Logs *l = userdata;
    if (event)
        return model_feed(l->model, event);
    const ModelJob *job = model_job(l->model, l->a->operand);
    if (!job || !model_is_shown(job))
        return -ENOENT;
    print_gone(l);
    const int64_t present = job->has_world ? job->world.generation : 0;
    if (present != l->generation && l->o->generation > 0)
        return 1; /* the generation given by --generation has ended */
    if (present != l->generation && present > 0 && l->moves_usec == 0) {
        l->moves_usec = clock_boottime_usec() + LAST_WORDS_SEC * USEC_PER_SEC;
        finish_old(l);
    }
    return model_has_ended(job) ? 1 : 0;
}

/* Changes to the new generation. Called when the old logs are read to their end, or the time limit has passed. */
static void move_on(Logs *l)
{
    Error err = ERROR_INIT;
    const ModelJob *job = model_job(l->model, l->a->operand);
    l->moves_usec = 0;
    log_lines_show(&l->lines, true);
    log_lines_clear(&l->lines);
    if (l->readers)
        log_readers_stop(l->readers);
    if (!job || !job->has_world)
        return;
    printf("--- generation %lld, %d rank%s\n", (long long)job->world.generation, job->world.size,
           job->world.size == 1 ? "" : "s");
    (void)fflush(stdout); /* if the pipe's reader has exited, SIGPIPE ends sdctl */
    /* An error does not end sdctl: if this world lacks the rank, the next world may have it again. */
    if (list_ranks(l, job, &err) < 0)
        fprintf(stderr, "sdctl: %s\n", err.text);
    if (l->readers)
        log_readers_start(l->readers, LOG_READERS_AT_ONCE);
}

static int on_logs_timer(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Logs *l = userdata;
    log_lines_show(&l->lines, false);
    if (l->readers)
        log_readers_tick(l->readers);
    if (l->moves_usec > 0 &&
        (!log_readers_busy(l->readers) || clock_boottime_usec() > l->moves_usec))
        move_on(l);
    return sd_event_source_set_time_relative(source, FOLLOW_MSEC * USEC_PER_MSEC);
}

static int follow(Logs *l, Error *err)
{
    int r = sd_event_add_time_relative(l->client.event, &l->timer, CLOCK_BOOTTIME,
                                       FOLLOW_MSEC * USEC_PER_MSEC, 1, on_logs_timer, l);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->timer, SD_EVENT_ON);
    if (r < 0)
        return error_errno(err, r, "cannot make a timer");
    r = client_watch(&l->client, on_logs_event, l, USEC_INFINITY, err);
    l->timer = sd_event_source_disable_unref(l->timer);
    return MIN(r, 0);
}

/* ---- signals ---- */

static void on_closed(void *userdata)
{
    Logs *l = userdata;
    l->closed = true;
    if (l->signal)
        (void)sd_event_exit(l->client.event, 0); /* fails only if the loop is exiting already */
}

/* Deletes the requests to the nodes and then exits. A second signal exits at once. */
static int on_signal(_unused_ sd_event_source *source, const struct signalfd_siginfo *info,
                     void *userdata)
{
    Logs *l = userdata;
    const bool again = l->signal != 0;
    l->signal = (int)info->ssi_signo;
    if (again || !l->readers)
        return sd_event_exit(l->client.event, 0);
    log_readers_close(l->readers, on_closed, l);
    return 0;
}

/* Blocks the signals. Must run before any thread starts, because threads inherit the mask. */
static void block_signals(sigset_t *before)
{
    sigset_t set;
    (void)sigemptyset(&set); /* these calls cannot fail with valid arguments */
    for (size_t i = 0; i < ELEMENTSOF(signals); i++)
        (void)sigaddset(&set, signals[i]);
    (void)sigprocmask(SIG_BLOCK, &set, before);
}

static int add_signals(Logs *l, Error *err)
{
    for (size_t i = 0; i < ELEMENTSOF(signals); i++) {
        int r =
            sd_event_add_signal(l->client.event, &l->signal_sources[i], signals[i], on_signal, l);
        if (r < 0)
            return error_errno(err, r, "cannot take signal %d", signals[i]);
    }
    return 0;
}

/* ---- the verb ---- */

static bool is_end_requested(const Logs *l)
{
    return sd_event_get_state(l->client.event) == SD_EVENT_FINISHED;
}

/* Waits until all nodes have sent all lines, or have missed their deadlines. */
static int drain(Logs *l, Error *err)
{
    while (log_readers_busy(l->readers) && !is_end_requested(l)) {
        int r = sd_event_run(l->client.event, FOLLOW_MSEC * USEC_PER_MSEC);
        if (r < 0)
            return error_errno(err, r, "waiting for etcd");
        log_readers_tick(l->readers);
    }
    log_lines_show(&l->lines, true);
    return 0;
}

static int show_all(Logs *l, Error *err)
{
    int r = 0;
    log_lines_show_old(&l->lines);
    log_lines_show(&l->lines, !l->follows);
    if (l->readers) /* unless new lines may arrive, nodes with known ranks are read one after another */
        log_readers_start(l->readers, l->follows || l->is_past ? LOG_READERS_AT_ONCE : 1);
    if (l->follows)
        r = follow(l, err);
    if (r == -ENOENT)
        return error_set(err, r, "job %s is gone", l->a->operand);
    if (r < 0)
        return r;
    if (l->readers)
        log_readers_finish(l->readers);
    r = drain(l, err);
    if (r == 0 && l->n_shown == 0 && l->n_failed == 0 && l->is_past && !l->signal)
        r = error_set(err, -ENOENT,
                      "no node that is registered has a log of generation %lld of job %s; each "
                      "keeps those of the newest 16",
                      (long long)l->generation, l->a->operand);
    return r;
}

static int read_logs(Logs *l, Error *err)
{
    ModelJob *job;
    int r = client_open(&l->a->client, &l->client, err);
    if (r == 0)
        r = add_signals(l, err);
    if (r == 0)
        r = read_boot_id(l, err);
    if (r == 0)
        r = model_read(&l->client, &l->model, err);
    if (r == 0)
        r = model_find_any_job(l->model, l->a->operand, &job, err);
    if (r == 0)
        r = open_readers(l, err);
    if (r == 0)
        r = list_ranks(l, job, err);
    return r < 0 ? r : show_all(l, err);
}

static void close_logs(Logs *l)
{
    if (l->readers && !is_end_requested(l)) {
        log_readers_close(l->readers, on_closed, l);
        while (!l->closed && !is_end_requested(l) &&
               sd_event_run(l->client.event, FOLLOW_MSEC * USEC_PER_MSEC) >= 0)
            ;
    }
    l->readers = log_readers_free(l->readers);
    for (size_t i = 0; i < ELEMENTSOF(signals); i++)
        l->signal_sources[i] = sd_event_source_disable_unref(l->signal_sources[i]);
    client_close(&l->client);
    log_lines_clear(&l->lines);
    l->model = model_free(l->model);
}

int job_logs(const Arguments *a)
{
    const LogsOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    Logs l = {.a = a, .o = o};
    sigset_t before;
    if (o->all && o->rank >= 0)
        return arguments_refuse(a->verb, "--all is of all ranks, --rank of one: give one of them");
    block_signals(&before);
    int r = read_logs(&l, &err);
    const int number = l.signal;
    const bool failed = l.n_failed > 0;
    close_logs(&l);
    (void)fflush(stdout); /* if the pipe's reader has exited, SIGPIPE ends sdctl */
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (number)
        (void)raise(number); /* so that the exit status shows the signal */
    if (r < 0)
        return ctl_fail(&err, r);
    return failed && !o->follow ? CTL_FAILED : CTL_DONE;
}
