/* SPDX-License-Identifier: Apache-2.0 */
/* try.c - see try.h. */
#include "exec/try.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/process/process.h"
#include "exec/resources/gpus.h"
#include "exec/resources/temporary-folder.h"
#include "exec/runner.h"
#include "protocol/channel.h"
#include "protocol/exec-variables.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
    CHECKPOINTS_MAX = 16,
    SETTLE_MSEC = 200, /* after a failure: for other ranks to end by themselves, and say why */
    GONE_MSEC = 20,    /* between two looks whether processes are gone */
    GONE_SEC = 20,     /* for processes that have got SIGKILL to be gone */
    EXIT_INTERRUPTED = 130,
};

static const char folder_prefix[] = "sdtrain-exec-try-";

typedef struct TryCheckpoint {
    char uri[CHANNEL_URI_MAX];
    int64_t step;
} TryCheckpoint;

typedef struct Try Try;

typedef struct TryRank {
    Try *of;
    int rank;
    Process process;
    bool is_started, is_ready, has_ended, is_gone;
    bool has_reported;    /* `done` or `error` was received */
    int code;             /* EXIT_DONE: finished or left */
    uint64_t failed_usec; /* when the failure was reported */
    uint64_t ended_usec;  /* when the runner ended */
    bool has_left;
    char text[CHANNEL_TEXT_MAX];
    int64_t step;
} TryRank;

struct Try {
    const TryOptions *options;
    const char *program;
    char *text; /* the job file */
    Job *job;
    ExecGpus gpus; /* none for a program on CPUs */
    char folder[64];
    int hold; /* keeps the folder from being removed */
    char submission[33];
    char **environment; /* of the runners, without what differs between ranks */
    sd_event *event;
    CgroupBase cgroups;
    RankSessions sessions;
    ProcessNeeds needs;
    sd_event_source *settle, *look, *startup;

    int64_t generation;
    int n_ranks;
    TryRank ranks[TRY_RANKS_MAX];
    char address[CHANNEL_ADDRESS_MAX]; /* of rank 0; empty: not known yet */
    bool has_gone, is_ending, is_stopping, is_interrupted;
    uint64_t go_usec;
    TryCheckpoint checkpoints[CHECKPOINTS_MAX]; /* the newest last */
    size_t n_checkpoints;
    int64_t furthest; /* the furthest step of all generations */
    int failures;     /* generations in a row that have made no progress */
};

static void begin_generation(Try *t);

/* ---- messages ---- */

static void send_to(TryRank *rank, ChannelMessage *m)
{
    Error err = ERROR_INIT;
    m->generation = rank->of->generation;
    if (rank->is_started && !rank->has_ended && channel_send(rank->process.channel, m, &err) < 0)
        log_warning("rank %d: %s", rank->rank, err.text);
}

static const TryCheckpoint *newest(const Try *t)
{
    return t->n_checkpoints > 0 ? &t->checkpoints[t->n_checkpoints - 1] : NULL;
}

static void assign(TryRank *rank)
{
    Try *t = rank->of;
    const TryCheckpoint *c = newest(t);
    ChannelMessage m = {.type = CHANNEL_ASSIGN,
                        .assign = {.resume_step = c ? c->step : 0,
                                   .rank = rank->rank,
                                   .world_size = t->n_ranks,
                                   .spec = t->text,
                                   .node = "here",
                                   .bind_address = "127.0.0.1"}};
    (void)snprintf(m.assign.job, sizeof(m.assign.job), "%s", t->job->name);
    (void)snprintf(m.assign.submission, sizeof(m.assign.submission), "%s", t->submission);
    if (c)
        (void)snprintf(m.assign.resume_uri, sizeof(m.assign.resume_uri), "%s", c->uri);
    if (t->gpus.n > 0 && t->job->exec.own_gpu)
        exec_write_gpus(&t->gpus, rank->rank, 1, m.assign.gpus);
    else if (t->gpus.n > 0)
        exec_write_gpus(&t->gpus, rank->rank - rank->rank % t->job->world.per_node,
                        t->job->world.per_node, m.assign.gpus);
    send_to(rank, &m);
}

