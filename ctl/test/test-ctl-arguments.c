/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-arguments.c - wrong command lines give exit code 2 and an exact error; an etcd that does not answer gives
 * exit code 5 within seconds. No cluster is needed. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "ctl/test/testing-ctl.h"

#include <string.h>

#define PHASES                                                                                     \
    "pending, starting, running, recovering, resizing, stopping, stopped, succeeded, failed"
#define STATUS_USAGE "usage: sdctl job status NAME [--watch] [-o json|text]; --help says more\n"

static void bad_words_are_refused_exactly(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"job status", "job status: NAME is needed; sdctl job list shows all jobs\n" STATUS_USAGE},
        {"job status a b", "job status: \"b\" is one word too many\n" STATUS_USAGE},
        {"job status a --bogus", "job status: --bogus is not an option here\n" STATUS_USAGE},
        {"job status a -x", "job status: -x is not an option here\n" STATUS_USAGE},
        {"job status a --world 2", "job status: --world is not an option here, but of job resize; "
                                   "see sdctl job status --help\n"},
        {"job status a -o xml",
         "job status: --output takes json or text, not \"xml\"; see sdctl job status --help\n"},
        {"job status a --etcd", "job status: --etcd needs a value; see sdctl job status --help\n"},
        {"job start", "job start: FILE (a job file) or NAME (a job that has ended) is needed; see "
                      "sdctl job start --help\n"},
        {"job resize a", "job resize: --world N is needed\nusage: sdctl job resize NAME --world N "
                         "[--wait] [--timeout SECONDS]; --help says more\n"},
        {"job resize a --world 0", "job resize: --world takes a number of ranks, 1 or more, not "
                                   "\"0\"; see sdctl job resize --help\n"},
        {"job resize a --world 2x", "job resize: --world takes a number of ranks, 1 or more, not "
                                    "\"2x\"; see sdctl job resize --help\n"},
        {"job wait a", "job wait: --for PHASE|step=N is needed\nusage: sdctl job wait NAME --for "
                       "PHASE|step=N [--timeout SECONDS]; --help says more\n"},
        {"job wait a --for later",
         "job wait: --for takes a phase (" PHASES ") or step=N, not \"later\"; see "
         "sdctl job wait --help\n"},
        {"job wait a --for step=-1",
         "job wait: --for takes a phase (" PHASES ") or step=N, not \"step=-1\"; see "
         "sdctl job wait --help\n"},
        {"job wait a --for running --timeout soon",
         "job wait: --timeout takes seconds, not \"soon\"; see sdctl job wait --help\n"},
        {"job report a",
         "job report: --out FILE is needed\nusage: sdctl job report NAME --out FILE [--alone "
         "DIGEST] [--grid FILE] [--pictures FILE]; --help says more\n"},
        {"job sample a --out f --samples 401",
         "job sample: --samples takes 1 to 400 images, not \"401\"; see sdctl job sample --help\n"},
        {"job sample a --out f --caption",
         "job sample: --caption needs a value; see sdctl job sample --help\n"},
        {"dev up --nodes 65",
         "dev up: --nodes takes 0 to 64 nodes, not \"65\"; see sdctl dev up --help\n"},
        {"completion tcsh",
         "completion: SHELL is bash, zsh or fish, not \"tcsh\"; see sdctl completion --help\n"},
        {"job resize a --wrold 2", "job resize: --wrold is not an option here (did you mean "
                                   "\"--world\"?); see sdctl job resize --help\n"},
        {"job wait a --for runing", "job wait: --for takes a phase (" PHASES ") or "
                                    "step=N, not \"runing\" (did you mean \"running\"?); see sdctl "
                                    "job wait --help\n"},
        {"job stop a --timeout 5",
         "job stop: --timeout bounds --wait, which is not given; see sdctl job stop --help\n"},
        {"job start sd2 --set train.steps=5",
         "job start: NAME goes on with the file that the job was submitted with, so it takes no "
         "--resume, --queue, --set, --name or --dry-run; see sdctl job start --help\n"},
        {"job start a.json --dry-run --watch", "job start: --dry-run submits nothing that --watch "
                                               "could show; see sdctl job start --help\n"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char expected[500];
        assert_int_equal(ctl_run(lab, "%s", cases[i].line), 2);
        (void)snprintf(expected, sizeof(expected), "sdctl: %s", cases[i].says);
        assert_string_equal(lab->err, expected);
        assert_string_equal(lab->out, "");
    }
}

