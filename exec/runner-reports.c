/* SPDX-License-Identifier: Apache-2.0 */
/* runner-reports.c - see runner-internal.h: reports of the program, and requests to it. */
#include "exec/runner-internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/words.h"

#include <math.h>
#include <poll.h>
#include <string.h>

static int try_send(Runner *r, ChannelMessage *m, Error *err)
{
    m->generation = r->assign.generation;
    return channel_send(r->channel, m, err);
}

int runner_send(Runner *r, ChannelMessage *m)
{
    Error err = ERROR_INIT;
    const uint64_t until_usec = clock_boottime_usec() + CHANNEL_WAIT_MSEC * USEC_PER_MSEC;
    int q;
    while ((q = try_send(r, m, &err)) == -EAGAIN && clock_boottime_usec() < until_usec) {
        struct pollfd room = {.fd = r->channel, .events = POLLOUT};
        (void)poll(&room, 1, NEWS_PERIOD_MSEC);
    }
    if (q < 0)
        log_warning("%s", err.text); /* mostly the end of the channel follows */
    return q;
}

/* If the channel is full (-EAGAIN), the stage is sent again later. Any other error means that the channel has ended,
 * which the runner's loop handles. */
static void send_stage(Runner *r, uint64_t now_usec)
{
    Error err = ERROR_INIT;
    ChannelMessage m = {.type = CHANNEL_STAGE, .step = r->step};
    runner_write_stage(r, &m);
    r->stage_is_new = try_send(r, &m, &err) == -EAGAIN;
    r->stage_usec = now_usec;
}

static void send_step(Runner *r, uint64_t now_usec)
{
    Error err = ERROR_INIT;
    r->step_is_new = try_send(r, &r->step_news, &err) == -EAGAIN;
    r->steps_usec = MAX(r->steps_usec, now_usec) + NEWS_PERIOD_MSEC * USEC_PER_MSEC;
}

void runner_flush_news(Runner *r)
{
    const uint64_t now_usec = clock_boottime_usec();
    if (r->stage_is_new)
        send_stage(r, now_usec);
    if (r->step_is_new)
        send_step(r, now_usec);
}

uint64_t runner_send_news(Runner *r, uint64_t now_usec)
{
    const uint64_t period_usec = NEWS_PERIOD_MSEC * USEC_PER_MSEC;
    const uint64_t burst_usec = STEPS_BURST_MSEC * USEC_PER_MSEC;
    uint64_t due_usec = USEC_INFINITY;
    if (r->stage_is_new && now_usec >= r->stage_usec + period_usec)
        send_stage(r, now_usec);
    if (r->stage_is_new)
        due_usec = r->stage_usec + period_usec;
    const bool may_send = now_usec + burst_usec >= r->steps_usec;
    if (r->step_is_new && may_send)
        send_step(r, now_usec);
    if (r->step_is_new) /* a step that found no room is tried again after a period */
        due_usec = MIN(due_usec, may_send ? now_usec + period_usec : r->steps_usec - burst_usec);
    return due_usec;
}

void runner_write_stage(const Runner *r, ChannelMessage *m)
{
    m->unnamed = r->stage == STAGE_RUNNING;
    m->stage = m->unnamed ? STAGE_COMPUTING : r->stage;
}

void runner_set_stage(Runner *r, TrainStage stage)
{
    r->stage = stage;
    r->stage_is_new = true;
}

static void count_samples(Runner *r, const ExecReport *of, uint64_t now_usec)
{
    if (r->samples_usec != 0 && now_usec > r->samples_usec)
        r->samples_per_sec =
            (double)(of->samples - r->samples) * 1e6 / (double)(now_usec - r->samples_usec);
    r->samples = of->samples;
    r->samples_usec = now_usec;
}

