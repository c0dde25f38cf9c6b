/* SPDX-License-Identifier: Apache-2.0 */
/* test-numa.c - tests binding to a GPU's NUMA node, on hosts that are simulated by folders. Each case runs in a
 * separate process. */
#include "base/log.h"
#include "base/test/testing.h"
#include "kernels/cuda/module/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDRESS "0000:3b:00"

typedef struct Host { /* files of the host's sysfs; NULL: no such file */
    const char *online, *numa_node, *cpulist;
    const char *address;
    int policy;       /* the process's memory policy before binding */
    bool one_allowed; /* the process may use only last_cpu */
} Host;

typedef struct Answer {
    int node, policy;
    cpu_set_t cpus;
    char log[1024];
} Answer;

/* The processors that this test may use, and the last one of them. */
static cpu_set_t present;
static int last_cpu;
static bool policies; /* memory policies work here; a container's filter may forbid them */

static char root[] = "/tmp/test-numa-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
    }
    (void)unlink(path);
    if (!text)
        return;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void ask(const Host *host, Answer *answer)
{
    int log[2];
    unsigned long node_0 = 1;
    if (pipe2(log, O_CLOEXEC | O_NONBLOCK) < 0 || dup2(log[1], STDERR_FILENO) < 0)
        _exit(2);
    log_open("test-numa");
    if (host->policy && syscall(SYS_set_mempolicy, host->policy, &node_0, 2) < 0)
        _exit(4);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last_cpu, &one);
    if (host->one_allowed && sched_setaffinity(0, sizeof(one), &one) < 0)
        _exit(5);
    answer->node = cuda_numa_bind(root, host->address ? host->address : ADDRESS);
    if (sched_getaffinity(0, sizeof(answer->cpus), &answer->cpus) < 0 ||
        syscall(SYS_get_mempolicy, &answer->policy, NULL, 0, NULL, 0) < 0)
        _exit(3);
    ssize_t n = read(log[0], answer->log, sizeof(answer->log) - 1);
    answer->log[n > 0 ? n : 0] = '\0';
}

static Answer bind_on(Host host)
{
    int pair[2], status;
    static Answer answer;
    write_file("devices/system/node/online", host.online);
    write_file("bus/pci/devices/0000:3b:00.0/numa_node", host.numa_node);
    write_file("devices/system/node/node0/cpulist", host.cpulist);
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ask(&host, &answer);
        _exit(write(pair[1], &answer, sizeof(answer)) == sizeof(answer) ? 0 : 2);
    }
    assert_int_equal(close(pair[1]), 0);
    assert_int_equal(read(pair[0], &answer, sizeof(answer)), sizeof(answer));
    assert_int_equal(close(pair[0]), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return answer;
}

static int find_processors(void **state)
{
    (void)state;
    if (!mkdtemp(root) || sched_getaffinity(0, sizeof(present), &present) < 0)
        return -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &present))
            last_cpu = i;
    policies = syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) == 0;
    return 0;
}

static int remove_tree(void **state)
{
    char command[64];
    (void)state;
    (void)snprintf(command, sizeof(command), "rm -r '%s'", root);
    return system(command);
}

static void assert_unbound(const Answer *a, const char *said)
{
    assert_int_equal(a->node, -1);
    assert_true(CPU_EQUAL(&a->cpus, &present));
    assert_int_equal(a->policy, MPOL_DEFAULT);
    if (!said)
        assert_string_equal(a->log, "");
    else if (!strstr(a->log, said) || !strstr(a->log, "not bound to the NUMA node of GPU"))
        fail_msg("\"%s\" does not say \"%s\"", a->log, said);
}

