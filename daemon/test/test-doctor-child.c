/* SPDX-License-Identifier: Apache-2.0 */
/* test-doctor-child.c - sdtraind runs `sdtrainer doctor` as a child: one that answers, one that hangs, one whose
 * output is too long, empty or not a report, and one whose program is missing. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/health/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-event.h>
#include <unistd.h>

static char folder[] = "/tmp/test-doctor-XXXXXX";

typedef struct Lab {
    sd_event *event;
    Timers timers;
    DaemonConfig config;
    int trainer;
    Doctor doctor;
    int n_told;
    char id[64], report[RECORD_REPORT_MAX + 1]; /* arguments of the last call of told() */
} Lab;

static Lab lab;

static void on_told(_unused_ void *userdata, const char *request, const char *report)
{
    lab.n_told++;
    (void)snprintf(lab.id, sizeof(lab.id), "%s", request);
    (void)snprintf(lab.report, sizeof(lab.report), "%s", report);
}

static void on_failed(_unused_ void *userdata, const Error *err) { fail_msg("%s", err->text); }

static int begin(_unused_ void **state)
{
    lab = (Lab){.trainer = -EBADF};
    assert_int_equal(sd_event_new(&lab.event), 0);
    lab.timers = (Timers){.event = lab.event, .failed = on_failed};
    const DoctorNeeds needs = {.config = &lab.config,
                               .timers = &lab.timers,
                               .environment = environ,
                               .trainer = &lab.trainer,
                               .cgroups = "/sys/fs/cgroup/x",
                               .timeout_usec = 2 * USEC_PER_SEC,
                               .told = on_told};
    doctor_init(&lab.doctor, &needs);
    return 0;
}

static int end(_unused_ void **state)
{
    doctor_clear(&lab.doctor);
    lab.event = sd_event_unref(lab.event);
    return 0;
}

/* Writes the script to a new file at each call, so that a script that still runs is not overwritten. */
static void use_trainer(const char *script)
{
    static int n;
    (void)snprintf(lab.config.trainer, sizeof(lab.config.trainer), "%s/trainer%d", folder, n++);
    assert_int_equal(file_write(lab.config.trainer, script, strlen(script), 0, NULL), 0);
    assert_int_equal(chmod(lab.config.trainer, 0755), 0);
}

/* Gives the child a long timeout. */
static void is_patient(void)
{
    lab.doctor.needs.timeout_usec = 60 * USEC_PER_SEC; /* enough on a busy machine */
}

static void ask(const char *id)
{
    RequestRecord request = {.uris = {{.uri = "/ck", .write = true, .marker = ".m"},
                                      {.uri = "/data"}},
                             .n_uris = 2,
                             .peers = {{.address = "n2"}},
                             .n_peers = 1};
    (void)snprintf(request.id, sizeof(request.id), "%s", id);
    doctor_request(&lab.doctor, &request);
}

static void wait_for(int n_told)
{
    while (lab.n_told < n_told || lab.doctor.pid > 0)
        assert_true(sd_event_run(lab.event, UINT64_MAX) >= 0);
}

static void what_it_says_is_told(_unused_ void **state)
{
    is_patient();
    use_trainer("#!/bin/sh\necho noise >&2\necho \"{\\\"said\\\":\\\"$*\\\"}\"\n");
    ask("r1");
    assert_true(doctor_owns(&lab.doctor, lab.doctor.pid));
    wait_for(1);
    assert_false(doctor_owns(&lab.doctor, 0));
    assert_string_equal(lab.id, "r1");
    assert_string_equal(lab.report,
                        "{\"said\":\"doctor --write /ck --marker .m --read /data --peer n2 "
                        "--cgroup /sys/fs/cgroup/x\"}");
    lab.config.allow_exec = true;
    (void)snprintf(lab.config.runner, sizeof(lab.config.runner), "/r");
    (void)snprintf(lab.config.exec_secrets, sizeof(lab.config.exec_secrets), "/s");
    ask("r2");
    wait_for(2);
    assert_non_null(strstr(lab.report, "/x --runner /r --exec-secrets /s\"}"));
    (void)snprintf(lab.config.exec_user, sizeof(lab.config.exec_user), "u");
    (void)snprintf(lab.config.exec_socket, sizeof(lab.config.exec_socket), "/c");
    ask("r3");
    wait_for(3);
    assert_non_null(strstr(lab.report, " --exec-secrets /s --exec-user u --exec-socket /c\"}"));
    ask("r3"); /* the watch has listed the same request again */
    assert_int_equal(lab.doctor.pid, 0);
}

static void one_that_hangs_is_killed(_unused_ void **state)
{
    use_trainer("#!/bin/sh\nexec sleep 600\n");
    ask("r1");
    ask("r2");
    ask("r3"); /* r3 replaces r2, which still waits */
    wait_for(2);
    assert_string_equal(lab.id, "r3");
    assert_string_equal(lab.report, "{\"error\":\"it did not end in time\"}");
    assert_int_equal(lab.n_told, 2);
}

static void what_is_no_report_is_an_error(_unused_ void **state)
{
    is_patient();
    use_trainer("#!/bin/sh\nprintf 'sdtrainer: \\377 bad\\n'\nexit 2\n");
    ask("r1");
    wait_for(1);
    assert_non_null(strstr(lab.report, "{\"error\":\"sdtrainer: "));
    use_trainer("#!/bin/sh\n");
    ask("r2");
    wait_for(2);
    assert_string_equal(lab.report, "{\"error\":\"it said nothing\"}");
    use_trainer("#!/bin/sh\nprintf '{'\nyes x | head -c 9000 | tr -d '\\n'\n");
    ask("r3");
    wait_for(3);
    assert_non_null(strstr(lab.report, "{\"error\":\"{x"));
    assert_int_equal(unlink(lab.config.trainer), 0);
    ask("r4");
    wait_for(4);
    assert_non_null(strstr(lab.report, "{\"error\":\"cannot execute /"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_it_says_is_told, begin, end),
        cmocka_unit_test_setup_teardown(one_that_hangs_is_killed, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_report_is_an_error, begin, end),
    };
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)folder_remove(folder, NULL);
    return failed;
}
