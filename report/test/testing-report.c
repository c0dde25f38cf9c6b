/* SPDX-License-Identifier: Apache-2.0 */
/* testing-report.c - see testing-report.h. */
#include "report/test/testing-report.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

const char *report_advise(_unused_ const IncidentRecord *incident)
{
    return "Look at <it> & 'mend' it.";
}

static void put_incidents(Scenario *s)
{
    s->incidents[0] = (IncidentRecord){.state = INCIDENT_RESOLVED,
                                       .cause = "trainer-died",
                                       .node = "node2",
                                       .rank = 1,
                                       .generation = 1,
                                       .step = 40,
                                       .evidence = "signal 9 <killed>",
                                       .at_usec = AT(100),
                                       .first_step_usec = AT(104),
                                       .resolved_usec = AT(104),
                                       .lost_steps = 4,
                                       .detect_sec = 0.1,
                                       .decide_sec = 0.1,
                                       .stop_sec = 0.3,
                                       .start_sec = 1,
                                       .restore_sec = 1.5,
                                       .replay_sec = 3};
    s->incidents[1] = (IncidentRecord){.state = INCIDENT_OPEN,
                                       .cause = "store-trouble",
                                       .rank = -1,
                                       .step = 90,
                                       .evidence = "no answer",
                                       .at_usec = AT(200),
                                       .detect_sec = -1,
                                       .decide_sec = -1,
                                       .stop_sec = -1,
                                       .start_sec = -1,
                                       .restore_sec = -1,
                                       .replay_sec = -1};
    for (int i = 0; i < 2; i++)
        s->list[i] = &s->incidents[i];
}

static void put_phase(PhaseRecord *p)
{
    *p = (PhaseRecord){.phase = PHASE_RUNNING,
                       .generation = 3,
                       .reason = "resized <to> two",
                       .since_usec = AT(160),
                       .started_usec = AT(0),
                       .n_worlds = 3,
                       .spent = {.start_usec = 10 * USEC_PER_SEC,
                                 .running_usec = 140 * USEC_PER_SEC,
                                 .recovery_usec = 4 * USEC_PER_SEC,
                                 .resize_usec = 6 * USEC_PER_SEC}};
    const PastWorld worlds[] = {{1, 3, 0, AT(0), "start"},
                                {2, 3, 36, AT(101), "recovers from trainer-died"},
                                {3, 2, 60, AT(155), "resizes from 3 to 2"}};
    memcpy(p->worlds, worlds, sizeof(worlds));
}

Scenario *scenario_new(void)
{
    Scenario *s = memory_new(Scenario);
    put_phase(&s->phase);
    put_incidents(s);
    s->checkpoints = (CheckpointsRecord){
        .n_commits = 1,
        .commits = {
            {.step = 60, .generation = 2, .uri = "file:///ck/manifest.json", .at_usec = AT(154)}}};
    s->progress = (ProgressRecord){.generation = 3,
                                   .step = N_POINTS,
                                   .steps = 240,
                                   .loss = 0.25,
                                   .grad_norm = 1.5,
                                   .lr = 0.001,
                                   .samples_per_sec = 32,
                                   .step_sec = 1,
                                   .samples_seen = (int64_t)N_POINTS * 32,
                                   .at_usec = AT(219)};
    for (int i = 0; i < N_POINTS; i++) {
        const double loss = 40.0 / (i + 1) + 0.02 * (i % 7);
        s->points[i] = (ReportPoint){.step = i + 1,
                                     .usec = AT(i),
                                     .loss = loss,
                                     .low = loss,
                                     .high = loss,
                                     .samples_per_sec = 30 + i % 5,
                                     .grad_norm = 3.0 / (1 + i % 9),
                                     .lr = 1e-5 * MIN(i, 60)};
    }
    s->saved[0] = 30;
    s->saved[1] = 60;
    s->job = (ReportJob){.cluster = "prod",
                         .name = "first",
                         .version = "1",
                         .now_usec = AT(220),
                         .live = true,
                         .phase = &s->phase,
                         .checkpoints = &s->checkpoints,
                         .progress = &s->progress,
                         .incidents = s->list,
                         .n_incidents = 2,
                         .step = N_POINTS,
                         .steps = 240,
                         .goodput = 0.75,
                         .saving = 0.05,
                         .advice = report_advise,
                         .points = s->points,
                         .n_points = N_POINTS,
                         .points_note = "",
                         .saved = s->saved,
                         .n_saved = 2};
    return s;
}

size_t count_text(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part))
        n++;
    return n;
}

void assert_contains(const Page *page, const char *part)
{
    assert_int_equal(page->n_missing, 0);
    if (!strstr(page->text, part))
        fail_msg("no \"%s\" in\n%s", part, page->text);
}

void leave_page(const Page *page, const char *name)
{
    assert_int_equal(page->n_missing, 0);
    const char *folder = getenv("SDTRAIN_TEST_OUT");
    if (!folder)
        return;
    _cleanup_free_ char *path = memory_format("%s/%s", folder, name);
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    assert_int_equal(fwrite(page->text, 1, page->n_bytes, to), page->n_bytes);
    assert_int_equal(fclose(to), 0);
}
