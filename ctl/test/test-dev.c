/* SPDX-License-Identifier: Apache-2.0 */
/* test-dev.c - `sdctl dev`: a cluster of the real programs in one folder is started, damaged, repaired and stopped, and
 * leaves no processes. */
#include "base/test/testing.h"

#include "base/clock.h"

#include "ctl/test/testing-ctl.h"

#include <string.h>

/* Reads the pids that `dev status` shows, and returns their number. */
static size_t running_in(CtlLab *lab, const char *name, pid_t *pids, size_t max)
{
    size_t n = 0;
    assert_int_equal(ctl_run(lab, "dev status --dir %s/%s", lab->folder, name), 0);
    for (const char *p = lab->out; (p = strstr(p, "running  pid ")) && n < max; p++)
        pids[n++] = (pid_t)strtol(p + strlen("running  pid "), NULL, 10);
    return n;
}

static size_t running(CtlLab *lab, pid_t *pids, size_t max)
{
    return running_in(lab, "c", pids, max);
}

/* Tells whether the process has ended; a zombie counts as ended. */
static bool is_gone(pid_t pid)
{
    char path[64], state = 'Z';
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    _cleanup_file_ FILE *file = fopen(path, "re");
    return !file || fscanf(file, "%*d (%*[^)]) %c", &state) < 1 || state == 'Z';
}

/* Sets the environment variable `name` to its value in the export line of the output. */
static void take_variable(CtlLab *lab, const char *name)
{
    char value[200];
    const char *at = strstr(lab->out, name);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(name) + 1, "%199s", value), 1);
    assert_int_equal(setenv(name, value, 1), 0);
}

/* Runs a verb until its output contains `says`, for at most 60 s. */
static void wait_for(CtlLab *lab, const char *line, const char *says)
{
    const uint64_t end = clock_boottime_usec() + 60 * USEC_PER_SEC;
    do {
        assert_int_equal(ctl_run(lab, "%s", line), 0);
    } while (!strstr(lab->out, says) && clock_boottime_usec() < end);
    assert_contains(lab->out, says);
}

static void a_cluster_comes_up_heals_and_goes(void **state)
{
    CtlLab *lab = *state;
    pid_t pids[8];
    assert_int_equal(ctl_run(lab, "dev status --dir %s/c", lab->folder), 3);
    if (ctl_run(lab, "dev up --nodes 2 --slots 2 --dir %s/c", lab->folder) != 0)
        fail_msg("%s", lab->err);
    assert_contains(lab->out, "etcd, 1 controller, 2 nodes with 2 slots each\n");
    assert_contains(lab->out, "\nexport SDTRAIN_ETCD=127.0.0.1:");
    take_variable(lab, "SDTRAIN_ETCD");
    take_variable(lab, "SDTRAIN_CLUSTER");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "cluster dev: all is well\n");
    assert_contains(lab->out, "  leader  controller1\n");
    assert_contains(lab->out, "  nodes   2 with 4 slots, 0 used, 4 free\n");
    assert_int_equal(running(lab, pids, 8), 4);

    assert_int_equal(ctl_run(lab, "dev up --nodes 2 --slots 2 --dir %s/c", lab->folder), 0);
    assert_int_equal(running(lab, pids, 8), 4);
    assert_int_equal(ctl_run(lab, "dev up --nodes 3 --dir %s/c", lab->folder), 1);
    assert_contains(lab->err, "holds a cluster of 1 controllers and 2 nodes with 2 slots");

    assert_int_equal(ctl_run(lab, "dev kill-node node2 --dir %s/c", lab->folder), 0);
    assert_int_equal(running(lab, pids, 8), 3);
    assert_int_equal(ctl_run(lab, "dev kill-node node2 --dir %s/c", lab->folder), 1);
    assert_string_equal(lab->err, "sdctl: node2 does not run\n");
    assert_int_equal(ctl_run(lab, "dev kill nodd2 --dir %s/c", lab->folder), 3);
    assert_contains(lab->err, "(did you mean \"node2\"?)");
    wait_for(lab, "cluster status",
             "    sdctl dev start node2 brings it back; sdctl node forget node2 ");
    assert_null(strstr(lab->out, "systemctl"));
    assert_int_equal(ctl_run(lab, "dev start-node node2 --dir %s/c", lab->folder), 0);
    assert_int_equal(ctl_run(lab, "dev start node2 --dir %s/c", lab->folder), 1);
    assert_contains(lab->err, "sdctl: node2 runs already (pid ");
    assert_int_equal(ctl_run(lab, "dev stop node1 --dir %s/c", lab->folder), 0);
    assert_contains(lab->out, "is told to end\n");
    assert_int_equal(running(lab, pids, 8), 3);
    assert_int_equal(ctl_run(lab, "dev start node1 --dir %s/c", lab->folder), 0);
    assert_int_equal(ctl_run(lab, "complete dev kill --dir %s/c ''", lab->folder), 0);
    assert_contains(lab->out, "controller1\trunning\n");
    wait_for(lab, "complete node drain ''", "node2\thealthy\n");

    size_t n = running(lab, pids, 8);
    assert_int_equal(n, 4);
    assert_int_equal(ctl_run(lab, "dev down --dir %s/c", lab->folder), 0);
    for (size_t i = 0; i < n; i++)
        assert_true(is_gone(pids[i]));
    assert_int_equal(ctl_run(lab, "dev down --dir %s/c", lab->folder), 0);
    assert_int_equal(ctl_run(lab, "dev up --nodes 1 --dir %s/c", lab->folder), 0);
    assert_int_equal(ctl_run(lab, "dev down --dir %s/c", lab->folder), 0);
}

