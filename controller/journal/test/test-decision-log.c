/* SPDX-License-Identifier: Apache-2.0 */
/* test-decision-log.c - each part of a decision in words: the whole lines, with levels and message ids, in order. */
#include "base/json/json.h"
#include "base/message-id.h"
#include "base/test/testing.h"
#include "cluster/resume.h"
#include "controller/journal/decision-log.h"
#include "controller/journal/journal.h"

#include <string.h>

static Decision decision;
static char said[16384];

/* Appends "level id: text" to `said`; "-" stands for no message id. */
static void keep(const LogLine *line, void *userdata)
{
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    static const struct {
        const char *id, *name;
    } ids[] = {{MESSAGE_INCIDENT, "incident"},
               {MESSAGE_RECOVERED, "recovered"},
               {MESSAGE_NODE_JUDGED, "judged"},
               {MESSAGE_WORLD, "world"},
               {MESSAGE_PHASE, "phase"}};
    const char *name = line->message_id ? "?" : "-";
    assert_ptr_equal(userdata, &decision);
    assert_non_null(line->format);
    for (size_t i = 0; line->message_id && i < ELEMENTSOF(ids); i++)
        if (strcmp(ids[i].id, line->message_id) == 0)
            name = ids[i].name;
    const size_t n = strlen(said);
    (void)snprintf(said + n, sizeof(said) - n, "%s %s: %s\n", levels[line->level], name,
                   line->text);
}

#define EXPECT(lines)                                                                              \
    do {                                                                                           \
        said[0] = '\0';                                                                            \
        decision_log_lines(&decision, keep, &decision);                                            \
        assert_string_equal(said, lines);                                                          \
    } while (0)

static int begin(_unused_ void **state)
{
    memset(&decision, 0, sizeof(decision));
    (void)snprintf(decision.job, sizeof(decision.job), "j");
    return 0;
}

static void nothing_says_nothing(_unused_ void **state)
{
    EXPECT("");
    decision.put_desired = decision.put_spec = decision.put_checkpoints = true;
    EXPECT("");
}

static void an_incident_opens_and_is_resolved(_unused_ void **state)
{
    IncidentRecord *i = &decision.incident;
    decision.put_incident = true;
    *i = (IncidentRecord){.id = "j-3",
                          .job = "j",
                          .cause = "hang",
                          .node = "n1",
                          .rank = 4,
                          .generation = 3,
                          .step = 77,
                          .lost_steps = 7,
                          .evidence = "it stands",
                          .detect_sec = 1.25,
                          .decide_sec = 2.5,
                          .stop_sec = 0,
                          .start_sec = 4.125,
                          .restore_sec = 5,
                          .replay_sec = -1};
    EXPECT("warning incident: incident j-3: hang: it stands JOB=j GENERATION=3 NODE=n1 RANK=4 "
           "STEP=77 LOST_STEPS=7\n");
    i->state = INCIDENT_RESOLVED;
    EXPECT("info recovered: incident j-3 resolved: detect 1.250, decide 2.500, stop 0.000, start "
           "4.125, restore 5.000 s JOB=j GENERATION=3\n");
    i->detect_sec = i->stop_sec = -1;
    EXPECT(
        "info recovered: incident j-3 resolved: decide 2.500, start 4.125, restore 5.000 s JOB=j "
        "GENERATION=3\n");
    i->decide_sec = i->start_sec = i->restore_sec = -1;
    i->replay_sec = 6.5;
    i->lost_steps = 0;
    EXPECT("info recovered: incident j-3 resolved JOB=j GENERATION=3\n");
    i->lost_steps = 1;
    EXPECT("info -: incident j-3: 1 lost step trained again in 6.500 s JOB=j GENERATION=3\n");
    i->lost_steps = 2;
    i->replay_sec = 0;
    EXPECT("info -: incident j-3: 2 lost steps trained again in 0.000 s JOB=j GENERATION=3\n");
}