static int lines_of(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* The error about a wrong command line has at most three lines, and suggests a word if there is a similar
 * word. */
static void what_is_no_verb_is_answered_shortly(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"job dance",
         "sdctl: job dance is not a verb\nusage: sdctl job VERB [NAME] [OPTIONS]; VERB "
         "is start, show, diff, status, "},
        {"dance",
         "sdctl: dance is not a verb\nusage: sdctl NOUN VERB [NAME] [OPTIONS]; NOUN is job, "},
        {"job strat", "sdctl: job strat is not a verb (did you mean \"start\"?)\n"},
        {"job submit x.json", "sdctl: job submit is not a verb (did you mean \"start\"?)\n"},
        {"job cancel a", "(did you mean \"stop\"?)\n"},
        {"jobs", "sdctl: jobs is not a verb (did you mean \"job\"?)\n"},
        {"start job.json",
         "sdctl: what it is about comes first: sdctl job start, sdctl dev start\n"},
        {"node drain", "sdctl: node drain: NODE is needed; sdctl node list shows all nodes\nusage: "
                       "sdctl node drain NODE [--reason TEXT]; --help says more\n"},
        {"node drain n1 n2",
         "sdctl: node drain: \"n2\" is one word too many\nusage: sdctl node drain "
         "NODE "},
        {"job resize a 2", "sdctl: job resize: \"2\" is one word too many\nusage: sdctl job resize "
                           "NAME --world N "},
        {"job resize a --size 2",
         "sdctl: job resize: --size is not an option here\nusage: sdctl job "
         "resize NAME --world N "},
        {"job", "usage: sdctl job VERB [NAME] [OPTIONS]; VERB is start, "},
        {" ", "usage: sdctl NOUN VERB [NAME] [OPTIONS]; NOUN is job, "},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        assert_int_equal(ctl_run(lab, "%s", cases[i].line), 2);
        assert_contains(lab->err, cases[i].says);
        assert_true(lines_of(lab->err) <= 3);
        assert_string_equal(lab->out, "");
    }
}

/* Runs each example with --help appended. This checks that its verb and options exist and its values are valid. */
static void run_examples(CtlLab *lab, const char *help)
{
    _cleanup_free_ char *text = strdup(help);
    char *save = NULL, *line = strtok_r(strstr(text, "\nExamples:\n") + 11, "\n", &save);
    int n = 0;
    for (; line && strncmp(line, "  ", 2) == 0; line = strtok_r(NULL, "\n", &save)) {
        char *call = strstr(line, "sdctl "), *end = NULL;
        assert_non_null(call);
        call[strcspn(call, "|>#)")] = '\0'; /* cuts redirections, pipes and comments */
        for (end = call + strlen(call); end[-1] == ' '; end--)
            ;
        *end = '\0';
        assert_int_equal(ctl_run(lab, "%s --help", call + 6), 0);
        n++;
    }
    assert_true(n > 0);
}

static void every_verb_explains_itself(void **state)
{
    CtlLab *lab = *state;
    assert_int_equal(ctl_run(lab, "--help"), 0);
    _cleanup_free_ char *all = strdup(lab->out);
    int n = 0;
    for (char *line = all, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        char noun[32] = "", verb[32] = "";
        if (strncmp(line, "  ", 2) != 0 || sscanf(line, " %31s %31s", noun, verb) < 1)
            continue;
        if (strcmp(noun, "completion") == 0)
            *verb = '\0';
        assert_int_equal(ctl_run(lab, "%s %s --help", noun, verb), 0);
        assert_contains(lab->out, "usage: sdctl ");
        assert_contains(lab->out, "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 timed "
                                  "out, 5 cannot reach etcd.");
        assert_contains(lab->out, noun);
        assert_contains(lab->out, "\nExamples:\n  ");
        _cleanup_free_ char *help = strdup(lab->out);
        run_examples(lab, help);
        n++;
    }
    assert_true(n >= 25);
    assert_int_equal(ctl_run(lab, "job --help"), 0);
    assert_int_equal(ctl_run(lab, "--version"), 0);
}

