/* SPDX-License-Identifier: Apache-2.0 */
/* test-exec-start.c - what a program starts with: its environment and arguments, the file that is executed, values of
 * secrets, and the port of rank 0. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/memory.h"
#include "exec/program-path.h"
#include "exec/resources/gpus.h"
#include "exec/resources/port.h"
#include "exec/resources/secrets.h"
#include "protocol/exec-variables.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

static char folder[] = "/tmp/test-exec-XXXXXX";

static const char *at(const char *name)
{
    static char path[200];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text, mode_t mode)
{
    assert_int_equal(file_write(at(name), text, strlen(text), 0, NULL), 0);
    assert_int_equal(chmod(at(name), mode), 0);
}

static Job *job_with(const char *world, const char *exec)
{
    char text[1000];
    Error err = ERROR_INIT;
    Job *job = NULL;
    (void)snprintf(
        text, sizeof(text),
        "{\"name\": \"demo\", \"kind\": \"exec\", \"world\": {%s}, \"exec\": {\"command\": [\"a\", "
        "\"${RANK}/${WORLD_SIZE}\", \"$$\"], \"dir\": \"/tmp\"%s}, \"recovery\": "
        "{\"max_failures_at_same_step\": 5}}",
        world, exec);
    if (job_parse_any("job.json", text, strlen(text), &job, &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

static const ExecRank rank5 = {.rank = 5,
                               .world_size = 8,
                               .local_rank = 1,
                               .per_node = 4,
                               .node_rank = 1,
                               .n_nodes = 2,
                               .generation = 3,
                               .node = "n7",
                               .submission = "abc",
                               .folder = "/run/x",
                               .tmp = "/run/tmp-3",
                               .flights = "/run",
                               .checkpoint = "s3://b/c/step-40",
                               .checkpoint_step = 40};

static void check(char *const *environment, const char *name, const char *value)
{
    const char *is = exec_environment_find(environment, name);
    if (!is && !value)
        return;
    if (!is || !value || strcmp(is, value) != 0)
        fail_msg("%s is %s instead of %s", name, is ? is : "not set", value ? value : "not set");
}

static void a_rank_gets_what_torchrun_gives(_unused_ void **state)
{
    static const char *const wanted[][2] = {
        {"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_RANK", "5"},
        {"ROLE_WORLD_SIZE", "8"},
        {"ROLE_NAME", "default"},
        {"NODE_RANK", "1"},
        {"CROSS_RANK", "1"},
        {"CROSS_SIZE", "2"},
        {"LOCAL_SIZE", "4"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "1234"},
        {"TORCHELASTIC_RUN_ID", "demo-abc"},
        {"TORCHELASTIC_RESTART_COUNT", "2"},
        {"TORCHELASTIC_MAX_RESTARTS", "5"},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {"TORCHELASTIC_ERROR_FILE", "/run/x/error.json"},
        {"SDTRAIN_JOB", "demo"},
        {"SDTRAIN_GENERATION", "3"},
        {"SDTRAIN_NODE", "n7"},
        {"SDTRAIN_SOCKET", "/run/x/socket"},
        {"SDTRAIN_CHECKPOINT", "s3://b/c/step-40"},
        {"SDTRAIN_STEP", "40"},
        {"OMP_NUM_THREADS", "1"},
        {"PYTHONUNBUFFERED", "1"},
        {"TMPDIR", "/run/tmp-3"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"CUDA_VISIBLE_DEVICES", NULL},
        {"CUDA_DEVICE_ORDER", NULL},
        {"TORCH_FR_BUFFER_SIZE", NULL},
        {"PATH", "/usr/local/bin:/usr/bin:/bin"},
    };
    ExecValues values;
    _cleanup_(job_freep) Job *job = job_with("\"min\": 4, \"max\": 8, \"per_node\": 4", "");
    exec_values_new(job, &rank5, &values);
    exec_values_set(&values, EXEC_MASTER_ADDR, memory_text("10.0.0.1"));
    exec_values_set(&values, EXEC_MASTER_PORT, memory_text("1234"));
    char **environment = exec_environment_new(job, &values, NULL, NULL);
    for (size_t i = 0; i < ELEMENTSOF(wanted); i++)
        check(environment, wanted[i][0], wanted[i][1]);
    char **arguments = exec_arguments_new(job->exec.command, &values);
    assert_string_equal(arguments[1], "5/8");
    assert_string_equal(arguments[2], "$");
    assert_null(arguments[3]);
    memory_free_texts(arguments);
    memory_free_texts(environment);
    exec_values_clear(&values);
}

static void gpus_are_those_of_the_node_or_its_own(_unused_ void **state)
{
    ExecRank rank = rank5;
    ExecValues values;
    rank.gpus = "GPU-1,GPU-2";
    for (int own = 0; own < 2; own++) {
        _cleanup_(job_freep) Job *job =
            job_with("\"min\": 4, \"max\": 8, \"per_node\": 4",
                     own ? ", \"device\": \"cuda\", \"own_gpu\": true" : ", \"device\": \"cuda\"");
        exec_values_new(job, &rank, &values);
        char **environment = exec_environment_new(job, &values, NULL, NULL);
        check(environment, "CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2");
        check(environment, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        check(environment, "LOCAL_RANK", own ? "0" : "1");
        check(environment, "LOCAL_WORLD_SIZE", "4");
        check(environment, "TORCH_FR_BUFFER_SIZE", "2000");
        check(environment, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/run/flights/demo-g3-rank");
        check(environment, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/run/x/nccl-");
        memory_free_texts(environment);
        exec_values_clear(&values);
    }
}

static void put_gpu(const char *pci, const char *information)
{
    char name[100];
    (void)snprintf(name, sizeof(name), "gpus/%s", pci);
    assert_int_equal(folder_make(at(name), NULL), 0);
    (void)snprintf(name, sizeof(name), "gpus/%s/information", pci);
    put(name, information, 0644);
}

static void gpus_are_found_in_the_order_of_their_addresses(_unused_ void **state)
{
    ExecGpus gpus;
    Error err = ERROR_INIT;
    char list[3 * EXEC_UUID_MAX];
    assert_int_equal(exec_find_gpus(at("gpus"), &gpus, &err), -ENOENT);
    put_gpu(
        "0000:dc:00.0",
        "Model: \t\t NVIDIA H100\nIRQ:   \t\t 22\nGPU UUID: \t GPU-2bcdef01-0123-0123-0123-0123456789ab\n");
    put_gpu("0000:1b:00.0",
            "GPU UUID: \t GPU-1bcdef01-0123-0123-0123-0123456789ab\nVideo BIOS: \t ??.??\n");
    put_gpu("0001:00:00.0", "GPU UUID: GPU-3\n");
    assert_int_equal(exec_find_gpus(at("gpus"), &gpus, &err), 0);
    assert_int_equal(gpus.n, 3);
    exec_write_gpus(&gpus, 0, 2, list);
    assert_string_equal(
        list, "GPU-1bcdef01-0123-0123-0123-0123456789ab,GPU-2bcdef01-0123-0123-0123-0123456789ab");
    exec_write_gpus(&gpus, 2, 1, list);
    assert_string_equal(list, "GPU-3");
    assert_int_equal(exec_name_gpus(at("gpus"), "0001:00:00,0000:1b:00", -1, list, sizeof(list),
                                    &err),
                     0);
    assert_string_equal(list, "GPU-3,GPU-1bcdef01-0123-0123-0123-0123456789ab");
    assert_int_equal(exec_name_gpus(at("gpus"), "0001:00:00,0000:1b:00", 1, list, sizeof(list),
                                    &err),
                     0);
    assert_string_equal(list, "GPU-1bcdef01-0123-0123-0123-0123456789ab");
    assert_int_equal(exec_name_gpus(at("none"), "GPU-7", -1, list, sizeof(list), &err), 0);
    assert_string_equal(list, "GPU-7");
    assert_int_equal(exec_name_gpus(at("gpus"), "0000:1b:00", -1, list, 8, &err), -E2BIG);
    err = ERROR_INIT;
    assert_int_equal(exec_name_gpus(at("gpus"), "0009:00:00", -1, list, sizeof(list), &err),
                     -ENOENT);
    err = ERROR_INIT;
    /* A file in /proc says that it has no bytes; so does a pipe. */
    int ends[2];
    char pipe_path[32];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "Model:\nGPU UUID: GPU-9\n", 23), 23);
    assert_int_equal(close(ends[1]), 0);
    (void)snprintf(pipe_path, sizeof(pipe_path), "/proc/self/fd/%d", ends[0]);
    assert_int_equal(mkdir(at("gpus/0003:00:00.0"), 0700), 0);
    assert_int_equal(symlink(pipe_path, at("gpus/0003:00:00.0/information")), 0);
    assert_int_equal(exec_name_gpus(at("gpus"), "0003:00:00", -1, list, sizeof(list), &err), 0);
    assert_string_equal(list, "GPU-9");
    assert_int_equal(close(ends[0]) | unlink(at("gpus/0003:00:00.0/information")), 0);
    assert_int_equal(rmdir(at("gpus/0003:00:00.0")), 0);
    put_gpu("0002:00:00.0", "GPU UUID: \t ???\n");
    err = ERROR_INIT;
    assert_int_equal(exec_find_gpus(at("gpus"), &gpus, &err), -EINVAL);
    assert_non_null(strstr(err.text, "gpus/0002:00:00.0/information: names no UUID"));
}

