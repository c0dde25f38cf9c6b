/* SPDX-License-Identifier: Apache-2.0 */
/* test-simulate.c - `sdctl simulate` on journal files, and `cluster what-if` on the records of an etcd, which it does
 * not change. */
#include "base/test/testing.h"

#include "ctl/test/testing-ctl.h"

#include <string.h>

/* A leader, and a node that is cordoned until a time one second later, when the core uncordons it. */
static const char journal[] =
    "{\"journal\":1,\"version\":\"0.0.9\",\"cluster\":\"lab\",\"config\":{\"ttl_usec\":2000000},"
    "\"limits\":{\"nodes\":8,\"jobs\":2,\"reports\":8,\"incidents\":200,\"requests\":8},"
    "\"snapshot\":1,\"calm\":true}\n"
    "{\"key\":\"/sdtrain/lab/cordons/n1\",\"value\":\"{\\\"v\\\":2,\\\"node\\\":\\\"n1\\\","
    "\\\"causes\\\":[{\\\"owner\\\":\\\"operator\\\",\\\"mode\\\":\\\"cordon\\\","
    "\\\"reason\\\":\\\"ecc\\\",\\\"since_usec\\\":1,\\\"until_usec\\\":1700000001000000}]}\","
    "\"revision\":5,\"now\":1000000,"
    "\"real\":1700000000000000}\n"
    "{\"leading\":9,\"now\":1000000,\"real\":1700000000000000}\n"
    "{\"tick\":true,\"now\":2000001,\"real\":1700000001000001}\n";
static const char then[] =
    "{\"decision\":1,\"job\":\"\",\"does\":[\"uncordoned NODE=%s\"],\"now\":2000001,"
    "\"real\":1700000001000001}\n"
    "{\"outcome\":\"done\",\"id\":1,\"revision\":6,\"now\":2000101,\"real\":1700000001000101}\n";

static void write_journal(CtlLab *lab, const char *node, const char *more)
{
    char text[4096];
    int n = snprintf(text, sizeof(text), "%s", journal);
    n += snprintf(text + n, sizeof(text) - (size_t)n, then, node);
    (void)snprintf(text + n, sizeof(text) - (size_t)n, "%s", more);
    ctl_write(lab, "events.jsonl", text);
}

static void what_is_decided_as_then_is_said_once(void **state)
{
    CtlLab *lab = *state;
    write_journal(lab, "n1", "");
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl", lab->folder), 0);
    assert_contains(
        lab->out, "# line 1: a controller of cluster lab, version 0.0.9, 1 record to begin with\n");
    assert_contains(lab->out, " node n1 may have ranks again\n");
    assert_contains(lab->out, "4 events, 1 decision, each as it was decided then\n");
    assert_null(strstr(lab->out, "tick"));

    assert_int_equal(ctl_run(lab, "simulate -v %s/events.jsonl", lab->folder), 0);
    assert_contains(lab->out, "  cordons/n1\n");
    assert_contains(lab->out, "  leading, term 9\n");
    assert_contains(lab->out, "  decision 1 done\n");
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl --until 1700000000.5", lab->folder), 0);
    assert_contains(lab->out, "2 events, 0 decisions");
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl --from 2033-01-01T00:00:00Z",
                             lab->folder),
                     0);
    assert_null(strstr(lab->out, "may have ranks"));
    assert_contains(lab->out, "4 events, 1 decision");
}

static void what_is_decided_otherwise_shows_both(void **state)
{
    CtlLab *lab = *state;
    write_journal(lab, "n7", "");
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl", lab->folder), 1);
    assert_contains(lab->out, " node n7 may have ranks again\n");
    assert_contains(lab->out, " node n1 may have ranks again\n");
    assert_contains(lab->out, "1 decision: 1 differs, the first at line 5 (- then, version 0.0.9;");

    assert_int_equal(ctl_run(lab, "simulate -o json %s/events.jsonl", lab->folder), 1);
    json_t *j = ctl_json(lab), *one = json_array_get(json_object_get(j, "transitions"), 0);
    assert_int_equal(json_integer_value(json_object_get(j, "differences")), 1);
    assert_int_equal(json_integer_value(json_object_get(one, "line")), 5);
    assert_true(json_is_true(json_object_get(one, "differs")));
    assert_string_equal(json_string_value(json_array_get(json_object_get(one, "then"), 0)),
                        "uncordoned NODE=n7");
    assert_string_equal(json_string_value(json_array_get(json_object_get(one, "now"), 0)),
                        "uncordoned NODE=n1");
    json_decref(j);
}

