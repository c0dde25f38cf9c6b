/* SPDX-License-Identifier: Apache-2.0 */
/* test-report-page.c - pages of invented jobs and clusters: their contents, their escapes, and the changes that are
 * sent. */
#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "cluster/cost.h"
#include "report/test/testing-report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_NODES = 1000 };

static void a_job_has_everything(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(page_clear) Page page;
    report_job(&s->job, &page);
    leave_page(&page, "job.html");
    assert_contains(&page, "<!DOCTYPE html>");
    assert_contains(&page, "data-events=\"/events/jobs/first\"");
    assert_contains(&page, "signal 9 &lt;killed&gt;");
    assert_contains(&page, "resized &lt;to&gt; two");
    assert_contains(&page, "Look at &lt;it&gt; &amp; &#39;mend&#39; it.");
    assert_contains(&page, "logarithmic");
    assert_contains(&page, "<title>restore 1.500 s</title>");
    assert_contains(&page, "<title>first step 1.000 s</title>");
    assert_contains(&page, "4 steps were trained again");
    assert_contains(&page, "3 &rarr; 2");
    assert_int_equal(count_text(page.text, "<g class=\"failure\">"), 2);
    assert_int_equal(count_text(page.text, "class=\"stub\""),
                     1); /* the stub of the open incident */
    assert_contains(&page, "file:///ck/manifest.json");
    assert_contains(&page, "Gradient norm");
    assert_null(strstr(page.text, " style="));
    /* The Content-Security-Policy allows no inline styles. */
    assert_null(strstr(page.text, "<style"));
    assert_null(strstr(page.text, "http:"));
    assert_int_equal(count_text(page.text, "{{"), 0);
    assert_int_equal(count_text(page.text, "<!--"), 0);
}

