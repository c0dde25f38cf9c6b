/* SPDX-License-Identifier: Apache-2.0 */
/* runner.c - see runner.h. */
#include "exec/runner-internal.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/process/spawn.h"
#include "daemon/process/standstill.h"
#include "exec/program-path.h"
#include "exec/resources/port.h"
#include "exec/resources/secrets.h"
#include "exec/resources/temporary-folder.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>

enum {
    DRAIN_MSEC = 1000,    /* for output that is left when the program has ended */
    KILL_MSEC = 200,      /* for the program to be dead after this process */
    SURVIVES_MSEC = 5000, /* a program that lives so long after SIGKILL does not end */
    RESULTS_SEC = 600,    /* for sdtraind to put results into etcd */
    SETUP_POLL_MSEC = 50, /* between two tries to get the lock of the setup */
};

static void set_state(Runner *r, RunnerState state)
{
    r->state = state;
    r->state_usec = clock_boottime_usec();
}

/* Reports the error to sdtraind, and ends the runner. */
static void fail(Runner *r, int code, const char *text)
{
    ChannelMessage m = {.type = CHANNEL_ERROR,
                        .step = r->step,
                        .exit_code = code,
                        .hung = r->is_given_up,
                        .stuck = runner_is_stuck(r)};
    runner_write_stage(r, &m);
    (void)snprintf(m.text, sizeof(m.text), "%s", text);
    log_error("%s", text);
    runner_flush_news(r);
    (void)runner_send(r, &m);
    r->code = code < 0 ? EXIT_RETRY : code;
    set_state(r, OVER);
}