static void go_if_ready(Try *t)
{
    if (t->has_gone || t->is_ending || !*t->address)
        return;
    for (int i = 0; i < t->n_ranks; i++)
        if (!t->ranks[i].is_ready)
            return;
    for (int i = 0; i < t->n_ranks; i++) {
        ChannelMessage m = {.type = CHANNEL_GO};
        (void)snprintf(m.address, sizeof(m.address), "%s", t->address);
        send_to(&t->ranks[i], &m);
    }
    t->has_gone = true;
    t->startup = sd_event_source_disable_unref(t->startup);
    t->go_usec = clock_boottime_usec();
    log_info("generation %lld: %d ranks go", (long long)t->generation, t->n_ranks);
}

/* A checkpoint is committed as soon as it is registered: there is no other world that could have ended this one. */
static void commit(TryRank *rank, const ChannelMessage *m)
{
    Try *t = rank->of;
    if (t->n_checkpoints == CHECKPOINTS_MAX) {
        memmove(&t->checkpoints[0], &t->checkpoints[1],
                sizeof(t->checkpoints) - sizeof(t->checkpoints[0]));
        t->n_checkpoints--;
    }
    TryCheckpoint *c = &t->checkpoints[t->n_checkpoints++];
    c->step = m->step;
    (void)snprintf(c->uri, sizeof(c->uri), "%s", m->uri);
    log_info("checkpoint of step %lld: %s", (long long)m->step, m->uri);
    ChannelMessage answer = {.type = CHANNEL_COMMITTED, .step = m->step};
    send_to(rank, &answer);
}

static void print_results(TryRank *rank, const ChannelMessage *m)
{
    const EvalResults *results = &m->results;
    for (size_t i = 0; i < results->n_numbers; i++)
        log_info("result %s: %.9g", results->numbers[i].name, results->numbers[i].value);
    for (size_t i = 0; i < results->n_artifacts; i++)
        log_info("artifact %s: %s", results->artifacts[i].name, results->artifacts[i].uri);
    ChannelMessage answer = {.type = CHANNEL_COMMITTED, .step = m->step};
    send_to(rank, &answer);
}

static void take(TryRank *rank, const ChannelMessage *m)
{
    Try *t = rank->of;
    switch (m->type) {
    case CHANNEL_HELLO:
        assign(rank);
        break;
    case CHANNEL_RENDEZVOUS:
        (void)snprintf(t->address, sizeof(t->address), "%s", m->address);
        go_if_ready(t);
        break;
    case CHANNEL_READY:
        rank->is_ready = true;
        go_if_ready(t);
        break;
    case CHANNEL_STAGE:
    case CHANNEL_STEP:
        rank->step = MAX(rank->step, m->step);
        break;
    case CHANNEL_SAVED:
        commit(rank, m);
        break;
    case CHANNEL_RESULTS:
        print_results(rank, m);
        break;
    case CHANNEL_ERROR:
        rank->has_reported = true;
        rank->failed_usec = clock_boottime_usec();
        rank->code = m->exit_code;
        rank->step = MAX(rank->step, m->step);
        (void)snprintf(rank->text, sizeof(rank->text), "%s", m->text);
        break;
    case CHANNEL_DONE:
        rank->has_reported = true;
        rank->code = EXIT_DONE;
        rank->has_left = strcmp(m->end, "left") == 0;
        rank->step = MAX(rank->step, m->step);
        break;
    default:
        log_warning("rank %d: ignoring %s", rank->rank, channel_type_name(m->type));
    }
}

static void on_message(void *userdata)
{
    TryRank *rank = userdata;
    for (;;) {
        ChannelMessage m = {0};
        Error err = ERROR_INIT;
        int r = channel_receive(rank->process.channel, &m, &err);
        if (r == -EBADMSG)
            log_warning("rank %d: %s", rank->rank, err.text);
        else if (r == 0)
            take(rank, &m);
        else if (r != -EAGAIN)
            process_deafen(&rank->process);
        channel_message_clear(&m);
        if (r < 0 && r != -EBADMSG)
            return;
    }
}