static void a_node_is_judged(_unused_ void **state)
{
    CordonRecord *record = &decision.cordons[0];
    decision.n_cordons = 1;
    decision.cordon_changed[0] = -1;
    *record = (CordonRecord){.node = "n1"};
    EXPECT("info judged: uncordoned NODE=n1\n");
    record->n_causes = 2;
    EXPECT("info judged: one cause against n1 has ended, 2 remain NODE=n1\n");
    record->causes[0] =
        (CordonCause){.owner = CORDON_JOB, .job = "k", .reason = "it died", .strikes = 3};
    record->causes[1] = (CordonCause){.owner = CORDON_OPERATOR, .reason = "ecc", .strikes = 1};
    decision.cordon_changed[0] = 0;
    EXPECT("warning judged: strike against n1 for one job: it died NODE=n1 JOB=k STRIKES=3\n");
    static const char *const words[] = {"strike against", "cordoned", "to be drained",
                                        "quarantined"};
    decision.cordon_changed[0] = 1;
    for (int mode = 0; mode < (int)ELEMENTSOF(words); mode++) {
        char line[128];
        record->causes[1].mode = (CordonMode)mode;
        (void)snprintf(line, sizeof(line), "warning judged: %s n1: ecc NODE=n1 STRIKES=1\n",
                       words[mode]);
        EXPECT(line);
    }
    decision.n_cordons = 2;
    decision.cordons[1] = (CordonRecord){.node = "n2"};
    decision.cordon_changed[1] = -1;
    EXPECT("warning judged: quarantined n1: ecc NODE=n1 STRIKES=1\n"
           "info judged: uncordoned NODE=n2\n");
}

static void a_world_and_its_places(_unused_ void **state)
{
    WorldRun runs[64] = {{.node = "n1", .slots = 0xff}, {.node = "n2", .slots = 5}};
    decision.put_world = true;
    decision.world = (WorldRecord){.generation = 3,
                                   .size = 10,
                                   .n_runs = 2,
                                   .runs = runs,
                                   .resume = {.uri = "file:///c/step-40/manifest.json", .step = 40},
                                   .reason = "grows"};
    const long long step = (long long)resume_point_step(&decision.world.resume);
    char lines[512];
    (void)snprintf(lines, sizeof(lines),
                   "info world: world 3 of 10 ranks on 2 nodes from step %lld: grows JOB=j "
                   "GENERATION=3 STEP=%lld\n",
                   step, step);
    decision.world.runs = NULL;
    EXPECT(lines);
    decision.world.runs = runs;
    (void)snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines),
                   "debug -: world 3 runs on n1 (slots 0-7), n2 (slots 0,2) JOB=j GENERATION=3\n");
    EXPECT(lines);
}

/* The line about a world of many nodes names as many nodes as fit: a line that is cut still ends with the job. */
static void a_world_of_many_places(_unused_ void **state)
{
    static WorldRun runs[300];
    decision.put_world = true;
    decision.world = (WorldRecord){.generation = 3, .size = 300, .n_runs = 300, .runs = runs};
    for (int i = 0; i < 300; i++) {
        (void)snprintf(runs[i].node, sizeof(runs[i].node), "node-%03d", i);
        runs[i].slots = 1;
    }
    said[0] = '\0';
    decision_log_lines(&decision, keep, &decision);
    const char *line = strstr(said, "debug -: world 3 runs on node-000 (slots 0), node-001 (");
    assert_non_null(line);
    assert_true(strlen(line) > 1300 && strlen(line) < 1536);
    assert_string_equal(line + strlen(line) - strlen(" JOB=j GENERATION=3\n"),
                        " JOB=j GENERATION=3\n");
}

