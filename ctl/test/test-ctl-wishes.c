/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-wishes.c - requests at the command line: changed values, waits, an interrupt, and the requester's name. */
#include "base/test/testing.h"

#include "ctl/test/testing-ctl.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static DesiredRecord desired_of(CtlLab *lab, const char *job)
{
    DesiredRecord desired;
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = ctl_get(lab, KEY_DESIRED, job);
    assert_non_null(text);
    assert_int_equal(desired_record_decode("desired", text, strlen(text), &desired, &err), 0);
    return desired;
}

/* resize --wait and stop --wait end when the leader has made the change, or when the change cannot happen any more. */
static void changes_are_waited_for(void **state)
{
    CtlLab *lab = *state;
    WorldRun runs[] = {{.node = "n1", .slots = 1},
                       {.node = "n2", .slots = 1},
                       {.node = "n3", .slots = 1}};
    WorldRecord larger = {.generation = 3, .size = 3, .runs = runs, .n_runs = 3};
    ctl_put_running_job(lab, "x");
    assert_int_equal(ctl_run(lab, "job resize x --world 3 --wait --timeout 0.2"), 4);
    assert_contains(lab->err, "job x has not reached 3 ranks in 0.2 s: it is running at step 12");
    ctl_begin(lab, "job resize x --world 3 --wait --timeout 60");
    ctl_wait_said(lab);
    CTL_PUT(lab, KEY_WORLDS, "x", world_record, larger);
    assert_int_equal(ctl_finish(lab), 0);
    assert_contains(lab->out, "job x is running at step ");
    /* The new world is decided, but does not run yet. */
    ctl_put_phase(lab, "x", PHASE_STARTING, "resizes from 2 to 3");
    assert_int_equal(ctl_run(lab, "job resize x --world 3 --wait --timeout 0.2"), 4);
    ctl_put_phase(lab, "x", PHASE_RUNNING, "");

    DesiredRecord other = {.min = 1, .max = 4, .target = 1};
    ctl_begin(lab, "job resize x --world 4 --wait");
    ctl_wait_said(lab);
    CTL_PUT(lab, KEY_DESIRED, "x", desired_record, other);
    assert_int_equal(ctl_finish(lab), 1);
    assert_contains(lab->err, "job x was told another size meanwhile: it is running at step ");

    assert_int_equal(ctl_run(lab, "job stop x --wait --timeout 0.2"), 4);
    ctl_begin(lab, "job stop x --wait");
    ctl_wait_said(lab);
    ctl_put_phase(lab, "x", PHASE_STOPPED, "stopped");
    assert_int_equal(ctl_finish(lab), 0);
    assert_contains(lab->out, "job x is stopped at step ");

    ctl_put_running_job(lab, "y");
    ctl_begin(lab, "job stop y --wait");
    ctl_wait_said(lab);
    ctl_put_phase(lab, "y", PHASE_FAILED, "data-corrupt");
    assert_int_equal(ctl_finish(lab), 1);
    assert_contains(lab->err, "job y does not stop any more: it is failed at step ");
}

/* At SIGINT, `job status --watch` prints that the job continues. The signal still ends sdctl, so that a shell's loop
 * ends. */
static void an_interrupt_says_that_the_job_goes_on(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "i");
    ctl_begin(lab, "job status i --watch");
    assert_int_equal(ctl_interrupt(lab), SIGINT);
    assert_string_equal(lab->err, "\nsdctl: job i goes on; sdctl job status i --watch looks again, "
                                  "sdctl job stop i ends it\n");
}