/* ---- the end of a generation ---- */

static void kill_all(Try *t)
{
    t->is_ending = true;
    for (int i = 0; i < t->n_ranks; i++)
        if (t->ranks[i].is_started)
            process_kill(&t->ranks[i].process);
}

static bool is_runner(void *userdata, pid_t pid)
{
    const Try *t = userdata;
    for (int i = 0; i < t->n_ranks; i++)
        if (t->ranks[i].is_started && t->ranks[i].process.pid == pid)
            return true;
    return false;
}

/* True when a explains an end better than b: a rank that lost a peer explains less than the peer, and the first failure
 * more than a later one. */
static bool explains(const TryRank *a, const TryRank *b)
{
    const bool a_lost_peer = a->code == EXIT_PEER_LOST, b_lost_peer = b->code == EXIT_PEER_LOST;
    return a_lost_peer != b_lost_peer ? b_lost_peer : a->failed_usec < b->failed_usec;
}

/* Returns the rank that explains the end best; NULL: no rank has failed. */
static const TryRank *culprit(const Try *t)
{
    const TryRank *best = NULL;
    for (int i = 0; i < t->n_ranks; i++)
        if (t->ranks[i].code != EXIT_DONE && (!best || explains(&t->ranks[i], best)))
            best = &t->ranks[i];
    return best;
}

static bool has_progressed(const Try *t, int64_t step)
{
    const uint64_t ran_usec = t->has_gone ? clock_boottime_usec() - t->go_usec : 0;
    if (t->job->kind == JOB_EVAL)
        return false;
    return step > t->furthest ||
           (t->job->exec.steps == 0 && t->furthest <= 0 &&
            ran_usec >= (uint64_t)t->job->recovery.progress_sec * USEC_PER_SEC);
}

static void end(Try *t, int code) { (void)sd_event_exit(t->event, code); }

static void fail(Try *t, const TryRank *rank)
{
    int64_t step = 0;
    for (int i = 0; i < t->n_ranks; i++)
        step = MAX(step, t->ranks[i].step);
    if (t->is_interrupted) {
        end(t, EXIT_INTERRUPTED);
        return;
    }
    log_error("generation %lld: rank %d ended with %d at step %lld: %s", (long long)t->generation,
              rank->rank, rank->code, (long long)rank->step, rank->text);
    t->failures = has_progressed(t, step) ? 0 : t->failures + 1;
    t->furthest = MAX(t->furthest, step);
    const TryCheckpoint *c = newest(t);
    if (rank->code == EXIT_DATA_CORRUPT && c && t->job->kind != JOB_EVAL && step <= c->step) {
        log_warning("checkpoint %s is left aside", c->uri);
        t->n_checkpoints--;
    }
    if (rank->code == EXIT_NEVER_RETRY || t->failures >= t->job->recovery.max_failures_at_same_step)
        end(t, rank->code > 0 ? rank->code : EXIT_RETRY);
    else
        begin_generation(t);
}

static void end_generation(Try *t)
{
    bool has_left = false;
    const TryRank *rank = culprit(t);
    for (int i = 0; i < t->n_ranks; i++) {
        has_left |= t->ranks[i].has_left;
        process_retire(&t->ranks[i].process);
        t->ranks[i].is_started = false;
    }
    t->settle = sd_event_source_disable_unref(t->settle);
    t->look = sd_event_source_disable_unref(t->look);
    t->startup = sd_event_source_disable_unref(t->startup);
    if (rank) {
        fail(t, rank);
        return;
    }
    log_info("the job has %s", has_left ? "left" : "finished");
    end(t, EXIT_DONE);
}

static int on_look(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata);

static int on_settled(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    kill_all(userdata);
    return 0;
}