static void a_phase_with_its_words(_unused_ void **state)
{
    decision.put_phase = true;
    decision.phase = (PhaseRecord){.phase = PHASE_RUNNING, .generation = 3};
    EXPECT("info phase: running JOB=j GENERATION=3\n");
    decision.phase.go = true;
    EXPECT("info phase: running, go JOB=j GENERATION=3\n");
    decision.phase.go = false;
    decision.phase.leave = true;
    EXPECT("info phase: running, leave JOB=j GENERATION=3\n");
    (void)snprintf(decision.phase.reason, sizeof(decision.phase.reason), "drained");
    EXPECT("info phase: running, leave: drained JOB=j GENERATION=3\n");
}

static void what_goes_is_said(_unused_ void **state)
{
    RequestRecord *q = &decision.request;
    decision.remove_generation = 4;
    EXPECT("debug -: records of generation 4 removed JOB=j\n");
    decision.remove_generation = 0;
    (void)snprintf(decision.remove_incident, sizeof(decision.remove_incident), "j-1");
    EXPECT("debug -: incident j-1 forgotten\n");
    decision.remove_incident[0] = '\0';
    *q = (RequestRecord){
        .id = "q1", .kind = "check", .target = "n1", .answer = "it is well", .by = "op"};
    decision.put_request = true;
    EXPECT("info -: request check for n1: it is well\n");
    decision.put_request = false;
    decision.remove_request = true;
    EXPECT("debug -: request q1 forgotten\n");
    (void)snprintf(q->kind, sizeof(q->kind), "uncordon");
    EXPECT("info judged: n1 may have ranks again, asked by op NODE=n1\n");
    decision.remove_request = false;
    decision.remove_job = true;
    EXPECT("info -: every record removed JOB=j\n");
}

static void checkpoints_say_what_was_struck_out(_unused_ void **state)
{
    decision.put_checkpoints = true;
    (void)snprintf(decision.incident.cause, sizeof(decision.incident.cause), "checkpoint-corrupt");
    EXPECT("warning -: a checkpoint that does not verify is struck out JOB=j\n");
    decision.put_checkpoints = false;
    EXPECT("");
}

/* All parts of a decision at once, in the order in which their lines are logged. */
static void lines_have_an_order(_unused_ void **state)
{
    decision.put_incident = decision.put_world = decision.put_phase = decision.remove_job = true;
    decision.n_cordons = 1;
    decision.cordon_changed[0] = -1;
    (void)snprintf(decision.cordons[0].node, sizeof(decision.cordons[0].node), "n1");
    decision.incident = (IncidentRecord){.id = "j-1", .cause = "c", .evidence = "e", .rank = -1};
    (void)snprintf(decision.phase.reason, sizeof(decision.phase.reason), "why");
    _cleanup_json_ json_t *words = journal_words(&decision);
    static const char *const begins[] = {"incident j-1: c: e JOB=", "uncordoned NODE=n1",
                                         "world 0 of 0 ranks", "pending: why JOB=j",
                                         "every record removed"};
    assert_int_equal(json_array_size(words), ELEMENTSOF(begins));
    for (size_t i = 0; i < ELEMENTSOF(begins); i++)
        assert_int_equal(strncmp(json_string_value(json_array_get(words, i)), begins[i],
                                 strlen(begins[i])),
                         0);
}

/* A text that is not UTF-8 is replaced, without losing the decision's other line. */
static void a_line_that_is_no_text(_unused_ void **state)
{
    decision.put_phase = decision.remove_job = true;
    (void)snprintf(decision.phase.reason, sizeof(decision.phase.reason), "\xff");
    _cleanup_json_ json_t *words = journal_words(&decision);
    assert_int_equal(json_array_size(words), 2);
    assert_string_equal(json_string_value(json_array_get(words, 0)), "(a line that is not UTF-8)");
}

#define CASE(test) cmocka_unit_test_setup(test, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nothing_says_nothing),   CASE(an_incident_opens_and_is_resolved),
        CASE(a_node_is_judged),       CASE(a_world_and_its_places),
        CASE(a_world_of_many_places), CASE(a_phase_with_its_words),
        CASE(what_goes_is_said),      CASE(checkpoints_say_what_was_struck_out),
        CASE(lines_have_an_order),    CASE(a_line_that_is_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
