/* SPDX-License-Identifier: Apache-2.0 */
/* test-report-evals.c - the pages of jobs whose checkpoints are evaluated, of evaluations, and of programs. */
#include "base/cleanup.h"
#include "base/memory.h"
#include "report/test/testing-report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- evaluations ---- */

/* Two jobs evaluate the checkpoints: "held" has found a loss of steps 30 and 60, "fid" two numbers of step 30. */
typedef struct Evaluated {
    PhaseRecord held, fid;
    EvalRecord records[3];
    ReportEvals evals;
} Evaluated;

static void put_verdict(PhaseRecord *p, int64_t step, EvalVerdict verdict)
{
    p->eval.results[p->eval.n_results++] =
        (EvalResult){.step = step, .verdict = verdict, .at_usec = AT(step)};
}

static Evaluated *evaluated_new(void)
{
    Evaluated *e = memory_new(Evaluated);
    e->held = e->fid =
        (PhaseRecord){.phase = PHASE_RUNNING, .submission = "now", .since_usec = AT(5)};
    put_verdict(&e->held, 30, EVAL_DONE);
    put_verdict(&e->held, 60, EVAL_DONE);
    put_verdict(&e->fid, 30, EVAL_DONE);
    put_verdict(&e->fid, 45, EVAL_SKIPPED);
    put_verdict(&e->fid, 50, EVAL_FAILED);
    e->fid.eval.present = (CommitMark){.step = 60, .generation = 2};
    e->records[0] = (EvalRecord){.step = 30, .results = {.seconds = 2}};
    e->records[1] = (EvalRecord){.step = 60, .results = {.seconds = 3}};
    e->records[2] = (EvalRecord){.step = 30};
    EvalResults *held[] = {&e->records[0].results, &e->records[1].results};
    for (int i = 0; i < 2; i++) {
        (void)eval_results_add_number(held[i], "loss", 5.25 - i);
        (void)eval_results_add_number(held[i], "ema_loss", i == 0 ? NAN : 4.5);
    }
    EvalResults *fid = &e->records[2].results;
    (void)eval_results_add_number(fid, "fid/i", 38.5);
    (void)eval_results_add_number(fid, "gloss", 1e6); /* the word is not its last */
    (void)eval_results_add_artifact(fid, "grid", "https://example.org/<grid>.png");
    (void)eval_results_add_artifact(fid, "raw", "javascript:alert(1)");
    (void)snprintf(fid->text, sizeof(fid->text), "40 <images>");
    for (int i = 0; i < 3; i++)
        (void)snprintf(e->records[i].submission, SUBMISSION_BYTES, "now");
    return e;
}

static void add_results(Evaluated *e, const EvalRecord *record)
{
    _cleanup_free_ char *text = eval_record_encode(record, NULL);
    report_add_results(&e->evals, "evals", text, strlen(text));
}

static void evaluated_gather(Evaluated *e)
{
    report_evals_clear(&e->evals);
    add_results(e, &e->records[0]);
    add_results(e, &e->records[1]);
    report_add_results(&e->evals, "evals", "{", 1); /* it does not decode */
    report_add_evals(&e->evals, "held", &e->held);
    add_results(e, &e->records[2]);
    report_add_evals(&e->evals, "fid", &e->fid);
}

static void evaluated_free(Evaluated **e)
{
    report_evals_clear(&(*e)->evals);
    free(*e);
}