/* Looks how far the generation is: after the first failure the other ranks get a moment to end by themselves. */
static void look(Try *t)
{
    int n_gone = 0, n_ended = 0;
    bool failed = false;
    orphans_reap_adopted(is_runner, t);
    for (int i = 0; i < t->n_ranks; i++) {
        TryRank *rank = &t->ranks[i];
        rank->is_gone = rank->is_gone || (rank->has_ended &&
                                          process_is_gone(&rank->process, t->folder, is_runner, t));
        n_gone += rank->is_gone;
        n_ended += rank->has_ended;
        failed |= rank->has_ended && rank->code != EXIT_DONE;
        if (rank->has_ended && !rank->is_gone &&
            clock_boottime_usec() > rank->ended_usec + GONE_SEC * USEC_PER_SEC) {
            log_error("rank %d: a process of its program survives SIGKILL", i);
            end(t, EXIT_DEVICE_FAULT);
            return;
        }
    }
    int r = 0;
    if (n_gone == t->n_ranks)
        end_generation(t);
    else if (failed && !t->is_ending && !t->settle)
        r = sd_event_add_time_relative(t->event, &t->settle, CLOCK_BOOTTIME,
                                       SETTLE_MSEC * USEC_PER_MSEC, 0, on_settled, t);
    /* No event tells of the end of what a program has left behind. */
    if (r >= 0 && n_gone < n_ended && !t->look)
        r = sd_event_add_time_relative(t->event, &t->look, CLOCK_BOOTTIME,
                                       GONE_MSEC * USEC_PER_MSEC, 0, on_look, t);
    if (r < 0)
        end(t, EXIT_RETRY);
}

static int on_look(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Try *t = userdata;
    t->look = sd_event_source_disable_unref(t->look);
    look(t);
    return 0;
}

static void on_moved(void *userdata)
{
    TryRank *rank = userdata;
    siginfo_t info;
    if (process_reap(&rank->process, &info)) {
        on_message(rank); /* its last words */
        process_deafen(&rank->process);
        rank->has_ended = true;
        rank->ended_usec = clock_boottime_usec();
        if (!rank->has_reported) {
            rank->failed_usec = clock_boottime_usec();
            rank->code = info.si_code == CLD_EXITED && info.si_status != EXIT_DONE ? info.si_status
                                                                                   : EXIT_RETRY;
            (void)snprintf(rank->text, sizeof(rank->text), "%s",
                           rank->of->is_ending ? "killed with the others"
                                               : "its runner ended without a word");
            if (rank->of->is_ending)
                rank->code = EXIT_PEER_LOST;
        }
    }
    look(rank->of);
}

/* ---- the start ---- */

/* Ends a generation of which some ranks do not get ready: their setup hangs, for example. */
static int on_startup_over(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Try *t = userdata;
    for (int i = 0; i < t->n_ranks; i++) {
        TryRank *rank = &t->ranks[i];
        if (rank->is_ready || rank->has_reported)
            continue;
        rank->has_reported = true;
        rank->failed_usec = clock_boottime_usec();
        rank->code = EXIT_RETRY;
        (void)snprintf(rank->text, sizeof(rank->text), "not ready within %d s (--startup)",
                       t->options->startup_sec);
    }
    kill_all(t);
    return 0;
}

static int start_rank(Try *t, int i, Error *err)
{
    TryRank *rank = &t->ranks[i];
    const TryCheckpoint *c = newest(t);
    *rank = (TryRank){.of = t, .rank = i, .step = c ? c->step : 0};
    size_t n = 0;
    while (t->environment[n])
        n++;
    char mark[128], slot[32], *argv[] = {(char *)t->program, (char[]){"run"}, NULL};
    _cleanup_free_ char **environment = memory_zeroed(n + 4, sizeof(*environment));
    memcpy(environment, t->environment, n * sizeof(*environment));
    orphans_owner_tag(mark, sizeof(mark), t->folder, i);
    (void)snprintf(slot, sizeof(slot), "SDTRAIN_SLOT=%d", i);
    environment[n++] = mark;
    environment[n++] = slot;
    environment[n++] = (char[]){"SDTRAIN_CHANNEL=3"};
    const int output = dup(STDOUT_FILENO);
    if (output < 0)
        return error_errno(err, -errno, "cannot pass standard output on");
    const ProcessProgram program = {.argv = argv, .environment = environment, .output = output};
    const ProcessEvents events = {.userdata = rank, .heard = on_message, .moved = on_moved};
    int r = process_start(&t->needs, i, &program, &rank->process, err);
    rank->is_started = r == 0;
    if (r == 0)
        r = process_watch(&rank->process, &events);
    return r < 0 && !*err->text ? error_errno(err, r, "cannot watch rank %d", i) : r;
}