static void later_entries_win_and_ours_are_last(_unused_ void **state)
{
    ExecRank rank = rank5;
    ExecValues values;
    rank.checkpoint = "";
    _cleanup_(job_freep) Job *job = job_with(
        "\"min\": 1, \"max\": 8",
        ", \"env\": {\"B\": \"job\", \"C\": \"job ${WORLD_SIZE}\", \"TMPDIR\": \"/big\", \"D\": \"\"}");
    char *const node[] = {(char[]){"A=node"}, (char[]){"B=node"}, (char[]){"RANK=99"},
                          (char[]){"PATH=/opt"}, NULL};
    char *const secrets[] = {(char[]){"C=secret"}, (char[]){"WORLD_SIZE=1"}, NULL};
    exec_values_new(job, &rank, &values);
    char **environment = exec_environment_new(job, &values, node, secrets);
    check(environment, "A", "node");
    check(environment, "B", "job");
    check(environment, "C", "secret");
    check(environment, "D", "");
    check(environment, "PATH", "/opt");
    check(environment, "TMPDIR", "/big");
    check(environment, "RANK", "5");
    check(environment, "WORLD_SIZE", "8");
    check(environment, "OMP_NUM_THREADS", NULL); /* one rank per node */
    check(environment, "SDTRAIN_CHECKPOINT", "");
    check(environment, "SDTRAIN_STEP", "");
    check(environment, "MASTER_ADDR", NULL);
    for (char **one = environment; *one; one++) /* each name once */
        for (char **other = one + 1; *other; other++)
            assert_true(strncmp(*one, *other, strcspn(*one, "=") + 1) != 0);
    memory_free_texts(environment);
    exec_values_clear(&values);
}