static void cut_and_bad_lines(void **state)
{
    CtlLab *lab = *state;
    write_journal(lab, "n1", "{\"tick\":tr");
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl", lab->folder), 0);
    assert_contains(lab->out, "The last line was cut when its controller died.\n");
    write_journal(lab, "n1", "{\"tick\":tr\n{\"tick\":true,\"now\":3000000,\"real\":1}\n");
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl", lab->folder), 1);
    assert_contains(lab->err, "/events.jsonl:7: line 1, column ");
    write_journal(lab, "n1", "{\"tick\":true,\"now\":-1,\"real\":1}\n");
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl", lab->folder), 1);
    assert_contains(lab->err, "/events.jsonl:7: now: -1 is less than 0");
    write_journal(lab, "n1", "{\"tock\":true,\"now\":3000000,\"real\":1}\n");
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl", lab->folder), 1);
    assert_contains(lab->err, "/events.jsonl:7: line: neither event nor decision");
    assert_int_equal(ctl_run(lab, "simulate %s/nothing", lab->folder), 3);
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl --from soon", lab->folder), 2);
    assert_contains(lab->err, "--from takes a time like ");
}

/* A line was cut when a controller died; then another controller continued, and lost events and decisions because it
 * could not write them. All of these are counted. */
static void what_is_missing_is_counted(void **state)
{
    CtlLab *lab = *state;
    char more[2048], *quiescent;
    int n = snprintf(more, sizeof(more), "{\"tick\":tr\n%s", journal);
    quiescent = strstr(more, "\"calm\"");
    assert_non_null(quiescent);
    char rest[2048];
    (void)snprintf(rest, sizeof(rest), "%s", quiescent);
    assert_true(n < (int)sizeof(more) - 40);
    (void)snprintf(quiescent, sizeof(more) - (size_t)(quiescent - more),
                   "\"lost_events\":12,\"lost_decisions\":1,%s", rest);
    write_journal(lab, "n1", more);
    assert_int_equal(ctl_run(lab, "simulate %s/events.jsonl", lab->folder), 0);
    assert_contains(lab->out, "# before it 12 events and 1 decision could not be written\n");
    assert_contains(lab->out,
                    "\n12 events and 1 decision are missing: their lines could not be written.\n"
                    "1 line was cut when a controller died, and another went on.\n");
    assert_null(strstr(lab->out, "The last line"));
    assert_int_equal(ctl_run(lab, "simulate -o json %s/events.jsonl", lab->folder), 0);
    json_t *j = ctl_json(lab);
    assert_true(json_is_false(json_object_get(j, "cut")));
    assert_int_equal(json_integer_value(json_object_get(j, "cut_lines")), 1);
    assert_int_equal(json_integer_value(json_object_get(j, "lost_events")), 12);
    assert_int_equal(json_integer_value(json_object_get(j, "lost_decisions")), 1);
    json_decref(j);
}

static void put_node(CtlLab *lab, const char *name, const char *features)
{
    NodeRecord node = {.machine_id = "1", .incarnation = 1, .n_slots = 1};
    (void)snprintf(node.features, sizeof(node.features), "%s", features);
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    CTL_PUT(lab, KEY_NODES, name, node_record, node);
}