/* A folder's name may contain blanks: the export line quotes it for the shell. */
static void a_folder_may_have_any_name(void **state)
{
    CtlLab *lab = *state;
    if (ctl_run(lab, "dev up --nodes 1 --dir '%s/an odd name'", lab->folder) != 0)
        fail_msg("%s", lab->err);
    char command[400];
    const char *text = strstr(lab->out, " SDTRAIN_DEV=");
    assert_non_null(text);
    (void)snprintf(command, sizeof(command), "%.*s; test -d \"$SDTRAIN_DEV/etcd\"",
                   (int)strcspn(text + 1, "\n"), text + 1);
    assert_int_equal(system(command), 0);
    assert_int_equal(ctl_run(lab, "dev down --dir '%s/an odd name'", lab->folder), 0);
}

static bool folder_has(const CtlLab *lab, const char *name)
{
    char path[400];
    (void)snprintf(path, sizeof(path), "%s/%s", lab->folder, name);
    return access(path, F_OK) == 0;
}

static void alerts_go_where_the_file_says(void **state)
{
    CtlLab *lab = *state;
    ctl_write(lab, "bad.json", "{\"sinks\": [{\"name\": \"x\", \"kind\": \"pigeon\"}]}");
    assert_int_equal(ctl_run(lab, "dev up --alerts %s/bad.json --dir %s/a", lab->folder,
                             lab->folder),
                     1);
    assert_contains(lab->err, "/bad.json: sinks[0].kind: pigeon is not one of ");
    assert_contains(lab->err, "sdcontroller refuses it; nothing was started\n");
    assert_int_equal(ctl_run(lab, "dev up --alerts %s/no.json --dir %s/a", lab->folder,
                             lab->folder),
                     3);
    assert_contains(lab->err, "/no.json: No such file or directory\n");
    assert_false(folder_has(lab, "a"));

    ctl_write(lab, "good.json",
              "{\"sinks\": [{\"name\": \"deaf\", \"kind\": \"webhook\","
              " \"url\": \"http://127.0.0.1:1\"}]}");
    static const char up[] = "dev up --nodes 0 --alerts %s/good.json --dir %s/a";
    if (ctl_run(lab, up, lab->folder, lab->folder) != 0)
        fail_msg("%s", lab->err);
    assert_contains(lab->out, "/good.json says; sdctl alerts test tries it\n");
    take_variable(lab, "SDTRAIN_ETCD");
    take_variable(lab, "SDTRAIN_CLUSTER");
    assert_int_equal(ctl_run(lab, "alerts test"), 1);
    assert_contains(lab->out, "deaf                 FAILED: ");
    assert_int_equal(ctl_run(lab, up, lab->folder, lab->folder), 0);
    assert_int_equal(ctl_run(lab, "dev up --nodes 0 --dir %s/a", lab->folder), 0);
    ctl_write(lab, "other.json", "{\"sinks\": []}");
    assert_int_equal(ctl_run(lab, "dev up --alerts %s/other.json --dir %s/a", lab->folder,
                             lab->folder),
                     1);
    assert_contains(lab->err, "holds a cluster that notifies by ");
    assert_int_equal(ctl_run(lab, "dev down --dir %s/a", lab->folder), 0);
}

/* If a process of a new cluster fails, all processes are stopped again. */
static void half_a_cluster_ends(void **state)
{
    CtlLab *lab = *state;
    pid_t pids[8];
    ctl_write(lab, "h/node2/config.json", "{\"etcd\": 7}");
    assert_int_equal(ctl_run(lab, "dev up --nodes 2 --dir %s/h", lab->folder), 1);
    assert_contains(lab->err, "node2");
    assert_int_equal(running_in(lab, "h", pids, 8), 0);
}

static int start(void **state)
{
    *state = ctl_lab_start(false);
    return 0;
}

static int stop(void **state)
{
    CtlLab *lab = *state;
    /* Stops the cluster that a failed test may have left. */
    (void)ctl_run(lab, "dev down --dir %s/c", lab->folder);
    *state = ctl_lab_stop(lab);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cluster_comes_up_heals_and_goes),
        cmocka_unit_test(alerts_go_where_the_file_says),
        cmocka_unit_test(a_folder_may_have_any_name),
        cmocka_unit_test(half_a_cluster_ends),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
