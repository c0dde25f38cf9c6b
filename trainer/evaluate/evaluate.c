/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - see evaluate.h. */
#include "trainer/evaluate/evaluate.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "protocol/exit-code.h"
#include "trainer/evaluate/loss.h"
#include "trainer/evaluate/pictures.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GO_SEC = 24 * 3600,    /* the leader's start deadline ends the wait long before */
    WRITTEN_SEC = 10 * 60, /* for sdtraind to write the results into etcd */
};
#define SAID_USEC (10 * USEC_PER_SEC)

/* An evaluation in progress. */
typedef struct Evaluating {
    DaemonLink *link;
    int64_t generation;
    uint64_t began_usec, said_usec;
} Evaluating;

/* ---- under sdtraind ---- */

static int evaluate_by(const EvalRequest *request, EvalResults *ret, Error *err)
{
    return request->job->eval.work == EVAL_GRID ? pictures_draw(request, ret, err)
                                                : loss_measure(request, ret, err);
}

/* The parts of the work are the steps of an evaluation: a rank that stands still is found by them, as one that trains
 * is. */
static int report_progress(void *userdata, _unused_ const char *what, int64_t done, int64_t all,
                           double loss, Error *err)
{
    Evaluating *e = userdata;
    ChannelMessage m = {.type = CHANNEL_STEP,
                        .generation = e->generation,
                        .step = done,
                        .steps = all,
                        .samples_seen = isnan(loss) ? 0 : done,
                        .samples_per_sec = NAN,
                        .grad_norm = NAN,
                        .lr = NAN,
                        .loss = loss};
    if (daemon_link_wishes(e->link, false) & WISH_LEAVE)
        return error_set(err, -ECANCELED, "asked to leave");
    int r = daemon_link_check(e->link, err);
    if (r < 0)
        return r;
    daemon_link_stage(e->link, done, STAGE_COMPUTING);
    const uint64_t now = clock_boottime_usec();
    if (!isnan(loss))
        m.samples_per_sec = (double)done * 1e6 / (double)MAX(now - e->began_usec, 1U);
    if (done < all && now - e->said_usec < USEC_PER_SEC)
        return 0;
    e->said_usec = now;
    return daemon_link_report(e->link, &m, err);
}

static int send_results(Evaluating *e, const ChannelAssign *assign, const EvalResults *results,
                        Error *err)
{
    ChannelMessage m = {.type = CHANNEL_RESULTS,
                        .generation = e->generation,
                        .step = assign->resume_step};
    DaemonVerdict verdict;
    m.results = *results;
    m.results.seconds = (double)(clock_boottime_usec() - e->began_usec) / 1e6;
    int r = daemon_link_report(e->link, &m, err);
    if (r == 0)
        r = daemon_link_wait_verdict(e->link, m.step, WRITTEN_SEC * USEC_PER_SEC, &verdict, err);
    if (r == 0 && verdict != VERDICT_COMMITTED)
        r = error_set(err, -ESTALE, "the results of the evaluation were not written into etcd");
    return r;
}

static int say_done(Evaluating *e, int64_t step, const char *end)
{
    Error err = ERROR_INIT;
    ChannelMessage m = {.type = CHANNEL_DONE, .generation = e->generation, .step = step};
    (void)snprintf(m.end, sizeof(m.end), "%s", end);
    if (daemon_link_report(e->link, &m, &err) < 0)
        log_warning("everything is done, and the daemon is not told: %s", err.text);
    return EXIT_DONE;
}

static int evaluate(Evaluating *e, const ChannelAssign *assign, const Job *job, Error *err)
{
    EvalResults results = {0};
    char address[CHANNEL_ADDRESS_MAX];
    const EvalRequest request = {.job = job,
                                 .text = assign->spec,
                                 .manifest = assign->resume_uri,
                                 .hash = &assign->resume_hash,
                                 .gpu = assign->gpu,
                                 .link = e->link,
                                 .progress = report_progress,
                                 .userdata = e};
    if (!*assign->resume_uri)
        return error_set_exit(err, error_set(err, -EINVAL, "an evaluation without a checkpoint"),
                              EXIT_NEVER_RETRY);
    if (!job_exec_may_register(job, assign->resume_uri))
        return error_set_exit(err,
                              error_set(err, -EINVAL, "%s is not below checkpoint.uri %s",
                                        assign->resume_uri, job->checkpoint.uri),
                              EXIT_NEVER_RETRY);
    const ChannelMessage ready = {.type = CHANNEL_READY, .generation = e->generation};
    daemon_link_stage(e->link, 0, STAGE_READY);
    int r = daemon_link_report(e->link, &ready, err);
    if (r == 0)
        r = daemon_link_wait_go(e->link, GO_SEC * USEC_PER_SEC, address, err);
    if (r < 0)
        return r;
    e->began_usec = clock_boottime_usec();
    daemon_link_stage(e->link, 0, STAGE_LOADING);
    r = evaluate_by(&request, &results, err);
    return r < 0 ? r : send_results(e, assign, &results, err);
}

bool evaluate_is_wanted(const char *spec)
{
    _cleanup_json_ json_t *json = json_loads(spec, 0, NULL);
    const char *kind = json_string_value(json_object_get(json, "kind"));
    return kind && strcmp(kind, "eval") == 0;
}