/* --set changes values of the job file. A bad value is refused, and --dry-run submits nothing. */
static void a_file_is_started_with_other_values(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *sets, *says;
    } bad[] = {
        {"--set train.steps", "--set train.steps: is not KEY=VALUE, as train.steps=500"},
        {"--set =3", "is not KEY=VALUE"},
        {"--set train.stepz=3", "train.stepz: unknown key (did you mean \"steps\"?)"},
        {"--set trian.steps=3", "trian: unknown key (did you mean \"train\"?)"},
        {"--set train.steps=many", "train.steps: expected an integer, got \"many\""},
        {"--set train.steps.x=1", "what stands before the last '.' is not an object"},
        {"--set train[0]=1", "what stands before the '[' is not an array"},
        {"--set data.streams[1].uri=/x", "the array has no such element"},
        {"--set data.streams[x].uri=/x", "an element of an array is written as streams[0]"},
        {"--set train..steps=1", "is not KEY=VALUE"},
        {"--set train.\xff=1", "it is not UTF-8"},
        {"--set train.\xff.steps=1", "it is not UTF-8"},
        {"--set name=\xff", "it is not UTF-8"},
        {"--set train.steps.=1", "a key is missing after the last '.'"},
        {"--set a.b.c.d.e.f.g.h.i=1", "the key is deeper than any of a job file"},
        {"--set train.optimizer={lr:1}", "the value is not JSON (does the shell take its quotes"},
        {"--name Two_Words", "name: \"Two_Words\" must be lower-case letters"},
    };
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\"}");
    _cleanup_free_ char *text = ctl_job_text(lab, "given");
    ctl_write(lab, "job.json", text);
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        assert_int_equal(ctl_run(lab, "job start %s/job.json %s", lab->folder, bad[i].sets), 1);
        assert_contains(lab->err, bad[i].says);
    }
    assert_int_equal(ctl_run(lab,
                             "job start %s/job.json --name other --set train.steps=7 --set "
                             "train.optimizer.lr=2e-5 --set data.streams[0].proportion=2 --set "
                             "train.seed=null --dry-run",
                             lab->folder),
                     0);
    assert_contains(lab->out,
                    "job other would be submitted: 7 steps of 16 samples on 1 to 4 ranks\n");
    assert_contains(lab->out, "\nnothing was submitted (--dry-run)\n");
    assert_null(ctl_get(lab, KEY_SPECS, "other"));
    assert_int_equal(ctl_run(lab,
                             "job start %s/job.json --name other --set train.steps=7 --set "
                             "data.streams[0].proportion=2",
                             lab->folder),
                     0);
    assert_int_equal(ctl_run(lab, "job show other"), 0);
    json_t *file = ctl_json(lab), *train = json_object_get(file, "train");
    assert_string_equal(json_string_value(json_object_get(file, "name")), "other");
    assert_int_equal(json_integer_value(json_object_get(train, "steps")), 7);
    json_decref(file);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json --name other --dry-run", lab->folder),
                     1);
    assert_contains(lab->err, "name: a job other is there already; --name NAME gives");
    ctl_remove(lab, KEY_SPECS, "other");
    ctl_remove(lab, KEY_DESIRED, "other");
    ctl_remove(lab, KEY_LEADER, "1");
}

/* `job show` prints the file byte for byte, so that it can be compared and started again. */
static void show_gives_the_file_back(void **state)
{
    CtlLab *lab = *state;
    _cleanup_free_ char *text = ctl_job_text(lab, "shown");
    SpecRecord spec = {.spec = text, .resume_uri = "file:///old/manifest.json"};
    CTL_PUT(lab, KEY_SPECS, "shown", spec_record, spec);
    assert_int_equal(ctl_run(lab, "job show shown"), 0);
    assert_string_equal(lab->out, text);
    assert_contains(lab->err, "it was started with --resume file:///old/manifest.json\n");
    assert_int_equal(ctl_run(lab, "job show shwon"), 3);
    assert_contains(lab->err, "no job shwon in cluster lab (did you mean \"shown\"?)");
    /* control characters in another operator's file do not reach the terminal */
    const SpecRecord odd = {.spec = "{\n\"x\": \"gpj.\u202eexe \xc2\x9b"
                                    "31m\"}\n"};
    CTL_PUT(lab, KEY_SPECS, "shown", spec_record, odd);
    assert_int_equal(ctl_run(lab, "job show shown"), 0);
    assert_string_equal(lab->out, odd.spec);
    assert_int_equal(ctl_run_on_terminal(lab, 80, "job show shown"), 0);
    assert_contains(lab->out, "\"x\": \"gpj.???exe ??31m\"}\r\n");
    ctl_remove(lab, KEY_SPECS, "shown");
}

/* Records of requests have the requester's name, and the verbs show it. */
static void who_asks_is_told(void **state)
{
    CtlLab *lab = *state;
    char host[64] = "", who[80];
    assert_int_equal(gethostname(host, sizeof(host)), 0);
    assert_int_equal(setenv("SUDO_USER", "anna", 1), 0);
    (void)snprintf(who, sizeof(who), geteuid() == 0 ? "anna@%.31s" : "@%.31s", host);
    ctl_put_running_job(lab, "told");
    assert_int_equal(ctl_run(lab, "job resize told --world 3"), 0);
    assert_contains(desired_of(lab, "told").by, who);
    assert_true(desired_of(lab, "told").asked_usec > 0);
    assert_int_equal(ctl_run(lab, "job events told"), 0);
    assert_contains(lab->out, "to run on 3 ranks, by ");
    assert_contains(lab->out, who);
    ctl_put_text(lab, KEY_NODES, "n7",
                 "{\"v\":2,\"name\":\"n7\",\"machine_id\":\"0123456789abcdef0123456789abcdef\","
                 "\"incarnation\":1,\"slots\":1,\"state\":\"up\"}");
    assert_int_equal(ctl_run(lab, "node drain n7 --reason fan"), 0);
    assert_int_equal(ctl_run(lab, "node status n7"), 0);
    assert_contains(lab->out, ", asked by ");
    assert_contains(lab->out, who);
    assert_int_equal(ctl_run(lab, "node uncordon n7"), 0);
    assert_int_equal(unsetenv("SUDO_USER"), 0);
    ctl_remove(lab, KEY_NODES, "n7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_waited_for),
        cmocka_unit_test(an_interrupt_says_that_the_job_goes_on),
        cmocka_unit_test(a_file_is_started_with_other_values),
        cmocka_unit_test(show_gives_the_file_back),
        cmocka_unit_test(who_asks_is_told),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}
