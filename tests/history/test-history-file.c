/* SPDX-License-Identifier: Apache-2.0 */
/* test-history-file.c - files of etcdctl: a recorded history, and files that are not a history. */
#include "tests/history/history-file.h"
#include "tests/history/testing-scenario.h"

#include <stdlib.h>
#include <string.h>

static const char *source(const char *name, char ret[512])
{
    (void)snprintf(ret, 512, "%s/tests/history/%s", getenv("SDTRAIN_SOURCE"), name);
    return ret;
}

static int check_text(Scenario *s, const char *text, HistoryEnd *ret_end, Error *err)
{
    _cleanup_(history_checker_freep) HistoryChecker *checker = NULL;
    _cleanup_file_ FILE *file = fmemopen((char *)text, strlen(text), "r");
    assert_non_null(file);
    return history_file_check(file, "text", NULL, scenario_hear, s, &checker, ret_end, err);
}

/* Checks a recorded history: the only node of a cluster is killed and restarted. */
static void test_real_history(void **state)
{
    Scenario s = {0};
    char path[512];
    Error err = ERROR_INIT;
    HistoryEnd how;
    (void)state;
    _cleanup_(history_checker_freep) HistoryChecker *checker = NULL;
    _cleanup_file_ FILE *file = fopen(source("recovery.jsonl", path), "re");
    assert_non_null(file);
    if (history_file_check(file, path, NULL, scenario_hear, &s, &checker, &how, &err) < 0)
        fail_msg("%s", err.text);
    history_checker_end(checker);
    assert_string_equal(s.said, "");
    assert_int_equal(how, HISTORY_COMPLETE);
    HistoryCounts n = history_checker_counts(checker);
    assert_true(n.n_worlds >= 2 && n.n_commits >= 2 && n.n_incidents >= 1);
}

#define HEADER(id) "{\"Header\":{\"cluster_id\":" id "},\"Events\":["
#define EVENT(revision, version)                                                                   \
    "{\"kv\":{\"key\":\"L3NkdHJhaW4vdGVzdC9oZWFsdGgvbjA=\",\"mod_revision\":" revision             \
    ",\"version\":" version ",\"value\":\"" VALUE "\"}}"
/* /sdtrain/test/health/n0, {"v":2,"node":"n0","verdict":"healthy","at_usec":1,"probes":[]} */
#define VALUE "eyJ2IjoyLCJub2RlIjoibjAiLCJ2ZXJkaWN0IjoiaGVhbHRoeSIsImF0X3VzZWMiOjEsInByb2JlcyI6W119"
#define LINE(id, revision, version) HEADER(id) EVENT(revision, version) "]}\n"
#define BIG "15118495548433857066"

static void test_what_is_no_history(void **state)
{
    static const struct {
        const char *text;
        int r;
        const char *says;
    } cases[] = {
        {LINE(BIG, "2", "1") LINE(BIG, "3", "2"), 0, ""},
        {LINE(BIG, "2", "1") LINE("7", "3", "2"), -ESTALE, "text:2: etcd has another cluster id"},
        {LINE("7", "2", "1") "{\"Header\":{\"cluster_id\":7},\"CompactRevision\":9}\n", -ESTALE,
         "text:2: etcd has dropped what was before revision 9"},
        {LINE("7", "2", "1") "{\"history\":\"broken\",\"why\":\"no quorum\"}\n", -ESTALE,
         "no quorum"},
        {LINE("7", "3", "1") LINE("7", "2", "2") LINE("7", "4", "3"), -EINVAL,
         "revision 2 comes after revision 3"},
        {"garbage\n", -EINVAL, "text:1: is not a JSON object"},
        {"{}\n", -EINVAL, "text:1: is not an answer of a watch"},
        {"{\"Header\":{},\"Events\":[{}]}\n", -EINVAL, "an event is none of etcdctl's"},
        {"{\"Header\":{},\"Events\":[{\"kv\":{\"key\":\"L3Nk!HJh\",\"mod_revision\":1}}]}\n",
         -EINVAL, "an event is none of etcdctl's"},
        {HEADER("7") EVENT("2", "1") "," EVENT("2", "2") "]}\n", -EINVAL,
         "changes twice in revision 2"},
    };
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Scenario s = {0};
        Error err = ERROR_INIT;
        HistoryEnd how;
        int r = check_text(&s, cases[i].text, &how, &err);
        if (r != cases[i].r || !strstr(err.text, cases[i].says) || (r == 0 && s.n_said))
            fail_msg("case %zu: %d %s %s", i, r, err.text, s.said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_history),
        cmocka_unit_test(test_what_is_no_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