/* PyTorch prefers the newer one of two names. */
static void find_flight(Runner *r, char *const *environment)
{
    const char *pipe = exec_environment_find(environment, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
               *file = exec_environment_find(environment, "TORCH_FR_DUMP_TEMP_FILE")
                           ?: exec_environment_find(environment, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
    flight_record_find(&r->flight, pipe, file, r->assign.assign.rank);
}

/* Starts the setup or the program, and passes its output on. */
static int start(Runner *r, char *const *command, const OutputPatterns *patterns, Error *err)
{
    int from = -EBADF;
    char **environment = runner_environment(r);
    int q =
        command_start(&r->command, command, r->job->exec.dir, &r->values, environment, &from, err);
    find_flight(r, environment);
    memory_free_texts(environment);
    if (q == 0)
        output_open(&r->output, from, STDOUT_FILENO, &r->masked, patterns);
    return q;
}

/* ---- the life of a rank ---- */

static void end_ready(Runner *r)
{
    ChannelMessage m = {.type = CHANNEL_READY, .step = r->step};
    set_state(r, AWAITS_GO);
    (void)runner_send(r, &m);
}

/* Runs the setup, unless another rank of the node has run it for this submission. */
static int begin_setup(Runner *r, Error *err)
{
    const char *base = runner_variable(r, EXEC_DIR_VARIABLE);
    char path[256], done[SUBMISSION_MAX] = "";
    const OutputPatterns none = {0};
    (void)snprintf(path, sizeof(path), "%s/setup-%s", base, r->job->name);
    r->setup_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (r->setup_lock < 0)
        return error_errno(err, -errno, "%s", path);
    set_state(r, SETS_UP);
    if (flock(r->setup_lock, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 0 : error_errno(err, -errno, "%s", path);
    (void)fd_read_line(r->setup_lock, done, sizeof(done)); /* empty: no setup has succeeded */
    if (strcmp(done, r->submission) == 0) {
        r->setup_lock = fd_close(r->setup_lock);
        end_ready(r);
        return 0;
    }
    log_info("setup: %s", r->job->exec.setup[0]);
    return start(r, r->job->exec.setup, &none, err);
}

static void end_setup(Runner *r)
{
    ExecVerdict verdict;
    char text[EXEC_TEXT_MAX + 16];
    exec_judge(&r->job->exec, r->command.end, output_end(&r->output), "", &verdict);
    output_close(&r->output);
    if (verdict.code != EXIT_DONE) {
        (void)snprintf(text, sizeof(text), "exec.setup: %.500s", verdict.text);
        fail(r, verdict.code, text);
        return;
    }
    int q = ftruncate(r->setup_lock, 0) < 0 ? -errno : 0;
    if (q == 0)
        q = fd_write_at(r->setup_lock, r->submission, strlen(r->submission), 0);
    if (q < 0) /* another rank then runs the setup again */
        log_warning("setup: cannot note that it is done: %s", strerror(-q));
    r->setup_lock = fd_close(r->setup_lock);
    end_ready(r);
}

static void set_log_fields(const Runner *r)
{
    char text[32];
    log_set_field("JOB", r->assign.assign.job);
    (void)snprintf(text, sizeof(text), "%lld", (long long)r->assign.generation);
    log_set_field("GENERATION", text);
    (void)snprintf(text, sizeof(text), "%d", r->assign.assign.rank);
    log_set_field("RANK", text);
}

/* Checks what the job needs of this node, so that a job that can never run here ends before its world goes. */
static void begin(Runner *r)
{
    Error err = ERROR_INIT;
    r->step = r->assign.assign.resume_step;
    set_log_fields(r);
    int q = runner_read_job(r, &err);
    if (q < 0) {
        fail(r, EXIT_NEVER_RETRY, err.text);
        return;
    }
    if (r->job->kind == JOB_EVAL)
        r->step = 0; /* an evaluation counts its own steps */
    q = runner_find_gpus(r, &err);
    if (q == 0)
        q = runner_make_folder(r, &err);
    if (q == 0) {
        runner_fill_values(r);
        if (runner_check_program(r, &err) < 0) {
            fail(r, EXIT_NEVER_RETRY, err.text);
            return;
        }
    }
    if (q == 0 && runner_is_rank0(r))
        q = runner_hold_port(r, &err);
    if (q == 0 && r->job->exec.setup)
        q = begin_setup(r, &err);
    else if (q == 0)
        end_ready(r);
    if (q < 0)
        fail(r, EXIT_RETRY, err.text);
}

static void go(Runner *r, const char *address, const ChannelHeld *held)
{
    Error err = ERROR_INIT;
    char host[CHANNEL_ADDRESS_MAX];
    int number;
    const OutputPatterns patterns = {.step = r->job->exec.step_pattern,
                                     .loss = r->job->exec.loss_pattern,
                                     .found = runner_take_pattern,
                                     .userdata = r};
    if (r->state != AWAITS_GO)
        return;
    if (!runner_is_rank0(r)) {
        if (exec_split_address(address, host, sizeof(host), &number) < 0) {
            fail(r, EXIT_RETRY, "go names no address of rank 0");
            return;
        }
        exec_values_set(&r->values, EXEC_MASTER_ADDR, memory_text(host));
        exec_values_set(&r->values, EXEC_MASTER_PORT, memory_format("%d", number));
    }
    exec_values_set(&r->values, EXEC_HOLD, runner_format_held(held));
    int q = report_socket_open(r->values.of[EXEC_SOCKET], &r->socket, &err);
    if (q == 0)
        q = start(r, r->job->exec.command, &patterns, &err);
    if (q < 0) {
        fail(r, EXIT_RETRY, err.text);
        return;
    }
    set_state(r, RUNS);
    r->started_usec = r->sign_usec = r->state_usec;
    log_info("the program runs as process %d", (int)r->command.pid);
    /* With exec.notify rank 0 says when it runs, and startup_sec of the node bounds the time until then. */
    runner_set_stage(r, r->job->exec.notify && runner_is_rank0(r) ? STAGE_JOINING : STAGE_RUNNING);
    (void)fault("exec.started");
}

/* Asks the program to save and end. Only its main process gets the signal: helpers that it has started, such as loaders
 * of data, would die in mid-save. A program that polls for LEAVE gets none, for it may have no handler of it. */
static void leave(Runner *r)
{
    const JobExec *exec = &r->job->exec;
    if (r->state != RUNS || r->is_leaving)
        return;
    const uint64_t now_usec = clock_boottime_usec();
    r->is_leaving = true;
    r->leave_usec = now_usec + (uint64_t)exec->leave_sec * USEC_PER_SEC;
    r->n_accepted = UINT64_MAX;
    log_info("the program is asked to leave within %d s", exec->leave_sec);
    runner_send_leave(r, now_usec);
    if (!r->polls && r->command.pid > 0) /* not reaped yet, so the pid is the program's */
        (void)kill(r->command.pid, exec->leave_signal);
}

/* Returns the time at which the program must be dead by exec.fence_s: from then on the leader may count this node as
 * lost, and another world may run. USEC_INFINITY: there is no such time. */
static uint64_t fence_usec(const Runner *r)
{
    if (!r->job || r->job->exec.fence_sec == EXEC_NO_FENCE || r->lease_usec == 0)
        return USEC_INFINITY;
    return r->lease_usec + (uint64_t)r->job->exec.fence_sec * USEC_PER_SEC;
}

/* The timer ends the program at the fence, too, if sdtraind stands still, or this process does. */
static void arm_dead_man(Runner *r, uint64_t alive_usec, uint64_t lease_usec)
{
    const uint64_t now_usec = clock_boottime_usec();
    r->lease_usec = MAX(lease_usec, r->lease_usec);
    const uint64_t fence = fence_usec(r), end_usec = fence - KILL_MSEC * USEC_PER_MSEC;
    if (fence != USEC_INFINITY) {
        const uint64_t left_usec = end_usec > now_usec ? end_usec - now_usec : 1;
        alive_usec = alive_usec == 0 ? left_usec : MIN(alive_usec, left_usec);
    }
    dead_man_arm(&r->dead_man, alive_usec);
}

/* The rank hangs before its program has started: in its setup, or as it waits for another rank's. */
static void give_up_setup(Runner *r, const char *why)
{
    r->is_given_up = true;
    r->stood_state = standstill_state(r->command.pid);
    fail(r, -SIGKILL, why);
}

static void say_done(Runner *r, bool finished)
{
    ChannelMessage m = {.type = CHANNEL_DONE, .step = r->step};
    (void)snprintf(m.end, sizeof(m.end), "%s", finished ? "finished" : "left");
    (void)runner_send(r, &m);
    r->code = EXIT_DONE;
    set_state(r, OVER);
}

/* The evaluation has ended once its results are in etcd: its verdict may follow at once. */
static void end_results(Runner *r, bool are_written)
{
    if (are_written)
        say_done(r, true);
    else
        fail(r, EXIT_RETRY, "the results of the evaluation were not written into etcd");
}

static void take_message(Runner *r, const ChannelMessage *m)
{
    switch (m->type) {
    case CHANNEL_GO:
        go(r, m->address, &m->held);
        break;
    case CHANNEL_ALIVE:
        arm_dead_man(r, m->alive_usec, m->lease_usec);
        break;
    case CHANNEL_CHECKPOINT:
        report_socket_send(&r->socket, "SAVE=1\n");
        break;
    case CHANNEL_STOP:
        leave(r);
        break;
    case CHANNEL_HUNG:
        r->is_hung = true;
        if (r->state == RUNS)
            runner_give_up(r, m->text, clock_boottime_usec());
        else if (r->state != DRAINS)
            give_up_setup(r, m->text);
        break;
    case CHANNEL_COMMITTED:
    case CHANNEL_REFUSED:
        if (r->state == AWAITS_RESULTS) {
            end_results(r, m->type == CHANNEL_COMMITTED);
            break;
        }
        runner_pass_verdict(r, m);
        break;
    default:
        log_warning("ignoring %s from sdtraind", channel_type_name(m->type));
    }
}

static void receive(Runner *r)
{
    while (r->state != OVER) {
        ChannelMessage m = {0};
        Error err = ERROR_INIT;
        int q = channel_receive(r->channel, &m, &err);
        if (q == -EAGAIN)
            return;
        if (q == -EBADMSG) {
            log_warning("%s", err.text);
        } else if (q < 0) {
            log_error("%s", err.text);
            r->code = EXIT_RETRY;
            set_state(r, OVER);
        } else if (r->state == AWAITS_ASSIGN && m.type == CHANNEL_ASSIGN) {
            r->assign = m;
            m.assign.spec = NULL; /* moved to r->assign */
            begin(r);
            if (r->state != OVER)
                arm_dead_man(r, r->assign.assign.alive_usec, r->lease_usec);
        } else if (m.type == CHANNEL_ALIVE || m.generation == r->assign.generation) {
            take_message(r, &m);
        }
        channel_message_clear(&m);
    }
}

static bool has_reached_end(const Runner *r)
{
    const int64_t last = r->job->exec.steps;
    return r->has_finished || (last > 0 && r->step >= last);
}

/* Tells whether the program could not be executed, because its folder or file has gone since the rank was ready. */
static bool was_not_executed(const Runner *r, Error *err)
{
    return r->command.end.code == CLD_EXITED && r->command.end.status == SPAWN_EXEC_FAILED &&
           (exec_check_folder(r->job->exec.dir, err) < 0 || runner_check_program(r, err) < 0);
}

/* Reports how the program has ended. */
static void end_program(Runner *r)
{
    ExecVerdict verdict;
    Error err = ERROR_INIT;
    report_socket_serve(&r->socket, runner_take_packet, r); /* its last reports */
    const char *tail = output_end(&r->output);
    exec_judge(&r->job->exec, r->command.end, tail, r->values.of[EXEC_ERROR_FILE], &verdict);
    if (r->is_given_up) {
        verdict.code = -SIGKILL;
        runner_write_standstill(r, tail, verdict.text, sizeof(verdict.text));
    }
    secret_set_take_out(&r->masked, verdict.text);
    output_close(&r->output);
    runner_note_unlogged(r);
    if (r->is_fenced) {
        verdict.code = EXIT_RETRY;
        (void)snprintf(verdict.text, sizeof(verdict.text),
                       "no word from etcd, and the node's lease may have ended (exec.fence_s)");
    } else if (!r->is_given_up && was_not_executed(r, &err)) {
        verdict.code = EXIT_NEVER_RETRY;
        (void)snprintf(verdict.text, sizeof(verdict.text), "%s", err.text);
    }
    if (verdict.code != EXIT_DONE && (!r->is_leaving || r->is_fenced || r->is_hung)) {
        fail(r, verdict.code, verdict.text);
        return;
    }
    const bool finished = has_reached_end(r) || (verdict.code == EXIT_DONE && !r->is_leaving);
    runner_flush_news(r);
    if (!finished || !runner_has_results(r))
        say_done(r, finished);
    else if (runner_send_results(r) < 0)
        end_results(r, false);
    else
        set_state(r, AWAITS_RESULTS);
}

/* A program that survives SIGKILL waits for a driver or a disk. This runner ends then, and sdtraind finds that the slot
 * is lost: no other rank starts there. Returns when that is due. */
static uint64_t watch_kill(Runner *r, uint64_t now_usec)
{
    const uint64_t end_usec = r->kill_usec + SURVIVES_MSEC * USEC_PER_MSEC;
    if (r->kill_usec == 0 || r->command.pid == 0)
        return USEC_INFINITY;
    if (now_usec < end_usec)
        return end_usec;
    r->is_given_up = true;
    r->stood_state = standstill_state(r->command.pid);
    fail(r, -SIGKILL, "its process survives SIGKILL");
    return USEC_INFINITY;
}

/* Kills the program before the fence. Returns when that is due. */
static uint64_t watch_fence(Runner *r, uint64_t now_usec)
{
    const uint64_t fence = fence_usec(r), at_usec = fence - 2 * KILL_MSEC * USEC_PER_MSEC;
    if (fence == USEC_INFINITY || r->is_fenced)
        return USEC_INFINITY;
    if (now_usec < at_usec)
        return at_usec;
    r->is_fenced = true;
    runner_kill_program(r);
    return USEC_INFINITY;
}

/* A function: MIN() would do twice what an argument does. */
static uint64_t sooner(uint64_t a_usec, uint64_t b_usec) { return MIN(a_usec, b_usec); }

/* Does what is due, and returns the time until something is due again, in milliseconds. */
static int serve_times(Runner *r)
{
    const uint64_t now_usec = clock_boottime_usec();
    uint64_t due_usec = runner_send_news(r, now_usec);
    if (r->state == RUNS)
        due_usec =
            sooner(due_usec, sooner(runner_watch_silence(r, now_usec), watch_fence(r, now_usec)));
    if (r->state == RUNS)
        due_usec =
            sooner(due_usec, sooner(runner_watch_standstill(r, now_usec), watch_kill(r, now_usec)));
    if (r->state == RUNS && r->is_leaving) {
        runner_send_leave(r, now_usec);
        if (now_usec >= r->leave_usec && r->command.pid > 0) {
            log_warning("the program has not left in time: it is killed");
            runner_kill_program(r);
            r->leave_usec = USEC_INFINITY;
        }
        due_usec = MIN(due_usec, r->leave_usec);
    }
    if (r->state == DRAINS) {
        if (now_usec >= r->state_usec + DRAIN_MSEC * USEC_PER_MSEC)
            end_program(r);
        due_usec = MIN(due_usec, r->state_usec + DRAIN_MSEC * USEC_PER_MSEC);
    }
    if (r->state == AWAITS_RESULTS) {
        const uint64_t end_usec = r->state_usec + RESULTS_SEC * USEC_PER_SEC;
        if (now_usec >= end_usec)
            end_results(r, false);
        due_usec = MIN(due_usec, end_usec);
    }
    if (r->state == SETS_UP && r->command.pid == 0) {
        Error err = ERROR_INIT;
        r->setup_lock = fd_close(r->setup_lock);
        if (begin_setup(r, &err) < 0)
            fail(r, EXIT_RETRY, err.text);
        due_usec = MIN(due_usec, now_usec + SETUP_POLL_MSEC * USEC_PER_MSEC);
    }
    if (due_usec == USEC_INFINITY)
        return -1;
    return due_usec <= now_usec ? 0 : (int)((due_usec - now_usec) / USEC_PER_MSEC) + 1;
}

static void serve_events(Runner *r)
{
    const bool has_ended = command_reap(&r->command); /* first: all that it sent can be read now */
    const bool has_output = output_move(&r->output);
    const bool has_reports = report_socket_serve(&r->socket, runner_take_packet, r);
    if (has_ended) {
        if (r->state == SETS_UP)
            end_setup(r);
        else if (r->state == RUNS)
            set_state(r, DRAINS);
    }
    if (r->state == DRAINS && !has_output && !has_reports)
        end_program(r);
    receive(r);
}

static size_t poll_list(const Runner *r, struct pollfd *fds)
{
    size_t n = 0;
    fds[n++] = (struct pollfd){.fd = r->channel, .events = POLLIN};
    if (r->command.pidfd >= 0)
        fds[n++] = (struct pollfd){.fd = r->command.pidfd, .events = POLLIN};
    n += output_poll(&r->output, fds + n);
    n += report_socket_poll(&r->socket, fds + n);
    assert(n <= POLL_MAX);
    return n;
}

static void clear(Runner *r)
{
    command_clear(&r->command);
    report_socket_close(&r->socket);
    output_close(&r->output);
    (void)fd_close(r->port);
    (void)fd_close(r->setup_lock);
    if (r->tmp_hold >= 0)
        r->tmp_hold = temporary_folder_leave(runner_variable(r, EXEC_DIR_VARIABLE),
                                             RUNNER_TMP_PREFIX, r->tmp_hold);
    exec_secrets_free(r->secrets);
    secret_set_clear(&r->masked);
    exec_values_clear(&r->values);
    (void)job_free(r->job); /* always returns NULL */
    channel_message_clear(&r->assign);
    dead_man_close(&r->dead_man);
    (void)fd_close(r->channel);
}

int runner_run(int channel, char *const *environment)
{
    Error err = ERROR_INIT;
    Runner *r = memory_new(Runner);
    r->channel = channel;
    r->own_environment = environment;
    r->port = r->setup_lock = r->tmp_hold = -EBADF;
    r->command = (Command)COMMAND_NONE;
    r->step = r->registered = -1;
    r->loss = NAN;
    ChannelMessage hello = {.type = CHANNEL_HELLO, .pid = (int)getpid()};
    if (fcntl(channel, F_SETFL, O_NONBLOCK) < 0 || fcntl(channel, F_SETFD, FD_CLOEXEC) < 0 ||
        dead_man_open(&r->dead_man, &err) < 0 || channel_send(channel, &hello, &err) < 0) {
        log_error("%s", *err.text ? err.text : "the channel is not open");
        r->code = EXIT_RETRY;
        set_state(r, OVER);
    }
    while (r->state != OVER) {
        struct pollfd fds[POLL_MAX];
        const int msec = serve_times(r);
        if (r->state == OVER)
            break;
        const size_t n = poll_list(r, fds);
        (void)poll(fds, (nfds_t)n, msec); /* an interrupted call serves all the same */
        serve_events(r);
    }
    const int code = r->code;
    clear(r);
    free(r);
    return code;
}