static void find(const char *name, int r, const char *text)
{
    char path[PATH_MAX], dirs[200], wanted[300];
    Error err = ERROR_INIT;
    (void)snprintf(dirs, sizeof(dirs), "/nonexistent::%s/bin:/usr/bin:/bin", folder);
    assert_int_equal(exec_find_program(folder, name, dirs, path, &err), r);
    const char *mark = strstr(text, "%s"); /* stands for the folder */
    if (mark)
        (void)snprintf(wanted, sizeof(wanted), "%.*s%s%s", (int)(mark - text), text, folder,
                       mark + 2);
    else
        (void)snprintf(wanted, sizeof(wanted), "%s", text);
    if (strncmp(r < 0 ? err.text : path, wanted, strlen(wanted)) != 0)
        fail_msg("%s: \"%s\" instead of \"%s\"", name, r < 0 ? err.text : path, wanted);
}

static void a_program_that_cannot_be_executed_is_named(_unused_ void **state)
{
    assert_int_equal(folder_make(at("bin"), NULL), 0);
    put("bin/tool", "#!/bin/sh\n", 0755);
    put("bin/plain", "#!/bin/sh\n", 0644);
    put("script", "#! /bin/sh -e\n", 0755);
    put("text", "echo hi\n", 0755);
    put("empty", "", 0755);
    put("lost", "#!/nonexistent/python3\n", 0755);
    put("windows", "#!/bin/sh\r\n", 0755);
    find("tool", 0, "%s/bin/tool");
    find("./script", 0, "%s/./script");
    find("/bin/sh", 0, "/bin/sh");
    find("plain", -ENOENT, "exec.command: plain is in no folder of PATH (/nonexistent:");
    find("bin/plain", -EACCES, "exec.command: cannot execute %s/bin/plain: ");
    find("bin", -ENOENT, "exec.command: bin is in no folder of PATH (");
    find("./bin", -EISDIR, "exec.command: %s/./bin is a folder");
    find("./text", -ENOEXEC, "exec.command: %s/./text is neither a program nor a script");
    find("./empty", -ENOEXEC, "exec.command: %s/./empty is neither a program nor a script");
    find("./lost", -ENOENT, "exec.command: %s/./lost: its interpreter /nonexistent/python3: ");
    find("./windows", -ENOENT, "exec.command: %s/./windows: its interpreter /bin/sh");
    find("./gone", -ENOENT, "exec.command: %s/./gone: ");
    find("/dev/null", -EINVAL, "exec.command: /dev/null is not a file");
    char path[PATH_MAX], wanted[200];
    Error err = ERROR_INIT;
    assert_int_equal(exec_check_folder(folder, &err), 0);
    (void)snprintf(wanted, sizeof(wanted), "exec.dir: %s is not a folder", at("text"));
    assert_int_equal(exec_check_folder(at("text"), &err), -ENOTDIR);
    assert_string_equal(err.text, wanted);
    err = ERROR_INIT;
    assert_int_equal(exec_check_folder("/nonexistent", &err), -ENOENT);
    assert_int_equal(exec_find_program(folder, "x", "", path, &err), -ENOENT);
}

