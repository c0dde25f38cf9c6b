/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-diff.c - `sdctl job diff` of two jobs of the cluster, of a job file, and with unknown facts.
 * tests/system/test-job-diff.py compares the same pairs with what ranks accept. */
#include "base/test/testing.h"

#include "ctl/test/testing-ctl.h"

#include <stdlib.h>
#include <string.h>

/* Puts a job without a checkpoint; in its file, text `from` is replaced by text `to`. */
static void put_job(CtlLab *lab, const char *name, const char *from, const char *to)
{
    char *text = ctl_job_text(lab, name), *changed = NULL, *at = from ? strstr(text, from) : NULL;
    if (at)
        assert_true(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) >
                    0);
    SpecRecord spec = {.spec = changed ?: text, .submitted_usec = UINT64_C(1699999999000000)};
    CTL_PUT(lab, KEY_SPECS, name, spec_record, spec);
    free(text);
    free(changed);
}

static void two_jobs_are_told_apart(void **state)
{
    CtlLab *lab = *state;
    put_job(lab, "a", NULL, NULL);
    put_job(lab, "b", "\"steps\": 100",
            "\"steps\": 200, \"seed\": 18, \"optimizer\": {\"lr\": 0.0002}, \"zero_stage\": 2");
    put_job(lab, "c", "\"steps\": 100",
            "\"steps\": 100, \"seed\": 17, \"optimizer\": {\"betas\": [0.9, 0.999]}, "
            "\"noise_schedule\": {\"kind\": \"scaled_linear\"}");
    assert_int_equal(ctl_run(lab, "job diff a b"), 0);
    assert_contains(lab->out, "KEY                 a");
    assert_contains(lab->out, "\ntrain.optimizer.lr  0.0001");
    assert_contains(lab->out, " 0.0002 ");
    assert_contains(lab->out, "\ntrain.seed          17");
    assert_contains(lab->out, "\ntrain.steps         100 ");
    assert_contains(lab->out, "\ntrain.zero_stage    - ");
    assert_contains(lab->out, "\nb would not go on from the checkpoints of a: train.optimizer.lr, "
                              "train.seed differ\n");
    /* A default value that is written in the file is not a difference. */
    assert_int_equal(ctl_run(lab, "job diff a c -o json"), 0);
    json_t *json = ctl_json(lab);
    assert_true(json_is_true(ctl_at(json, "goes_on")));
    assert_int_equal(json_array_size(ctl_at(json, "notes")), 0);
    json_t *row;
    size_t i;
    json_array_foreach (ctl_at(json, "differences"), i, row) {
        assert_string_equal(json_string_value(ctl_at(row, "key")), "checkpoint.uri");
        assert_true(json_is_false(ctl_at(row, "bits")));
    }
    assert_int_equal(i, 1);
    json_decref(json);
}

static void a_job_is_compared_with_a_file(void **state)
{
    CtlLab *lab = *state;
    char other[200];
    put_job(lab, "f", NULL, NULL);
    _cleanup_free_ char *text = ctl_job_text(lab, "f");
    ctl_write(lab, "same.json", text);
    assert_int_equal(ctl_run(lab, "job diff f %s/same.json", lab->folder), 0);
    assert_contains(lab->out, "no key differs\n");
    assert_contains(lab->out, "same.json would go on from the checkpoints of f: nothing differs "
                              "that may change a bit\n");

    /* If a file cannot be read, the result is "may go on", not "would not go on". */
    (void)snprintf(other, sizeof(other), "%s/unet.json", lab->folder);
    put_job(lab, "g", other, "/nowhere/unet.json");
    assert_int_equal(ctl_run(lab, "job diff g %s/same.json", lab->folder), 0);
    assert_contains(lab->out, "\nmodel.config    \"/nowhere/unet.json\"");
    assert_contains(lab->out, "\ng: its identity is not known: ");
    assert_contains(lab->out, "may go on from the checkpoints of g: the identity of g is not "
                              "known\n");
    assert_int_equal(ctl_run(lab, "job diff g %s/same.json -o json", lab->folder), 0);
    json_t *json = ctl_json(lab);
    assert_true(json_is_null(ctl_at(json, "goes_on")));
    assert_int_equal(json_array_size(ctl_at(json, "notes")), 1);
    json_decref(json);
}

/* If a job's checkpoint is missing, its job file is compared instead, and a note has the reason. */
static void a_checkpoint_that_is_gone_is_noted(void **state)
{
    CtlLab *lab = *state;
    CheckpointsRecord record = {
        .n_commits = 1,
        .commits = {{.step = 4, .generation = 1, .uri = "/gone/step-4/manifest.json"}}};
    put_job(lab, "h", NULL, NULL);
    CTL_PUT(lab, KEY_CHECKPOINTS, "h", checkpoints_record, record);
    assert_int_equal(ctl_run(lab, "job diff h h"), 0);
    assert_contains(lab->out, "\nh: its newest checkpoint is not looked at: ");
    assert_contains(lab->out, "\nh would go on from the checkpoints of h: nothing differs");
}

static void an_older_checkpoint_has_hashes_alone(void **state)
{
    CtlLab *lab = *state;
    static const char step[] =
        "tests/golden/versions/0.2.0/checkpoint/step-0000000003-o1-g1-458e2246/manifest.json";
    const char *tree = getenv("SDTRAIN_SOURCE");
    _cleanup_free_ char *text = ctl_job_text(lab, "o");
    ctl_write(lab, "o.json", text);
    assert_int_equal(ctl_run(lab, "job diff %s/%s %s/o.json", tree ? tree : ".", step, lab->folder),
                     0);
    assert_contains(lab->out, "\njob identity  \"");
    assert_contains(lab->out, "manifest.json only the hashes are known: an earlier version wrote "
                              "it\n");
    assert_contains(lab->out, "manifest.json: job identity differs\n");
}

static void what_is_not_there_is_refused(void **state)
{
    CtlLab *lab = *state;
    put_job(lab, "r", NULL, NULL);
    ctl_write(lab, "bad.json", "{\"name\": 1}");
    assert_int_equal(ctl_run(lab, "job diff r"), 2);
    assert_contains(lab->err, "two are needed: a job, a job file or a manifest.json each");
    assert_int_equal(ctl_run(lab, "job diff r nobody"), 3);
    assert_int_equal(ctl_run(lab, "job diff r %s/none.json", lab->folder), 3);
    assert_int_equal(ctl_run(lab, "job diff r %s/bad.json", lab->folder), 1);
    assert_contains(lab->err, "name: expected a string");
    assert_int_equal(ctl_run(lab, "job diff r /x/step-1/manifest.json"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_jobs_are_told_apart, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(a_job_is_compared_with_a_file, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(a_checkpoint_that_is_gone_is_noted, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(an_older_checkpoint_has_hashes_alone, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_refused, ctl_setup, ctl_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