int evaluate_run(DaemonLink *link, const ChannelMessage *assignment)
{
    Error err = ERROR_INIT;
    const ChannelAssign *assign = &assignment->assign;
    Evaluating e = {.link = link, .generation = assignment->generation};
    _cleanup_(job_freep) Job *job = NULL;
    int r = job_parse_any("the job's spec", assign->spec, strlen(assign->spec), &job, &err);
    if (r == 0 && job_is_program(job))
        r = error_set(&err, -EINVAL, "the job's spec: sdtrainer does not run its program");
    if (r < 0)
        (void)error_set_exit(&err, r, EXIT_NEVER_RETRY);
    else
        r = evaluate(&e, assign, job, &err);
    if (r == 0)
        return say_done(&e, assign->resume_step, "finished");
    if (r == -ECANCELED)
        return say_done(&e, assign->resume_step, "left");
    (void)error_set_exit(&err, r, EXIT_RETRY);
    log_error("%s: %s", exit_code_class(err.exit), err.text);
    ChannelMessage m = {.type = CHANNEL_ERROR,
                        .generation = e.generation,
                        .exit_code = err.exit,
                        .stage = STAGE_STARTING};
    (void)snprintf(m.text, sizeof(m.text), "%s", err.text);
    (void)daemon_link_report(link, &m, NULL); /* a daemon that has ended needs no report */
    return err.exit;
}

/* ---- the verb ---- */

static int log_progress(void *userdata, const char *what, int64_t done, int64_t all, double loss,
                        _unused_ Error *err)
{
    Evaluating *e = userdata;
    char mean[48] = "";
    const uint64_t now = clock_boottime_usec();
    if (done < all && now - e->said_usec < SAID_USEC)
        return 0;
    e->said_usec = now;
    if (!isnan(loss))
        (void)snprintf(mean, sizeof(mean), ", mean loss %.6g", loss);
    log_info("%lld of %lld %s%s", (long long)done, (long long)all, what, mean);
    return 0;
}

static void help(void)
{
    printf("usage: sdtrainer evaluate --job FILE --from MANIFEST\n\n"
           "Evaluates a checkpoint, as the evaluation (kind \"eval\" with loss or grid) in FILE "
           "would.\n"
           "Prints each number and each artifact that it finds. The numbers are the same on every "
           "machine.\n\n"
           "  --job FILE        the job file of the evaluation\n"
           "  --from MANIFEST   path or URI of the checkpoint's manifest.json\n\n"
           "Examples:\n"
           "  sdtrainer evaluate --job sd2-loss.json --from s3://bucket/sd2/"
           "step-0000004000-o1-g3-9f2c11aa/manifest.json\n\n"
           "Exit codes: 0 done, 75 retry, 78 bad job, 82 data corrupt, 83 store unreachable, 84 "
           "not finite.\n");
}

static int evaluate_alone(const char *path, const char *from)
{
    Error err = ERROR_INIT;
    Evaluating e = {.began_usec = clock_boottime_usec(), .said_usec = clock_boottime_usec()};
    EvalResults results = {0};
    size_t n_bytes;
    _cleanup_free_ char *text = NULL;
    _cleanup_(job_freep) Job *job = NULL;
    int r = file_read(path, JOB_TEXT_MAX, &text, &n_bytes, &err);
    if (r == 0)
        r = job_parse_any(path, text, n_bytes, &job, &err);
    if (r == 0 && (job->kind != JOB_EVAL || job_is_program(job)))
        r = error_set(&err, -EINVAL,
                      "%s: sdtrainer evaluates what has kind \"eval\" and the key loss or grid",
                      path);
    if (r < 0)
        (void)error_set_exit(&err, r, EXIT_NEVER_RETRY);
    const EvalRequest request = {
        .job = job, .text = text, .manifest = from, .progress = log_progress, .userdata = &e};
    if (r == 0)
        r = evaluate_by(&request, &results, &err);
    if (r < 0) {
        (void)error_set_exit(&err, r, EXIT_RETRY);
        log_error("%s", err.text);
        return err.exit;
    }
    for (size_t i = 0; i < results.n_numbers; i++)
        printf("%s %.17g\n", results.numbers[i].name, results.numbers[i].value);
    for (size_t i = 0; i < results.n_artifacts; i++)
        printf("%s %s\n", results.artifacts[i].name, results.artifacts[i].uri);
    return EXIT_DONE;
}

int verb_evaluate(int argc, char **argv)
{
    static const struct option options[] = {{"job", required_argument, NULL, 'j'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *job = NULL, *from = NULL;
    for (int c; (c = getopt_long(argc, argv, "j:f:h", options, NULL)) != -1;) {
        if (c == 'h') {
            help();
            return 0;
        }
        if (c != 'j' && c != 'f')
            return 2;
        *(c == 'j' ? &job : &from) = optarg;
    }
    if (!job || !from || optind < argc) {
        fprintf(stderr, "sdtrainer evaluate: --job FILE and --from MANIFEST are needed\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN); /* cannot fail for SIGPIPE */
    return evaluate_alone(job, from);
}