static void begin_generation(Try *t)
{
    Error err = ERROR_INIT;
    t->generation++;
    t->has_gone = t->is_ending = false;
    t->address[0] = '\0';
    int r = sd_event_add_time_relative(t->event, &t->startup, CLOCK_BOOTTIME,
                                       (uint64_t)t->options->startup_sec * USEC_PER_SEC, 0,
                                       on_startup_over, t);
    if (r < 0)
        (void)error_errno(&err, r, "cannot make a timer");
    for (int i = 0; r == 0 && i < t->n_ranks; i++)
        r = start_rank(t, i, &err);
    if (r < 0) {
        log_error("%s", err.text);
        end(t, EXIT_RETRY);
    }
}

static int on_signal(_unused_ sd_event_source *source, _unused_ const struct signalfd_siginfo *info,
                     void *userdata)
{
    Try *t = userdata;
    /* Nothing can be saved yet, or this is the second request. */
    if (t->is_stopping || !t->has_gone) {
        t->is_interrupted = true;
        kill_all(t);
        return 0;
    }
    t->is_stopping = true;
    log_info("the ranks are asked to leave; once more kills them");
    for (int i = 0; i < t->n_ranks; i++) {
        ChannelMessage m = {.type = CHANNEL_STOP};
        send_to(&t->ranks[i], &m);
    }
    return 0;
}

static void make_environment(Try *t)
{
    size_t n = 0;
    const TryOptions *o = t->options;
    const char *level = getenv("SDTRAIN_LOG");
    t->environment = memory_zeroed(o->n_environment + 5, sizeof(*t->environment));
    for (size_t i = 0; i < o->n_environment; i++) {
        const char *value = getenv(o->environment[i]);
        if (value)
            t->environment[n++] = memory_format("%s=%s", o->environment[i], value);
    }
    t->environment[n++] = memory_format("%s=%s", EXEC_DIR_VARIABLE, t->folder);
    /* the folder is removed, and a record in it */
    t->environment[n++] = memory_text("TORCH_NCCL_DEBUG_INFO_PIPE_FILE=");
    if (o->secrets)
        t->environment[n++] = memory_format("%s=%s", EXEC_SECRETS_VARIABLE, o->secrets);
    if (level)
        t->environment[n++] = memory_format("SDTRAIN_LOG=%s", level);
}

static int find_gpus(Try *t, Error *err)
{
    int r = exec_find_gpus("/proc/driver/nvidia/gpus", &t->gpus, err);
    if (r < 0)
        return error_prefix(err, r, "%s: exec.device: cuda", t->options->file);
    if (t->gpus.n < t->n_ranks)
        return error_set(err, -EINVAL,
                         "%s: exec.device: %d ranks need a GPU each, and this machine has %d",
                         t->options->file, t->n_ranks, t->gpus.n);
    return 0;
}

static int read_job(Try *t, Error *err)
{
    const TryOptions *o = t->options;
    int r = file_read(o->file, JOB_TEXT_MAX, &t->text, NULL, err);
    if (r == 0)
        r = job_parse_any(o->file, t->text, strlen(t->text), &t->job, err);
    if (r == 0)
        r = channel_check_spec(o->file, t->text, err);
    if (r < 0)
        return r;
    if (!job_is_program(t->job))
        return error_set(err, -EINVAL, "%s: kind: \"train\" is run by sdtrainer run --job FILE",
                         o->file);
    t->n_ranks = o->n_ranks ? o->n_ranks : t->job->world.min;
    const Job *job = t->job;
    if (t->n_ranks < job->world.min || t->n_ranks > job->world.max ||
        t->n_ranks % job->world.per_node != 0 || t->n_ranks > TRY_RANKS_MAX)
        return error_set(
            err, -EINVAL,
            "--ranks %d: %s has %d to %d (world), in multiples of %d (world.per_node); "
            "try has at most %d",
            t->n_ranks, o->file, job->world.min, job->world.max, job->world.per_node,
            TRY_RANKS_MAX);
    return t->job->exec.device == JOB_DEVICE_CUDA ? find_gpus(t, err) : 0;
}