static void report_step(Runner *r, const ExecReport *of)
{
    const uint64_t now_usec = clock_boottime_usec();
    const int64_t before = r->step;
    if (of->step <= r->step)
        return; /* a step that goes back tells nothing new: the program repeats what it knows */
    r->step = of->step;
    if (of->has & EXEC_KEY_SAMPLES)
        count_samples(r, of, now_usec);
    runner_set_stage(r, r->stage > STAGE_JOINING ? r->stage : STAGE_RUNNING);
    r->step_is_new = runner_is_rank0(r);
    r->step_news =
        (ChannelMessage){.type = CHANNEL_STEP,
                         .step = r->step,
                         .loss = of->has & EXEC_KEY_LOSS ? of->loss : NAN,
                         .grad_norm = of->has & EXEC_KEY_GRAD_NORM ? of->grad_norm : NAN,
                         .lr = of->has & EXEC_KEY_LR ? of->lr : NAN,
                         .samples_per_sec = r->samples_per_sec > 0 ? r->samples_per_sec : NAN,
                         .samples_seen = r->samples,
                         .steps = r->job->exec.steps};
    if (r->step_usec != 0)
        r->step_news.step_sec =
            (double)(now_usec - r->step_usec) / 1e6 / (double)(r->step - before);
    r->step_usec = now_usec;
    (void)runner_send_news(r, now_usec);
}

void runner_note_unlogged(Runner *r)
{
    if (r->n_unlogged > 0)
        log_warning("%lld more reports of the program were not logged: at most %d a second are",
                    (long long)r->n_unlogged, LINES_PER_SEC_MAX);
    r->n_unlogged = 0;
}

/* Returns whether a line about a report may be logged: a program may report without end. */
bool runner_may_log(Runner *r)
{
    const uint64_t now_usec = clock_boottime_usec();
    if (now_usec >= r->lines_usec + USEC_PER_SEC) {
        runner_note_unlogged(r);
        r->lines_usec = now_usec;
        r->n_lines = 0;
    }
    if (r->n_lines >= LINES_PER_SEC_MAX) {
        r->n_unlogged++;
        return false;
    }
    r->n_lines++;
    return true;
}

static void refuse_checkpoint(Runner *r, const ExecReport *of, int64_t step, const char *why)
{
    char uri[EXEC_REGISTERED_MAX], text[64];
    (void)snprintf(uri, sizeof(uri), "%s", of->checkpoint);
    secret_set_take_out(&r->masked, uri);
    if (runner_may_log(r))
        log_warning("CHECKPOINT=%s is refused: %s", uri, why);
    (void)snprintf(text, sizeof(text), "REFUSED=%lld\n", (long long)step);
    report_socket_send(&r->socket, text);
}

/* A checkpoint counts once sdtraind has committed it. The program gets COMMITTED or REFUSED. */
static void register_checkpoint(Runner *r, const ExecReport *of)
{
    const char *below = r->job->checkpoint.uri;
    const int64_t step = of->has & EXEC_KEY_STEP ? of->step : r->step;
    const char *why = !runner_is_rank0(r)        ? "only rank 0 registers checkpoints"
                      : r->registered >= 0       ? "the last one is not committed yet"
                      : r->job->kind == JOB_EVAL ? "an evaluation registers none"
                      : !below                   ? "the job has no checkpoint.uri"
                      : !job_exec_may_register(r->job, of->checkpoint)
                          ? "it lies outside of checkpoint.uri"
                          : NULL;
    ChannelMessage m = {.type = CHANNEL_SAVED, .step = step};
    if (!why) {
        (void)snprintf(m.uri, sizeof(m.uri), "%s", of->checkpoint);
        m.hash = hash_bytes(of->checkpoint, strlen(of->checkpoint));
        runner_flush_news(r); /* the step is known before its checkpoint */
        why = runner_send(r, &m) < 0 ? "sdtraind does not take it" : NULL;
    }
    if (why)
        refuse_checkpoint(r, of, step, why);
    else
        r->registered = step;
}

