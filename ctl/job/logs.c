/* SPDX-License-Identifier: Apache-2.0 */
/* logs.c - `sdctl job logs`: what the ranks of one generation print.
 *
 * The files lie on the nodes: <log_dir>/<job>/g<generation>/rank<r>.log, with rank<r>.log.1 before
 * it (daemon/process/logs.h). Those of nodes of this machine are read; of the others it is said where they
 * are. With --follow, what is added is shown as it comes, over changes of the world too, until the
 * job has ended. */
#include "base/memory.h"
#include "base/printable.h"
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { LOGS_MAX = 256, FOLLOW_MSEC = 200, READ_BYTES = 16384, LINE_BYTES = 4096 };

typedef struct RankFile {
    char path[800];
    int rank;
    int fd;
    char line[LINE_BYTES]; /* begun */
    size_t n_line;
} RankFile;

typedef struct Logs {
    const Arguments *a;
    Model *model;
    char boot_id[40];
    int64_t generation;
    RankFile *files[LOGS_MAX]; /* allocated: most jobs have few */
    size_t n_files;
    bool prefixed; /* lines carry their rank */
    bool ended;
} Logs;

static void close_files(Logs *l)
{
    for (size_t i = 0; i < l->n_files; i++) {
        (void)fd_close(l->files[i]->fd);
        free(l->files[i]);
    }
    l->n_files = 0;
}

/* Nodes of one machine share its boot id, whatever they are called. */
static int read_boot_id(Logs *l, Error *err)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, l->boot_id, sizeof(l->boot_id) - 1);
    if (n < 0)
        return error_errno(err, -errno, "cannot read %s", path);
    l->boot_id[n] = '\0';
    l->boot_id[strcspn(l->boot_id, "\n")] = '\0';
    return 0;
}

/* Where the node keeps its logs, if that is on this machine. A node that is gone has no record; one
 * of `sdctl dev` is found in its folder. */
static bool find_log_dir(const Logs *l, const char *node, char *ret, size_t size)
{
    const NodeRecord *record = model_node(l->model, node);
    const char *dev = getenv("SDTRAIN_DEV");
    if (record && strcmp(record->boot_id, l->boot_id) == 0 && *record->log_dir)
        return snprintf(ret, size, "%s", record->log_dir) < (int)size;
    return !record && dev && snprintf(ret, size, "%s/%s/logs", dev, node) < (int)size &&
           access(ret, F_OK) == 0;
}

static void say_elsewhere(const Logs *l, const char *node, int rank)
{
    const NodeRecord *record = model_node(l->model, node);
    fprintf(stderr, "sdctl: rank %d: its log is on %s", rank, node);
    if (record)
        fprintf(stderr, " (%s) in %s/%s/g%lld/rank%d.log\n", record->address,
                *record->log_dir ? record->log_dir : "its log_dir", l->a->operand,
                (long long)l->generation, rank);
    else
        fprintf(stderr, ", which is not registered now\n");
}

static void add_file(Logs *l, const char *log_dir, int rank)
{
    if (l->n_files == LOGS_MAX)
        return;
    RankFile *f = memory_new(RankFile);
    f->rank = rank;
    f->fd = -EBADF;
    (void)snprintf(f->path, sizeof(f->path), "%s/%s/g%lld/rank%d.log", log_dir, l->a->operand,
                   (long long)l->generation, rank);
    l->files[l->n_files++] = f;
}

/* The present world says which node has which rank. */
static void list_present(Logs *l, const WorldRecord *world)
{
    char log_dir[512];
    for (int rank = 0; rank < world->size; rank++) {
        size_t follow_logs;
        int slot;
        if ((l->a->rank >= 0 && rank != l->a->rank) ||
            world_rank_place(world, rank, &follow_logs, &slot) < 0)
            continue;
        if (find_log_dir(l, world->runs[follow_logs].node, log_dir, sizeof(log_dir)))
            add_file(l, log_dir, rank);
        else
            say_elsewhere(l, world->runs[follow_logs].node, rank);
    }
}

/* Of a past one it is not known any more: whatever the nodes of this machine have. */
static void list_past(Logs *l)
{
    char log_dir[512], path[800];
    for (size_t i = 0; i < l->model->n_nodes; i++)
        for (int rank = 0; rank < LOGS_MAX; rank++) {
            if ((l->a->rank >= 0 && rank != l->a->rank) ||
                !find_log_dir(l, l->model->nodes[i].name, log_dir, sizeof(log_dir)))
                continue;
            (void)snprintf(path, sizeof(path), "%s/%s/g%lld/rank%d.log", log_dir, l->a->operand,
                           (long long)l->generation, rank);
            if (access(path, F_OK) == 0)
                add_file(l, log_dir, rank);
        }
}