static int take_checkpoint(Try *t, Error *err)
{
    const TryOptions *o = t->options;
    if (!o->checkpoint)
        return t->job->kind == JOB_EVAL
                   ? error_set(err, -EINVAL,
                               "%s: kind: \"eval\": --checkpoint URI says what is evaluated",
                               o->file)
                   : 0;
    if (!job_exec_may_register(t->job, o->checkpoint))
        return error_set(err, -EINVAL, "--checkpoint %.200s: outside of checkpoint.uri (%s)",
                         o->checkpoint, t->job->checkpoint.uri ? t->job->checkpoint.uri : "none");
    TryCheckpoint *c = &t->checkpoints[0];
    if (snprintf(c->uri, sizeof(c->uri), "%s", o->checkpoint) >= (int)sizeof(c->uri))
        return error_set(err, -EINVAL, "--checkpoint %.60s... is too long", o->checkpoint);
    c->step = o->step;
    t->n_checkpoints = 1;
    return 0;
}

static int prepare(Try *t, Error *err)
{
    sigset_t signals;
    char name[16];
    int r = read_job(t, err);
    if (r == 0)
        r = take_checkpoint(t, err);
    if (r < 0)
        return r;
    r = hash_draw(t->submission);
    if (r < 0)
        return error_errno(err, r, "cannot draw an id");
    (void)snprintf(name, sizeof(name), "%.8s", t->submission);
    t->hold =
        temporary_folder_enter("/tmp", folder_prefix, name, t->folder, sizeof(t->folder), err);
    if (t->hold < 0)
        return t->hold;
    make_environment(t);
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL); /* as sd_event_add_signal() demands */
    (void)prctl(PR_SET_CHILD_SUBREAPER,
                1); /* what programs leave behind becomes a child of this process */
    r = sd_event_default(&t->event);
    if (r >= 0)
        r = sd_event_add_signal(t->event, NULL, SIGINT, on_signal, t);
    if (r >= 0)
        r = sd_event_add_signal(t->event, NULL, SIGTERM, on_signal, t);
    if (r < 0)
        return error_errno(err, r, "cannot make an event loop");
    t->needs = (ProcessNeeds){.event = t->event, .cgroups = &t->cgroups, .sessions = &t->sessions};
    return 0;
}

static void clear(Try *t)
{
    for (int i = 0; i < t->n_ranks; i++)
        if (t->ranks[i].is_started) {
            process_kill(&t->ranks[i].process);
            process_close(&t->ranks[i].process);
        }
    t->settle = sd_event_source_disable_unref(t->settle);
    t->look = sd_event_source_disable_unref(t->look);
    t->startup = sd_event_source_disable_unref(t->startup);
    t->event = sd_event_unref(t->event);
    memory_free_texts(t->environment);
    t->hold = temporary_folder_leave("/tmp", folder_prefix, t->hold);
    (void)job_free(t->job); /* always returns NULL */
    free(t->text);
}

int try_run(const TryOptions *options, const char *program)
{
    Error err = ERROR_INIT;
    Try *t = memory_new(Try);
    t->options = options;
    t->program = program;
    t->hold = -EBADF;
    int code = EXIT_NEVER_RETRY;
    if (prepare(t, &err) < 0) {
        log_error("%s", err.text);
    } else {
        begin_generation(t);
        code = sd_event_loop(t->event);
        if (code < 0) {
            log_error("the event loop failed: %s", strerror(-code));
            code = EXIT_RETRY;
        }
    }
    clear(t);
    free(t);
    return code;
}