static void what_a_word_may_become_is_told_to_the_shell(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *words, *has, *lacks;
    } cases[] = {
        {"''", "job\t", "start"},
        {"job ''", "start\t", "uncordon"},
        {"dev k", "kill\t", "cordon"},
        {"job start ''", "<files>\n", "--"},
        {"job start -", "--set\t", "--world"},
        {"job start -f ''", "<files>\n", "--"},
        {"job wait a --for ''", "succeeded\n", "PHASE"},
        {"job wait a --for ''", "step=\n", "step=N"},
        {"job metrics a -o ''", "tensorboard\n", "text"},
        {"job list -o ''", "json\ntext\n", "csv"},
        {"job export a --pipeline ''", "<folders>\n", "<files>"},
        {"completion ''", "bash\nzsh\nfish\n", "job"},
        {"dance about ''", "", "job"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        assert_int_equal(ctl_run(lab, "complete %s", cases[i].words), 0);
        assert_contains(lab->out, cases[i].has);
        assert_null(strstr(lab->out, cases[i].lacks));
        assert_string_equal(lab->err, "");
    }
    static const char *const scripts[][2] = {{"bash", "complete -F _sdctl sdctl"},
                                             {"zsh", "#compdef sdctl"},
                                             {"fish", "complete -c sdctl"}};
    for (size_t i = 0; i < ELEMENTSOF(scripts); i++) {
        assert_int_equal(ctl_run(lab, "completion %s", scripts[i][0]), 0);
        assert_contains(lab->out, scripts[i][1]);
    }
}

static void an_etcd_that_is_down_is_said_soon(void **state)
{
    CtlLab *lab = *state;
    static const char *const lines[] = {"job list",
                                        "job status a",
                                        "job wait a --for running",
                                        "job status a --watch",
                                        "job stop a",
                                        "cluster status",
                                        "node list",
                                        "node drain a"};
    for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
        uint64_t began = clock_boottime_usec();
        assert_int_equal(ctl_run(lab, "%s --etcd 127.0.0.1:1", lines[i]), 5);
        assert_string_equal(lab->err, "sdctl: cannot reach etcd at 127.0.0.1:1: no answer within 3 "
                                      "s; is it up, and is that its address?\n");
        /* The limit of 20 s is long enough for a busy machine. */
        assert_true(clock_boottime_usec() - began < 20 * USEC_PER_SEC);
    }
    assert_int_equal(unsetenv("SDTRAIN_ETCD"), 0);
    assert_int_equal(ctl_run(lab, "job list"), 5);
    assert_string_equal(lab->err,
                        "sdctl: no etcd is named: set SDTRAIN_ETCD, give --etcd HOST:PORT or "
                        "--context NAME\n");
    assert_int_equal(ctl_run(lab, "job list --etcd 127.0.0.1:1 --cluster 'a/b'"), 1);
    assert_string_equal(lab->err, "sdctl: cluster: \"a/b\" is not a name\n");
}

static int start(void **state)
{
    *state = ctl_lab_start(false);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_words_are_refused_exactly),
        cmocka_unit_test(what_is_no_verb_is_answered_shortly),
        cmocka_unit_test(every_verb_explains_itself),
        cmocka_unit_test(what_a_word_may_become_is_told_to_the_shell),
        cmocka_unit_test(an_etcd_that_is_down_is_said_soon),
    };
    return cmocka_run_group_tests(tests, start, ctl_teardown);
}