static int list_files(Logs *l, const ModelJob *job, Error *err)
{
    int64_t present = job->has_world ? job->world.generation : 0;
    l->generation = l->a->generation > 0 ? l->a->generation : present;
    if (l->generation == 0)
        return error_set(err, -ENOENT, "job %s has not run yet", job->name);
    if (l->a->rank >= 0 && l->generation == present && l->a->rank >= job->world.size)
        return error_set(err, -ENOENT, "job %s has %d ranks, no rank %d", job->name,
                         job->world.size, l->a->rank);
    if (l->generation == present)
        list_present(l, &job->world);
    else
        list_past(l);
    l->prefixed = l->n_files > 1;
    return 0;
}

/* ---- printing ---- */

static void put_line(const Logs *l, RankFile *f)
{
    printable_make_bytes(f->line, f->n_line); /* a trainer's libraries may print anything */
    if (l->prefixed)
        printf("rank %-3d ", f->rank);
    printf("%.*s\n", (int)f->n_line, f->line);
    f->n_line = 0;
}

static void take(const Logs *l, RankFile *f, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n')
            put_line(l, f);
        else
            f->line[f->n_line++] = text[i];
        if (f->n_line == LINE_BYTES)
            put_line(l, f);
    }
}

static void read_rest(const Logs *l, RankFile *f)
{
    char text[READ_BYTES];
    for (ssize_t n; f->fd >= 0 && (n = read(f->fd, text, sizeof(text))) > 0;)
        take(l, f, text, (size_t)n);
}

/* What is new, also when the file became .1 meanwhile and another was begun. */
static void advance(const Logs *l, RankFile *f)
{
    struct stat there, here;
    read_rest(l, f);
    if (stat(f->path, &there) < 0)
        return; /* not begun yet, or removed */
    if (f->fd >= 0 && fstat(f->fd, &here) == 0 && here.st_ino == there.st_ino)
        return;
    read_rest(l, f);
    f->fd = fd_close(f->fd);
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    read_rest(l, f);
}

static void show(const Logs *l, bool final)
{
    for (size_t i = 0; i < l->n_files; i++) {
        advance(l, l->files[i]);
        if (final && l->files[i]->n_line > 0)
            put_line(l, l->files[i]);
    }
    (void)fflush(stdout); /* a reader that went away ends us by SIGPIPE */
}

static void show_old_half(const Logs *l)
{
    for (size_t i = 0; i < l->n_files; i++) {
        char path[sizeof(l->files[i]->path) + 2];
        (void)snprintf(path, sizeof(path), "%s.1", l->files[i]->path);
        l->files[i]->fd = open(path, O_RDONLY | O_CLOEXEC);
        read_rest(l, l->files[i]);
    }
}

/* ---- following ---- */

static int on_logs_event(const EtcdEvent *event, void *userdata)
{
    Logs *l = userdata;
    if (event)
        return model_feed(l->model, event);
    const ModelJob *job = model_job(l->model, l->a->operand);
    if (!job || !model_is_shown(job))
        return -ENOENT;
    if (l->a->generation < 0 && job->has_world && job->world.generation != l->generation) {
        Error ignored =
            ERROR_INIT; /* a rank that this world does not have may come with the next */
        show(l, true);
        close_files(l);
        (void)list_files(l, job, &ignored);
        printf("--- generation %lld, %d ranks\n", (long long)l->generation, job->world.size);
    }
    l->ended = model_has_ended(job);
    return l->ended ? 1 : 0;
}

static int on_logs_timer(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    show(userdata, false);
    return sd_event_source_set_time_relative(source, FOLLOW_MSEC * USEC_PER_MSEC);
}

static int follow(CtlClient *client, Logs *l, Error *err)
{
    sd_event_source *timer = NULL;
    int r = sd_event_add_time_relative(client->event, &timer, CLOCK_BOOTTIME,
                                       FOLLOW_MSEC * USEC_PER_MSEC, 1, on_logs_timer, l);
    if (r >= 0)
        r = sd_event_source_set_enabled(timer, SD_EVENT_ON);
    if (r < 0)
        r = error_errno(err, r, "cannot make a timer");
    else
        r = client_watch(client, on_logs_event, l, USEC_INFINITY, err);
    sd_event_source_disable_unref(timer);
    return MIN(r, 0);
}

static int follow_logs(const Arguments *a, CtlClient *client, Logs *l, Error *err)
{
    ModelJob *job;
    int r = client_open(&a->client, client, err);
    if (r == 0)
        r = read_boot_id(l, err);
    if (r == 0)
        r = model_read(client, &l->model, err);
    if (r == 0)
        r = model_find_any_job(l->model, a->operand, &job, err);
    if (r == 0)
        r = list_files(l, job, err);
    if (r < 0)
        return r;
    show_old_half(l);
    show(l, !a->follow);
    if (a->follow && !model_has_ended(job))
        r = follow(client, l, err);
    if (a->follow)
        show(l, true);
    if (r == -ENOENT)
        return error_set(err, r, "job %s is gone", a->operand);
    return r;
}

int job_logs(const Arguments *a)
{
    Error err = ERROR_INIT;
    CtlClient client = {0};
    Logs l = {.a = a};
    int r = follow_logs(a, &client, &l, &err);
    client_close(&client);
    close_files(&l);
    l.model = model_free(l.model);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}