static void what_if_decides_and_writes_nothing(void **state)
{
    CtlLab *lab = *state;
    _cleanup_free_ char *text = ctl_job_text(lab, "a");
    SpecRecord spec = {.spec = text, .submitted_usec = 1};
    DesiredRecord desired = {.min = 2, .max = 2};
    put_node(lab, "n1", "");
    put_node(lab, "n2", "");
    put_node(lab, "n3", "");
    CTL_PUT(lab, KEY_SPECS, "a", spec_record, spec);
    CTL_PUT(lab, KEY_DESIRED, "a", desired_record, desired);

    assert_int_equal(ctl_run(lab, "cluster what-if"), 0);
    assert_contains(lab->out,
                    "As things are, this would be decided:\n  at once:\n"
                    "    job a gets 2 ranks on 2 nodes from step 0 (generation 1): starts\n"
                    "    job a: world 1 runs on n1 (slots 0), n2 (slots 0)\n");
    assert_contains(lab->out,
                    "Nobody leads: the defaults are assumed (a node is gone after 10 s).\n");
    ctl_put_text(lab, KEY_LEADER, "1",
                 "{\"v\":2,\"name\":\"c1\",\"settings\":\"{\\\"ttl_usec\\\":4000000}\"}");
    assert_int_equal(ctl_run(lab, "cluster what-if --cordon n1"), 0);
    assert_contains(lab->out, "If n1 were cordoned, this would be decided:\n");
    assert_contains(lab->out, "    job a: world 1 runs on n2 (slots 0), n3 (slots 0)\n");
    assert_contains(lab->out,
                    "By the settings of c1, which leads (a node is gone after 4.00 s).\n");
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\",\"settings\":\"x\"}");
    assert_int_equal(ctl_run(lab, "cluster what-if --lose n1,n2 --cordon n3"), 0);
    assert_contains(lab->out, "If n1,n2 were lost and n3 were cordoned, this would be decided:\n");
    assert_contains(lab->out, "c1 leads and does not tell its settings: the defaults are assumed");
    ctl_remove(lab, KEY_LEADER, "1");
    assert_int_equal(ctl_run(lab, "cluster what-if --lose n1 --drain n2 -o json"), 0);
    json_t *j = ctl_json(lab), *one = json_array_get(json_object_get(j, "decisions"), 0);
    assert_string_equal(json_string_value(json_object_get(one, "job")), "a");
    assert_contains(json_string_value(json_array_get(json_object_get(one, "does"), 0)),
                    "pending: needs 2 slots, 1 is free; n1 is absent; n2 is drained");
    json_decref(j);
    assert_int_equal(ctl_run(lab, "cluster what-if --lose n9"), 3);
    assert_contains(lab->err, "no node n9 in cluster lab");

    assert_null(ctl_get(lab, KEY_WORLDS, "a"));
    assert_null(ctl_get(lab, KEY_PHASES, "a"));
    assert_null(ctl_get(lab, KEY_CORDONS, "n1"));
    _cleanup_free_ char *node = ctl_get(lab, KEY_NODES, "n1");
    assert_non_null(node);
}

/* Programs get nodes that run them, and an evaluation waits for the job that it follows. */
static void what_if_of_programs(void **state)
{
    CtlLab *lab = *state;
    static const char *const files[] = {
        "{\"name\": \"p\", \"kind\": \"exec\", \"world\": {\"min\": 1, \"max\": 3}, \"exec\": {\"command\": "
        "[\"a\"], \"dir\": \"/a\"}, \"checkpoint\": {\"uri\": \"/c\"}}",
        "{\"name\": \"e\", \"kind\": \"eval\", \"of\": {\"job\": \"p\"}, \"world\": {\"min\": 1, \"max\": 1}, "
        "\"exec\": {\"command\": [\"a\"], \"dir\": \"/a\"}, \"checkpoint\": {\"uri\": \"/c\"}}"};
    static const char *const names[] = {"p", "e"};
    ctl_remove(lab, KEY_SPECS, "a"); /* of the test before */
    put_node(lab, "n1", FEATURE_PROGRAMS);
    put_node(lab, "n2", "");
    put_node(lab, "n3", FEATURE_PROGRAMS);
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        SpecRecord spec = {.spec = (char *)files[i], .submitted_usec = 1, .program = {.high = 1}};
        DesiredRecord desired = {.min = 1, .max = i == 0 ? 3 : 1};
        CTL_PUT(lab, KEY_SPECS, names[i], spec_record, spec);
        CTL_PUT(lab, KEY_DESIRED, names[i], desired_record, desired);
    }
    assert_int_equal(ctl_run(lab, "cluster what-if"), 0);
    assert_contains(lab->out, "job p: world 1 runs on n1 (slots 0), n3 (slots 0)\n");
    assert_int_equal(ctl_run(lab, "cluster what-if --drain n1"), 0);
    assert_contains(lab->out, "job p: world 1 runs on n3 (slots 0)\n");
    assert_int_equal(ctl_run(lab, "cluster what-if --drain n1 --lose n3"), 0);
    assert_contains(lab->out, "n2 runs no programs (allow_exec)");
    assert_contains(lab->out, "waits for a checkpoint of job p");
    assert_null(ctl_get(lab, KEY_WORLDS, "p"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_decided_as_then_is_said_once),
        cmocka_unit_test(what_is_decided_otherwise_shows_both),
        cmocka_unit_test(cut_and_bad_lines),
        cmocka_unit_test(what_is_missing_is_counted),
        cmocka_unit_test(what_if_decides_and_writes_nothing),
        cmocka_unit_test(what_if_of_programs),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}