static void evaluations_are_beside_the_loss(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(evaluated_free) Evaluated *e = evaluated_new();
    _cleanup_(page_clear) Page page;
    evaluated_gather(e);
    s->job.evals = e->evals;
    report_job(&s->job, &page);
    leave_page(&page, "evaluated.html");
    /* losses are in the chart of the losses */
    assert_contains(&page, "</i>loss, by held</span>");
    assert_contains(&page, "</i>ema_loss, by held</span>");
    assert_contains(&page, "<title>loss 5.25 at step 30, by held</title>");
    assert_contains(&page, "<title>loss 4.25 at step 60, by held</title>");
    assert_contains(&page, "<title>ema_loss 4.5 at step 60, by held</title>");
    assert_int_equal(count_text(page.text, "<title>ema_loss"), 1); /* NaN has no point */
    /* other numbers have charts of their own, and do not stretch that of the losses */
    assert_contains(&page, "<figcaption>fid/i, by fid</figcaption>");
    assert_contains(&page, "<figcaption>gloss, by fid</figcaption>");
    assert_null(strstr(page.text, "</i>gloss"));
    assert_null(strstr(page.text, ">100000<"));
    /* the table */
    assert_contains(&page, "<td data-label=\"loss\" class=\"n\">4.25");
    assert_contains(&page, "<td data-label=\"ema_loss\" class=\"n\">nan");
    assert_contains(&page, "<td data-label=\"Took\" class=\"n\">3.00 s");
    assert_contains(&page, "<td data-label=\"Verdict\" class=\"bad\">failed");
    assert_contains(&page, "<td data-label=\"Verdict\" class=\"warning\">skipped");
    assert_contains(&page, "<td data-label=\"Verdict\">running");
    assert_contains(&page, "<a href=\"/jobs/held\">held</a>");
    assert_contains(&page, "40 &lt;images&gt;");
    assert_contains(&page, "<a href=\"https://example.org/&lt;grid&gt;.png\"");
    assert_contains(&page, "raw: <code>javascript:alert(1)</code>");
    assert_null(strstr(page.text, "href=\"javascript"));
    assert_int_equal(count_text(page.text, "<td data-label=\"Verdict\""), 6);
    assert_true(strstr(page.text, "class=\"n\">4.25") <
                strstr(page.text, "class=\"n\">5.25")); /* the newest first */
}

/* Results of an earlier submission, and of a step that has no verdict yet, are not shown. */
static void results_without_a_verdict_do_not_count(_unused_ void **state)
{
    _cleanup_(evaluated_free) Evaluated *e = evaluated_new();
    evaluated_gather(e);
    assert_int_equal(e->evals.n, 6);
    assert_true(e->evals.list[0].record->results.numbers[0].value == 5.25);
    assert_string_equal(e->evals.list[2].record->results.numbers[0].name, "fid/i");
    (void)snprintf(e->records[0].submission, SUBMISSION_BYTES, "before");
    e->held.eval.n_results = 1;
    e->held.eval.present.step = 60;
    e->held.phase = PHASE_PENDING;
    e->fid.eval.results[0].verdict = EVAL_FAILED;
    e->held.eval.asked[0].step = 60; /* it is the present one */
    e->held.eval.asked[1].step = 70;
    e->held.eval.n_asked = 2;
    evaluated_gather(e);
    assert_int_equal(e->evals.list[2].step, 70);
    assert_string_equal(e->evals.list[2].verdict, "pending");
    assert_null(e->evals.list[0].record);
    assert_null(e->evals.list[1].record);
    assert_string_equal(e->evals.list[1].verdict, "pending");
    assert_null(e->evals.list[3].record); /* the failed one of fid */
}

/* The table shows the newest rows and says how many it leaves out; each number of further columns is in the charts. */
static void many_evaluations_are_cut(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(evaluated_free) Evaluated *e = evaluated_new();
    _cleanup_(page_clear) Page page;
    char name[16];
    for (int i = 0; i < 30; i++) {
        put_verdict(&e->held, 100 + i, EVAL_SKIPPED);
        (void)snprintf(name, sizeof(name), "n%d", i);
        (void)eval_results_add_number(&e->records[1].results, name, i);
    }
    e->held.eval.results[31].verdict = EVAL_DONE; /* the newest, step 129, has many numbers */
    e->records[1].step = 129;
    evaluated_gather(e);
    s->job.evals = e->evals;
    report_job(&s->job, &page);
    assert_int_equal(count_text(page.text, "<td data-label=\"Verdict\""), 20);
    assert_contains(&page, "lists 16 more");
    assert_int_equal(count_text(page.text, "data-label=\"n3\""), 20);
    assert_int_equal(count_text(page.text, "data-label=\"n4\""), 0);
    assert_contains(&page, "<figcaption>n5, by held</figcaption>");
    assert_null(strstr(page.text, "<figcaption>n20, by held</figcaption>"));
}