static void the_next_checkpoint_has_room_or_not(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    static const struct {
        int64_t has;
        const char *found;
    } cases[] = {
        {50000000000, "<li>50.0 GB free, the next checkpoint has 34.1 GB</li>"},
        {0, "<li class=\"bad\">34.1 GB are missing: 0.0 MB free, the next checkpoint has 34.1 GB: "
            "free that much in checkpoint.uri, or start"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_(page_clear) Page page;
        s->progress.save_next_bytes = 34125000000;
        s->progress.save_free_bytes = cases[i].has;
        report_job(&s->job, &page);
        assert_contains(&page, cases[i].found);
    }
}

static void a_file_loads_nothing(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(page_clear) Page page;
    s->job.live = false;
    s->phase.phase = PHASE_SUCCEEDED;
    s->job.progress = NULL;
    report_job(&s->job, &page);
    leave_page(&page, "report.html");
    assert_contains(&page, "prefers-color-scheme:dark");
    assert_null(strstr(page.text, "src="));
    assert_null(strstr(page.text, "data-events="));
    assert_null(strstr(page.text, "rel=\"stylesheet\""));
}

static void an_end_inside_the_warm_up_is_a_row(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    char config[] = "/unet.json";
    Job spec = {.model = {.config_uri = config},
                .train = {.optimizer = {.lr = 0.5, .warmup_steps = 1000000}}};
    static const JobPhase phases[] = {PHASE_RUNNING, PHASE_SUCCEEDED};
    s->job.spec = &spec;
    for (size_t i = 0; i < ELEMENTSOF(phases); i++) {
        _cleanup_(page_clear) Page page;
        s->phase.phase = phases[i];
        s->job.step = 1000;
        report_job(&s->job, &page);
        if (phases[i] == PHASE_SUCCEEDED)
            assert_contains(&page, "ended at step 1000, inside its warm-up of 1000000 steps: the "
                                   "learning rate was 0.0005 at most, not 0.5");
        else
            assert_null(strstr(page.text, "inside its warm-up"));
    }
}

/* The legend has entries only for marks that are in the drawing. */
static void a_legend_has_what_is_there(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(page_clear) Page page;
    s->job.n_incidents = s->job.n_saved = 0;
    s->phase.n_worlds = 1;
    report_job(&s->job, &page);
    assert_null(strstr(page.text, "k-again"));
    assert_null(strstr(page.text, "k-move"));
    assert_null(strstr(page.text, "k-saved"));
    assert_contains(&page, "Nothing failed.");
}

/* Shares of the time add up to 100 %, and the first two are the goodput. */
static void the_time_adds_up(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(page_clear) Page page;
    report_job(&s->job, &page);
    double sum = 0;
    int n = 0;
    for (const char *p = page.text; (p = strstr(p, "data-label=\"Share\" class=\"n\">")); n++) {
        p += strlen("data-label=\"Share\" class=\"n\">");
        sum += strtod(p, NULL);
    }
    assert_int_equal(n, 6); /* no share is "idle" or "not told" */
    assert_true(fabs(sum - 100) < 0.3);
    assert_contains(&page, "</i>train<td data-label=\"Share\" class=\"n\">70.0 %");
    assert_contains(&page, "</i>save<td data-label=\"Share\" class=\"n\">5.0 %");
    page_clear(&page);
    s->job.saving = NAN; /* the share of saves is unknown */
    report_job(&s->job, &page);
    assert_contains(&page, "</i>train<td data-label=\"Share\" class=\"n\">75.0 %");
    assert_null(strstr(page.text, "</i>save<"));
    page_clear(&page);
    s->phase.spent = (PhaseSpent){0}; /* as in a record of an earlier version */
    s->phase.since_usec = AT(219);
    report_job(&s->job, &page);
    assert_contains(&page, "not told");
}

/* Slots at $36 an hour in total for 20 s add $0.20 to the cost counted before. */
static void the_cost_is_told_where_there_are_prices(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(page_clear) Page page;
    report_job(&s->job, &page);
    assert_null(strstr(page.text, "paid for slots"));
    page_clear(&page);
    s->phase.cost = (CostMeter){.rate = 36 * COST_DOLLAR,
                                .since_usec = AT(200),
                                .spent = 7 * COST_DOLLAR,
                                .lost = 2 * COST_DOLLAR};
    report_job(&s->job, &page);
    assert_contains(&page, "<b>$7.20</b><span>paid for slots</span>");
    assert_contains(&page, "<b>$2.00</b><span>of it lost to failures</span>");
    assert_contains(&page, "per 1,000 steps");
    assert_contains(&page, "to the end");
}

/* If both pictures have the same captions, the list appears only once. A long list is folded. */
static void pictures_have_captions(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(page_clear) Page page;
    _cleanup_(grid_notes_clear) GridNotes drawn = {.job = "first", .step = 60, .seed = 3};
    _cleanup_(grid_notes_clear) GridNotes real = {.job = "first", .real = true};
    for (int i = 0; i < 4; i++) {
        grid_notes_add(&drawn, i == 2 ? "" : "a <cat>");
        grid_notes_add(&real, i == 2 ? "" : "a <cat>");
    }
    s->job.grid = (ReportPicture){.uri = "data:image/png;base64,AA==", .notes = &drawn};
    s->job.pictures = (ReportPicture){.uri = "data:image/png;base64,BB==", .notes = &real};
    report_job(&s->job, &page);
    leave_page(&page, "pictures.html");
    assert_contains(&page, "weights, not averaged, of step 60, seed 3.");
    assert_contains(&page, "under the same captions");
    assert_int_equal(count_text(page.text, "<details open>"), 1);
    assert_int_equal(count_text(page.text, "<li>a &lt;cat&gt;</li>"), 3);
    assert_int_equal(count_text(page.text, "<li></li>"), 1);
    assert_true(strstr(page.text, "AA==") < strstr(page.text, "BB=="));
    page_clear(&page);
    for (int i = 4; i < GRID_CELLS_MAX; i++)
        grid_notes_add(&real, "other");
    report_job(&s->job, &page);
    assert_null(strstr(page.text, "under the same captions"));
    assert_int_equal(count_text(page.text, "<details>"), 1);
    assert_int_equal(count_text(page.text, "<li>other</li>"), GRID_CELLS_MAX - 4);
}

static void a_job_without_anything(_unused_ void **state)
{
    static const PhaseRecord phase;
    static const CheckpointsRecord checkpoints;
    _cleanup_(page_clear) Page page;
    const ReportJob job = {.cluster = "c",
                           .name = "<b>",
                           .version = "1",
                           .now_usec = AT(1),
                           .phase = &phase,
                           .checkpoints = &checkpoints,
                           .goodput = NAN,
                           .points_note = "Nothing <seen>.",
                           .place = 2,
                           .n_waiting = 3};
    report_job(&job, &page);
    assert_contains(&page, "Nothing &lt;seen&gt;.");
    assert_contains(&page, "place 2 of 3");
    assert_contains(&page, "None is committed yet.");
    assert_null(strstr(page.text, "<b>\n"));
    assert_int_equal(count_text(page.text, "NAN") + count_text(page.text, "nan<"), 0);
}

/* A loss that is not a finite number leaves a gap in the curve. */
static void odd_numbers(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    _cleanup_(page_clear) Page page;
    for (int i = 40; i < 50; i++)
        s->points[i].loss = s->points[i].low = s->points[i].high = NAN;
    s->points[60].high = s->points[60].loss = INFINITY;
    s->points[70].grad_norm = 1e30;
    report_job(&s->job, &page);
    assert_null(strstr(page.text, "nan"));
    assert_null(strstr(page.text, "inf\""));
    for (int i = 0; i < N_POINTS; i++)
        s->points[i].loss = s->points[i].low = s->points[i].high = 0;
    page_clear(&page);
    report_job(&s->job, &page);
    assert_null(strstr(page.text, "nan"));
}

/* ---- changes ---- */

static json_t *changes_of(const Page *before, Page *now, bool slow)
{
    Error err = ERROR_INIT;
    json_t *changes = NULL;
    _cleanup_free_ char *text = page_changes(before, now, slow);
    if (!text)
        return NULL;
    assert_null(strchr(text, '\n')); /* an event is one line */
    assert_int_equal(json_parse("changes", text, strlen(text), &changes, &err), 0);
    return changes;
}

static void only_what_has_changed_is_sent(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    Page before, same, now, later;
    report_job(&s->job, &before);
    report_job(&s->job, &same);
    assert_null(changes_of(&before, &same, true));

    s->job.now_usec += USEC_PER_SEC;
    s->job.step++;
    s->progress.loss = 0.125;
    s->points[3].loss = 7;
    report_job(&s->job, &now);
    _cleanup_json_ json_t *changes = changes_of(&before, &now, false);
    assert_string_equal(json_string_value(json_object_get(changes, "step")), "121");
    assert_string_equal(json_string_value(json_object_get(changes, "loss")), "0.1250");
    assert_null(json_object_get(changes, "page"));
    assert_null(json_object_get(changes, "curves")); /* "curves" is a slow part */
    assert_null(json_object_get(changes, "recoveries"));

    s->job.name = "other"; /* the name is in the outermost part only */
    report_job(&s->job, &later);
    _cleanup_json_ json_t *slow = changes_of(&now, &later, true);
    assert_int_equal(json_object_size(slow), 1);
    const char *all = json_string_value(json_object_get(slow, "page"));
    assert_non_null(strstr(all, "<h1>other</h1>"));
    page_clear(&before);
    page_clear(&same);
    page_clear(&now);
    page_clear(&later);
}

/* Changes of a slow part that were left out once are sent with the next slow change. */
static void what_was_put_off_is_not_lost(_unused_ void **state)
{
    _cleanup_free_ Scenario *s = scenario_new();
    Page first, second, third;
    report_job(&s->job, &first);
    s->points[3].loss = s->points[3].high = 70;
    report_job(&s->job, &second);
    assert_null(changes_of(&first, &second, false));
    report_job(&s->job, &third);
    _cleanup_json_ json_t *changes = changes_of(&second, &third, true);
    assert_non_null(json_object_get(changes, "curves"));
    page_clear(&first);
    page_clear(&second);
    page_clear(&third);
}

/* ---- a cluster ---- */

static void a_cluster(_unused_ void **state)
{
    _cleanup_free_ ReportNodeLine *nodes = memory_zeroed(N_NODES, sizeof(*nodes));
    _cleanup_free_ char *names = memory_zeroed(N_NODES, 8);
    for (int i = 0; i < N_NODES; i++) {
        (void)snprintf(names + 8 * i, 8, "n%04d", i);
        nodes[i] = (ReportNodeLine){.name = names + 8 * i,
                                    .text = "",
                                    .state = "up",
                                    .job = "first",
                                    .n_slots = 8,
                                    .up = true};
    }
    nodes[5].state = "quarantine";
    nodes[5].text = "ECC <errors>";
    nodes[5].ill = true;
    const ReportJobLine jobs[] = {{.name = "first",
                                   .reason = "",
                                   .phase = PHASE_RUNNING,
                                   .ranks = 8,
                                   .wanted = 8,
                                   .step = 3,
                                   .steps = 9,
                                   .loss = 1.5,
                                   .samples_per_sec = 12,
                                   .to_go_sec = 60,
                                   .goodput = 0.9},
                                  {.name = "second",
                                   .reason = "waits for <slots>",
                                   .phase = PHASE_PENDING,
                                   .wanted = 4,
                                   .place = 1,
                                   .steps = 9,
                                   .loss = NAN,
                                   .samples_per_sec = NAN,
                                   .to_go_sec = NAN,
                                   .goodput = NAN},
                                  {.name = "program",
                                   .reason = "",
                                   .phase = PHASE_RUNNING,
                                   .loss = NAN,
                                   .samples_per_sec = NAN,
                                   .to_go_sec = NAN,
                                   .goodput = NAN}};
    const IncidentRecord open = {.severity = SEVERITY_CRITICAL,
                                 .cause = "node-lost",
                                 .node = "n0007",
                                 .job = "first",
                                 .evidence = "its <lease>",
                                 .at_usec = AT(0)};
    const IncidentRecord *const list[] = {&open};
    ReportCluster c = {.cluster = "prod",
                       .version = "1",
                       .leader = "ctl<1>",
                       .term = 7,
                       .now_usec = AT(1),
                       .note = "",
                       .jobs = jobs,
                       .n_jobs = 3,
                       .n_running = 1,
                       .n_waiting = 1,
                       .nodes = nodes,
                       .n_nodes = N_NODES,
                       .n_up = N_NODES,
                       .n_slots = 8 * N_NODES,
                       .n_free_slots = 4,
                       .incidents = list,
                       .n_incidents = 1,
                       .advice = report_advise};
    _cleanup_(page_clear) Page page, later;
    report_cluster(&c, &page);
    leave_page(&page, "cluster.html");
    assert_contains(&page, "ctl&lt;1&gt;");
    assert_contains(&page, "ECC &lt;errors&gt;");
    assert_contains(&page, "its &lt;lease&gt;");
    assert_contains(&page, "Look at &lt;it&gt;");
    assert_contains(&page, "href=\"/jobs/second\"");
    assert_contains(&page, "<span id=\"first-s\">3</span> / 9");
    assert_contains(&page, "<span id=\"program-s\">-</span><td"); /* it reports no steps */
    assert_null(strstr(page.text, "n0009"));
    assert_true(page.n_bytes < 60000);
    c.now_usec += USEC_PER_SEC;
    report_cluster(&c, &later);
    _cleanup_json_ json_t *changes = changes_of(&page, &later, true);
    assert_int_equal(json_object_size(changes), 1);
    assert_non_null(json_object_get(changes, "stamp"));
}

static void words(_unused_ void **state)
{
    _cleanup_(page_clear) Page page;
    report_words("No <job>", "It is gone.", "", &page);
    assert_contains(&page, "No &lt;job&gt;");
    assert_null(strstr(page.text, "<a "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_has_everything),
        cmocka_unit_test(the_next_checkpoint_has_room_or_not),
        cmocka_unit_test(a_file_loads_nothing),
        cmocka_unit_test(an_end_inside_the_warm_up_is_a_row),
        cmocka_unit_test(a_legend_has_what_is_there),
        cmocka_unit_test(the_time_adds_up),
        cmocka_unit_test(the_cost_is_told_where_there_are_prices),
        cmocka_unit_test(pictures_have_captions),
        cmocka_unit_test(a_job_without_anything),
        cmocka_unit_test(odd_numbers),
        cmocka_unit_test(only_what_has_changed_is_sent),
        cmocka_unit_test(what_was_put_off_is_not_lost),
        cmocka_unit_test(a_cluster),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