static void secrets_come_from_a_private_file(_unused_ void **state)
{
    char *const names[] = {(char[]){"B"}, (char[]){"A"}, NULL}, *const missing[] = {(char[]){"X"},
                                                                                    NULL};
    char **list = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(exec_secrets_read(NULL, NULL, &list, &err), 0);
    assert_null(list);
    assert_int_equal(exec_secrets_read(NULL, names, &list, &err), -ENOENT);
    err = ERROR_INIT;
    put("secrets", "# of the team\n\nA=1=2\nAB=no\n#B=old\nB=two words\n", 0600);
    assert_int_equal(exec_secrets_read(at("secrets"), names, &list, &err), 0);
    assert_string_equal(list[0], "B=two words");
    assert_string_equal(list[1], "A=1=2");
    assert_null(list[2]);
    exec_secrets_free(list);
    assert_int_equal(exec_secrets_read(at("secrets"), missing, &list, &err), -ENOENT);
    assert_non_null(strstr(err.text, "exec.secrets: X is not in "));
    assert_null(strstr(err.text, "two"));
    err = ERROR_INIT;
    put("secrets", "A=1\nhunter2\n", 0640);
    assert_int_equal(exec_secrets_read(at("secrets"), names, &list, &err), -EINVAL);
    assert_non_null(strstr(err.text, "secrets:2: not a line NAME=VALUE"));
    err = ERROR_INIT;
    put("secrets", "A=1\n", 0644);
    assert_int_equal(exec_secrets_read(at("secrets"), names, &list, &err), -EACCES);
    assert_non_null(strstr(err.text, "others may read or write it (mode 0644)"));
}

/* A library that binds the port with SO_REUSEADDR can listen on it, as torch's store does; nobody else gets it. */
static void the_port_is_free_for_the_program_alone(_unused_ void **state)
{
    Error err = ERROR_INIT;
    int held, port;
    const int yes = 1;
    assert_int_equal(exec_hold_port(&held, &port, &err), 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&a, sizeof(a)), -1);
    assert_int_equal(errno, EADDRINUSE);
    assert_int_equal(setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), 0);
    assert_int_equal(bind(other, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(other, 1), 0);
    (void)close(other);
    (void)close(held);
}

static void addresses_are_split(_unused_ void **state)
{
    char host[64];
    int port = 0;
    assert_int_equal(exec_split_address("10.0.0.1:29500", host, sizeof(host), &port), 0);
    assert_true(strcmp(host, "10.0.0.1") == 0 && port == 29500);
    assert_int_equal(exec_split_address("[fd00::1]:1", host, sizeof(host), &port), 0);
    assert_true(strcmp(host, "fd00::1") == 0 && port == 1);
    static const char *const bad[] = {"",        "a",    "a:",   ":1",  "a:0",
                                      "a:65536", "a:1x", "a:-1", "[]:1"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(exec_split_address(bad[i], host, sizeof(host), &port), -EINVAL);
    assert_int_equal(exec_split_address("abcd:1", host, 4, &port), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_gets_what_torchrun_gives),
        cmocka_unit_test(gpus_are_those_of_the_node_or_its_own),
        cmocka_unit_test(gpus_are_found_in_the_order_of_their_addresses),
        cmocka_unit_test(later_entries_win_and_ours_are_last),
        cmocka_unit_test(a_program_that_cannot_be_executed_is_named),
        cmocka_unit_test(secrets_come_from_a_private_file),
        cmocka_unit_test(the_port_is_free_for_the_program_alone),
        cmocka_unit_test(addresses_are_split),
    };
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)folder_remove(folder, NULL);
    return failed;
}
