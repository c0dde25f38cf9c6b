/* SPDX-License-Identifier: Apache-2.0 */
/* test-spawn.c - where there is no clone3, where the program has been replaced, and in which environment. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "daemon/process/spawn.h"
#include "daemon/world/trainer-environment.h"
#include "protocol/channel.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* What systemd's RestrictNamespaces= does: clone3 is not there. For ever, and for this process. */
static int take_clone3_away(_unused_ void **state)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ELEMENTSOF(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void a_child_enters_its_cgroup_by_itself(_unused_ void **state)
{
    assert_int_equal(syscall(SYS_clone3, NULL, 0), -1);
    assert_int_equal(errno, ENOSYS);

    /* the folder of a cgroup, as far as the child can see */
    char folder[] = "/tmp/test-spawn-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    Error err = ERROR_INIT;
    assert_int_equal(file_write(path, "", 0, 0, &err), 0);
    _cleanup_fd_ int cgroup = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char[]){"exit 7"}, NULL};
    SpawnRequest request = {.argv = argv,
                            .environment = environ,
                            .output = -EBADF,
                            .channel = -EBADF,
                            .cgroup = cgroup};
    pid_t pid = 0;
    _cleanup_fd_ int pidfd = -EBADF;
    assert_int_equal(spawn_process(&request, &pid, &pidfd, &err), 0);
    struct pollfd ends = {.fd = pidfd, .events = POLLIN};
    assert_int_equal(poll(&ends, 1, 60000), 1);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
    assert_int_equal(info.si_status, 7);

    _cleanup_free_ char *text = NULL;
    size_t n = 0;
    assert_int_equal(file_read(path, 100, &text, &n, &err), 0);
    assert_string_equal(text, "0");
    (void)unlink(path);
    (void)rmdir(folder);
}

static int status_of(const SpawnRequest *request)
{
    Error err = ERROR_INIT;
    pid_t pid = 0;
    _cleanup_fd_ int pidfd = -EBADF;
    assert_int_equal(spawn_process(request, &pid, &pidfd, &err), 0);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
    return info.si_status;
}

static void copy_file(const char *from, const char *to)
{
    _cleanup_free_ char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(file_read(from, 1 << 24, &bytes, &n, NULL), 0);
    assert_int_equal(file_write(to, bytes, n, 0, NULL), 0);
    assert_int_equal(chmod(to, 0755), 0);
}

/* What an upgrade does: another file under the same name. */
static void an_open_program_outlives_its_file(_unused_ void **state)
{
    char folder[] = "/tmp/test-spawn-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/program", folder);
    copy_file("/bin/true", path);
    int opened = open(path, O_PATH | O_CLOEXEC), program = 3; /* where the child has its channel */
    assert_true(opened == program || (dup3(opened, program, O_CLOEXEC) == 3 && close(opened) == 0));
    _cleanup_fd_ int channel = open("/dev/null", O_RDWR | O_CLOEXEC);
    copy_file("/bin/false", path);

    char *argv[] = {path, NULL};
    SpawnRequest request = {.argv = argv,
                            .environment = environ,
                            .output = -EBADF,
                            .channel = channel,
                            .cgroup = -EBADF};
    assert_int_equal(status_of(&request), 1);
    request.program = program;
    assert_int_equal(status_of(&request), 0);
    (void)close(program);

    static const char script[] = "#!/bin/sh\nexit 9\n";
    assert_int_equal(file_write(path, script, strlen(script), 0, NULL), 0);
    assert_int_equal(chmod(path, 0755), 0);
    request.program = open(path, O_PATH | O_CLOEXEC);
    assert_int_equal(status_of(&request), 9);
    (void)close(request.program);
    assert_int_equal(folder_remove(folder, NULL), 0);
}

static bool has(char *const *environment, const char *variable)
{
    for (; *environment; environment++)
        if (strcmp(*environment, variable) == 0)
            return true;
    return false;
}

/* A trainer is no service of systemd, and has no fault points but its own. */
static void a_trainers_environment_is_the_daemons_but_for_what_is_its_own(_unused_ void **state)
{
    static char *const ours[] = {(char *)"PATH=/bin",
                                 (char *)"SDTRAIN_FAULT=x",
                                 (char *)"SDTRAIN_LOG=debug",
                                 (char *)"SDTRAIN_S3_KEY=k",
                                 (char *)"NOTIFY_SOCKET=/n",
                                 (char *)"WATCHDOG_USEC=1",
                                 (char *)"LISTEN_FDS=1",
                                 (char *)"JOURNAL_STREAM=1:2",
                                 (char *)"INVOCATION_ID=a",
                                 (char *)"MAINPID=1",
                                 (char *)"OMP_DYNAMIC=true",
                                 (char *)"CREDENTIALS_DIRECTORY=/c",
                                 (char *)"LISTENER=y",
                                 (char *)"SDTRAIN_SLOT=7",
                                 NULL};
    static const char *const wanted[] = {"PATH=/bin",
                                         "SDTRAIN_LOG=debug",
                                         "SDTRAIN_S3_KEY=k",
                                         "LISTENER=y",
                                         "SDTRAIN_SLOT=3",
                                         "SDTRAIN_CHANNEL=3",
                                         "OMP_DYNAMIC=false",
                                         PATHS_READ_VARIABLE "=[\"/d\"]",
                                         PATHS_WRITE_VARIABLE "=[\"/c\"]",
                                         "MINE=1"};
    static const DaemonConfig config = {.run_dir = "/run/lab"};
    DaemonConfig with = config;
    with.paths_read = json_pack("[s]", "/d");
    with.paths_write = json_pack("[s]", "/c");
    with.trainer_environment = json_pack("[s]", "MINE=1");
    _cleanup_(trainer_environment_freep) char **made = trainer_environment_new(ours, &with, 3);
    size_t n = 0;
    while (made[n])
        n++;
    assert_int_equal(n, ELEMENTSOF(wanted) + 1); /* and the mark of its slot */
    for (size_t i = 0; i < ELEMENTSOF(wanted); i++)
        assert_true(has(made, wanted[i]));
    _cleanup_(trainer_environment_freep) char **of_no_slot =
        trainer_environment_new(ours, &config, -1);
    assert_false(has(of_no_slot, "SDTRAIN_CHANNEL=3"));
    json_decref(with.paths_read);
    json_decref(with.paths_write);
    json_decref(with.trainer_environment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainers_environment_is_the_daemons_but_for_what_is_its_own),
        cmocka_unit_test(an_open_program_outlives_its_file),
        cmocka_unit_test_setup(a_child_enters_its_cgroup_by_itself, take_clone3_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