/* A page has no zeros for what the job does not have. */
static void an_evaluation_has_no_steps(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(evaluated_free) Evaluated *e = evaluated_new();
    _cleanup_(page_clear) Page page;
    evaluated_gather(e);
    s->job.evals = e->evals;
    s->job.kind = JOB_EVAL;
    s->job.of = "sd2";
    s->job.step = s->job.steps = 0;
    s->job.n_points = s->job.n_saved = s->job.n_incidents = 0;
    s->job.progress = NULL;
    report_job(&s->job, &page);
    leave_page(&page, "evaluation.html");
    assert_contains(&page, "evaluates the checkpoints of <a href=\"/jobs/sd2\">sd2</a>");
    assert_contains(&page, "<b>3</b><span>checkpoints evaluated</span>");
    assert_contains(&page, "</i>loss, by held</span>");
    assert_contains(&page, "</i>run<td");
    static const char *const absent[] = {"<span>steps</span>", "trained again</span>", "Goodput",
                                         "id=\"checkpoints\"", "averaged</span>",      "<th>By"};
    for (size_t i = 0; i < ELEMENTSOF(absent); i++)
        if (strstr(page.text, absent[i]))
            fail_msg("\"%s\" is there", absent[i]);
    page_clear(&page);
    s->job.evals = (ReportEvals){0};
    report_job(&s->job, &page); /* nothing is evaluated yet */
    assert_contains(&page, "<b>0</b><span>checkpoints evaluated</span>");
    assert_null(strstr(page.text, "<h2>Loss</h2>"));
    assert_null(strstr(page.text, "<h2>Evaluations</h2>"));
}

/* A program may report steps and register checkpoints, or be silent. */
static void a_program_has_what_it_reports(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(page_clear) Page page;
    char *command[] = {"python3", "train.py", "--name=<x>", NULL};
    char folder[] = "/srv/train";
    Job spec = {.kind = JOB_EXEC, .exec = {.command = command, .dir = folder}};
    s->job.kind = JOB_EXEC;
    s->job.spec = &spec;
    s->job.steps = 0;
    report_job(&s->job, &page);
    assert_contains(&page, "<span id=\"step\">120</span></b><span>steps</span>");
    assert_contains(&page, "<th>Place");
    assert_contains(&page, "file:///ck/manifest.json");
    assert_contains(&page, "<td>python3 train.py --name=&lt;x&gt;</tr>");
    assert_contains(&page, "<td>/srv/train</tr>");
    assert_null(strstr(page.text, "<th>Digest"));
    assert_null(strstr(page.text, "AdamW"));
    page_clear(&page);
    s->job.step = 0;
    s->job.n_points = s->job.n_incidents = 0;
    s->job.progress = NULL;
    s->checkpoints.n_commits = 0;
    report_job(&s->job, &page);
    assert_null(strstr(page.text, "<span>steps</span>"));
    assert_null(strstr(page.text, "trained again</span>"));
    assert_null(strstr(page.text, "id=\"checkpoints\""));
    assert_null(strstr(page.text, "<h2>Loss</h2>"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluations_are_beside_the_loss),
        cmocka_unit_test(results_without_a_verdict_do_not_count),
        cmocka_unit_test(many_evaluations_are_cut),
        cmocka_unit_test(an_evaluation_has_no_steps),
        cmocka_unit_test(a_program_has_what_it_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