static void test_binds(void **state)
{
    (void)state;
    if (!policies)
        skip();
    char list[64], said[128];
    /* The node also has processors that the process may not use, which are never chosen. */
    (void)snprintf(list, sizeof(list), "%d,%d-%d\n", last_cpu, last_cpu + 1, last_cpu + 30);
    const Host host = {.online = "0-1\n", .numa_node = "0\n", .cpulist = list};
    Answer a = bind_on(host);
    assert_int_equal(a.node, 0);
    assert_int_equal(CPU_COUNT(&a.cpus), 1);
    assert_true(CPU_ISSET(last_cpu, &a.cpus));
    assert_int_equal(a.policy, MPOL_PREFERRED);
    (void)snprintf(said, sizeof(said),
                   "info test-numa: GPU " ADDRESS
                   " is at NUMA node 0: 1 of %d processors, memory preferred there",
                   CPU_COUNT(&present));
    assert_non_null(strstr(a.log, said));

    /* CUDA writes addresses in the first form, sysfs in the second. */
    static const char *const addresses[] = {"00000000:3B:00.0", "0000:3b:00.0"};
    for (size_t i = 0; i < ELEMENTSOF(addresses); i++) {
        Host other = host;
        other.address = addresses[i];
        assert_int_equal(bind_on(other).node, 0);
    }

    /* All processors are near the GPU, but taskset(1) has left only one to the process. */
    Host narrow = host;
    narrow.cpulist = "0-63\n";
    narrow.one_allowed = true;
    a = bind_on(narrow);
    assert_int_equal(a.node, 0);
    assert_int_equal(CPU_COUNT(&a.cpus), 1);
    assert_true(CPU_ISSET(last_cpu, &a.cpus));

    Host chosen = host;
    chosen.policy = MPOL_BIND; /* as with numactl --membind */
    a = bind_on(chosen);
    assert_int_equal(a.node, 0);
    assert_int_equal(a.policy, MPOL_BIND);
    assert_non_null(strstr(a.log, "memory by the policy that the process has"));
}

static void test_leaves(void **state)
{
    (void)state;
    if (!policies)
        skip();
    char elsewhere[32];
    (void)snprintf(elsewhere, sizeof(elsewhere), "%d-%d\n", last_cpu + 1, last_cpu + 8);
    const struct {
        Host host;
        const char *said; /* NULL: nothing is logged */
    } cases[] = {
        {{.online = "0\n", .numa_node = "0\n", .cpulist = "0\n"}, NULL},
        {{.online = NULL, .numa_node = "0\n", .cpulist = "0\n"}, NULL},
        {{.online = "0-1\n", .numa_node = "-1\n", .cpulist = "0\n"}, NULL},
        {{.online = "0-1\n", .numa_node = NULL, .cpulist = "0\n"}, "numa_node: No such file"},
        {{.online = "0-1\n", .numa_node = "x\n", .cpulist = "0\n"}, "numa_node holds \"x"},
        {{.online = "0-1\n", .numa_node = "-2\n", .cpulist = "0\n"}, "numa_node holds \"-2"},
        {{.online = "0-1\n", .numa_node = "99999\n", .cpulist = "0\n"}, "holds \"99999"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = NULL}, "cpulist: No such file"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = elsewhere}, "none of the"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = "\n"}, "none of the"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = "0-\n"}, "cpulist holds \"0-"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = "3-1\n"}, "cpulist holds \"3-1"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = "0;1\n"}, "cpulist holds \"0;1"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = "0-99999\n"}, "holds \"0-99999"},
        {{.online = "junk\n", .numa_node = "0\n", .cpulist = "0\n"}, "online holds \"junk"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = "0\n", .address = "../../x"},
         "\"../../x\" is not a PCI address"},
        {{.online = "0-1\n", .numa_node = "0\n", .cpulist = "0\n", .address = "0000:3b:00.0x"},
         "is not a PCI address"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Answer a = bind_on(cases[i].host);
        assert_unbound(&a, cases[i].said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_binds), cmocka_unit_test(test_leaves)};
    return cmocka_run_group_tests(tests, find_processors, remove_tree);
}