static void take_report(Runner *r, const ExecReport *of)
{
    if (of->has & EXEC_KEY_STAGE)
        runner_set_stage(r, of->stage);
    if (of->has & EXEC_KEY_READY && r->stage <= STAGE_JOINING)
        runner_set_stage(r, STAGE_RUNNING);
    if (of->has & EXEC_KEY_STEP)
        report_step(r, of);
    if (of->has & EXEC_KEY_CHECKPOINT)
        register_checkpoint(r, of);
    if (of->has & (EXEC_KEY_RESULT | EXEC_KEY_ARTIFACT))
        runner_take_results(r, &of->results);
    if (of->has & EXEC_KEY_STATUS)
        runner_take_status(r, of->status);
    if (of->has & EXEC_KEY_STATUS && runner_may_log(r))
        log_info("the program reports: %s", of->status);
    if (of->has & EXEC_KEY_FINISHED)
        r->has_finished = true;
    if (of->has & EXEC_KEY_POLLS)
        r->polls = true;
    if (of->has & EXEC_KEY_STACKS) {
        r->stacks_signal = of->stacks_signal;
        r->stacks_pid = report_socket_peer(&r->socket);
    }
    if (of->has & EXEC_KEY_EXTEND && r->is_leaving)
        r->leave_usec =
            MAX(r->leave_usec, clock_boottime_usec() + (uint64_t)of->extend_sec * USEC_PER_SEC);
}

void runner_take_packet(void *userdata, const char *packet, size_t n)
{
    Runner *r = userdata;
    ExecReport of;
    Error err = ERROR_INIT;
    r->sign_usec = clock_boottime_usec();
    if (exec_report_parse(packet, n, &of, &err) < 0) {
        const bool is_power =
            (r->n_bad & (r->n_bad + 1)) == 0; /* 1, 2, 4, 8, ...: a program may repeat it */
        r->n_bad++;
        secret_set_take_out(&r->masked, err.text);
        if (is_power)
            log_warning("SDTRAIN_SOCKET: %s (%lld such reports)", err.text, (long long)r->n_bad);
    }
    secret_set_take_out(&r->masked, of.status);
    take_report(r, &of);
}

void runner_take_pattern(void *userdata, OutputNumber kind, const char *number)
{
    Runner *r = userdata;
    char *end;
    if (kind == OUTPUT_LOSS) {
        r->loss = strtod(number, &end);
        r->loss = *end || end == number ? NAN : r->loss;
        return;
    }
    const int64_t step = strtoll(number, &end, 10);
    const ExecReport of = {.has = EXEC_KEY_STEP | EXEC_KEY_LOSS, .step = step, .loss = r->loss};
    if (!*end && end != number && step >= 0)
        report_step(r, &of);
    r->loss = NAN;
}

char *runner_format_held(const ChannelHeld *held)
{
    char text[CHANNEL_HELD_MAX * 24] = "";
    size_t n = 0;
    for (size_t i = 0; i < held->n; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld", i > 0 ? "," : "",
                              (long long)held->steps[i]);
    return memory_text(text);
}

/* HOLD comes first: the program may remove older checkpoints once it knows of the newer one. */
void runner_pass_verdict(Runner *r, const ChannelMessage *m)
{
    char text[CHANNEL_HELD_MAX * 24 + 64];
    _cleanup_free_ char *held = runner_format_held(&m->held);
    r->registered = -1;
    if (m->type == CHANNEL_COMMITTED)
        (void)snprintf(text, sizeof(text), "HOLD=%s\nCOMMITTED=%lld\n", held, (long long)m->step);
    else
        (void)snprintf(text, sizeof(text), "REFUSED=%lld\n", (long long)m->step);
    report_socket_send(&r->socket, text);
}

void runner_send_leave(Runner *r, uint64_t now_usec)
{
    char text[64];
    if (!r->is_leaving || r->leave_usec == USEC_INFINITY || r->n_accepted == r->socket.n_accepted)
        return;
    const uint64_t left_usec = r->leave_usec > now_usec ? r->leave_usec - now_usec : 0;
    (void)snprintf(text, sizeof(text), "LEAVE=%llu\n",
                   (unsigned long long)(left_usec / USEC_PER_SEC));
    report_socket_send(&r->socket, text);
    r->n_accepted = r->socket.n_accepted;
}
