/* SPDX-License-Identifier: Apache-2.0 */
/* runner-standstill.c - see runner-internal.h: a program that hangs.
 *
 * Before it is killed, the log gets what its processes do, and the stacks of the process that has named a signal for
 * them; and its NCCL backend writes its flight record. */
#include "exec/runner-internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/process/standstill.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    STACKS_MSEC = 800, /* for the stacks to be printed: less than RANK_EXPLAIN_MSEC of sdtraind */
    QUIET_MSEC = 100,  /* they are printed when nothing has followed for so long */
};

bool runner_is_stuck(const Runner *r)
{
    return r->is_given_up && r->stood_state && strchr("TtD", r->stood_state);
}

void runner_kill_program(Runner *r)
{
    r->kill_usec = clock_boottime_usec();
    command_kill(&r->command);
}

/* Signals the process that has offered its stacks. If that has ended, and its number is another session's, nobody gets
 * the signal. */
static bool request_stacks(const Runner *r)
{
    return r->stacks_signal != 0 && r->stacks_pid > 0 && !runner_is_stuck(r) &&
           getsid(r->stacks_pid) == getsid(0) && kill(r->stacks_pid, r->stacks_signal) == 0;
}

void runner_give_up(Runner *r, const char *why, uint64_t now_usec)
{
    if (r->is_given_up || r->command.pid == 0)
        return;
    r->is_given_up = true;
    r->stood_state = standstill_state(r->command.pid);
    (void)snprintf(r->stood, sizeof(r->stood), "%s", why);
    log_warning("the program is killed: %s", r->stood);
    standstill_log(getsid(0));
    if (request_stacks(r)) {
        r->stacks_usec = r->sign_usec = now_usec;
        r->stacks_printed = r->n_printed = r->output.n_read;
    }
    const bool writes = !runner_is_stuck(r) && flight_record_request(&r->flight, now_usec);
    if (r->stacks_usec == 0 && !writes)
        runner_kill_program(r);
}

uint64_t runner_watch_silence(Runner *r, uint64_t now_usec)
{
    const uint64_t silence_usec = (uint64_t)r->job->exec.silence_sec * USEC_PER_SEC;
    char why[80];
    if (r->output.n_read != r->n_printed) {
        r->n_printed = r->output.n_read;
        r->sign_usec = now_usec;
    }
    if (silence_usec == 0 || r->is_leaving || r->is_given_up)
        return USEC_INFINITY;
    if (now_usec < r->sign_usec + silence_usec)
        return r->sign_usec + silence_usec;
    (void)snprintf(why, sizeof(why), "no output and no report for %d s (exec.silence_s)",
                   r->job->exec.silence_sec);
    runner_give_up(r, why, now_usec);
    return USEC_INFINITY;
}

/* Returns when the stacks are to be printed; 0: they are, or were not asked for. */
static uint64_t watch_stacks(const Runner *r, uint64_t now_usec)
{
    if (r->stacks_usec == 0)
        return 0;
    uint64_t due_usec = r->stacks_usec + STACKS_MSEC * USEC_PER_MSEC;
    if (r->output.n_read > r->stacks_printed)
        due_usec = MIN(due_usec, r->sign_usec + QUIET_MSEC * USEC_PER_MSEC);
    return now_usec < due_usec ? due_usec : 0;
}

uint64_t runner_watch_standstill(Runner *r, uint64_t now_usec)
{
    if ((r->stacks_usec == 0 && r->flight.asked_usec == 0) || r->kill_usec != 0 ||
        r->command.pid == 0)
        return USEC_INFINITY;
    const uint64_t stacks = watch_stacks(r, now_usec),
                   flight = flight_record_watch(&r->flight, now_usec);
    if (stacks == 0 && flight == 0) {
        runner_kill_program(r);
        return USEC_INFINITY;
    }
    return stacks == 0 ? flight : flight == 0 ? stacks : MIN(stacks, flight);
}

static const char *state_text(char state)
{
    return state == 'T' || state == 't' ? "; it was stopped"
           : state == 'D'               ? "; it waited for a driver or a disk"
                                        : "";
}

void runner_write_standstill(const Runner *r, const char *tail, char *ret, size_t size)
{
    char frame[EXEC_FRAME_MAX];
    const bool has_frame = r->stacks_usec != 0 && exec_find_frame(tail, frame);
    (void)snprintf(ret, size, "%s%s%s%s%s%s", r->stood, state_text(r->stood_state),
                   has_frame ? "; it stood in " : "", has_frame ? frame : "",
                   r->flight.is_written ? "; its flight record is " : "",
                   r->flight.is_written ? r->flight.file : "");
}
