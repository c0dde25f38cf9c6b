/* SPDX-License-Identifier: Apache-2.0 */
/* runner-results.c - see runner-internal.h: results of an evaluation, which rank 0 sends when its program has ended. */
#include "exec/runner-internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"

#include <string.h>

bool runner_has_results(const Runner *r) { return r->job->kind == JOB_EVAL && runner_is_rank0(r); }

void runner_take_results(Runner *r, const EvalResults *of)
{
    int lost = 0;
    if (!runner_has_results(r)) {
        if (runner_may_log(r))
            log_warning(
                "RESULT and ARTIFACT count only from rank 0 of an evaluation (kind \"eval\")");
        return;
    }
    for (size_t i = 0; i < of->n_numbers; i++)
        lost += eval_results_add_number(&r->results, of->numbers[i].name, of->numbers[i].value) < 0;
    for (size_t i = 0; i < of->n_artifacts; i++) {
        char uri[EVAL_URI_MAX + 1];
        (void)snprintf(uri, sizeof(uri), "%s", of->artifacts[i].uri);
        secret_set_take_out(&r->masked, uri);
        lost += eval_results_add_artifact(&r->results, of->artifacts[i].name, uri) < 0;
    }
    if (lost > 0 && runner_may_log(r))
        log_warning(
            "%d results are left out: an evaluation has %d names of numbers and %d of artifacts at most",
            lost, EVAL_NUMBERS_MAX, EVAL_ARTIFACTS_MAX);
}

void runner_take_status(Runner *r, const char *status)
{
    (void)snprintf(r->results.text, sizeof(r->results.text), "%s", status);
}

int runner_send_results(Runner *r)
{
    ChannelMessage m = {.type = CHANNEL_RESULTS, .step = r->assign.assign.resume_step};
    m.results = r->results;
    m.results.seconds = (double)(clock_boottime_usec() - r->started_usec) / 1e6;
    int q = fault("exec.results");
    return q < 0 ? q : runner_send(r, &m);
}
