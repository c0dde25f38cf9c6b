/* SPDX-License-Identifier: Apache-2.0 */
/* test-daemon-health.c - a real daemon on a fake machine: a fake NVML library, a FIFO as the kernel's log, a folder
 * as sysfs. The test acts as leader and operator. */
#include "daemon/test/testing-daemon.h"

#include "base/clock.h"
#include "base/file.h"
#include "store/s3/test/testing-endpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

enum { SLOTS = 2 };

typedef struct Host {
    Lab *lab;
    LabNode *node;
    int log; /* the FIFO's end that the kernel would write to */
    char settings[2048], fifo[400], nvml[400];
} Host;

/* ---- the fake machine ---- */

static void say_nvml(const Host *h, const char *text)
{
    assert_int_equal(file_write(h->nvml, text, strlen(text), 0, NULL), 0);
}

static const char healthy_gpus[] =
    "{\"driver\": \"570.86\", \"gpus\": ["
    "{\"pci\": \"00000000:3B:00.0\", \"uuid\": \"GPU-a\", \"uncorrected\": 0, \"rows\": 0},"
    "{\"pci\": \"00000000:5E:00.0\", \"uuid\": \"GPU-b\", \"uncorrected\": 0, \"rows\": 0}]}";

static void log_kernel(const Host *h, const char *lines)
{
    assert_int_equal(write(h->log, lines, strlen(lines)), (ssize_t)strlen(lines));
}

/* Starts a fake machine and its daemon. more: settings in addition to those of the fake machine. */
static Host new_host(const char *more)
{
    Host h = {.lab = lab_start()};
    char folder[300];
    (void)snprintf(folder, sizeof(folder), "%s", lab_folder(h.lab));
    (void)snprintf(h.fifo, sizeof(h.fifo), "%s/kmsg", folder);
    (void)snprintf(h.nvml, sizeof(h.nvml), "%s/nvml.json", folder);
    assert_int_equal(mkfifo(h.fifo, 0600), 0);
    h.log = open(h.fifo, O_RDWR | O_CLOEXEC);
    assert_true(h.log >= 0);
    (void)setenv("FAKE_NVML", h.nvml, 1);
    say_nvml(&h, healthy_gpus);
    (void)snprintf(h.settings, sizeof(h.settings),
                   "\"slots\": %d, \"gpus\": 2, \"kernel_log\": \"%s\", "
                   "\"nvml\": \"%s/fake-nvml.so\", \"sysfs\": \"%s/sys\", "
                   "\"trainer_environment\": [\"FAKE_STEPS=1000000\"]%s%s",
                   SLOTS, h.fifo, getenv("SDTRAIN_BIN"), folder, *more ? ", " : "", more);
    h.node = lab_start_node(h.lab, 0, h.settings, NULL);
    return h;
}

static void end_host(Host *h)
{
    (void)close(h->log); /* cannot fail */
    (void)unsetenv("FAKE_NVML");
    (void)lab_stop(h->lab); /* always returns NULL */
}

/* ---- conditions to wait for ---- */

typedef struct Wanted {
    NodeVerdict verdict;
    uint64_t bad_slots;
    const char *part; /* a part of the evidence */
} Wanted;

static bool says(Lab *lab, const void *userdata)
{
    const Wanted *w = userdata;
    NodeRecord record;
    return lab_node_record(lab, 0, &record) && record.verdict == w->verdict &&
           record.bad_slots == w->bad_slots && strstr(record.evidence, w->part);
}

static bool is_answered(Lab *lab, const void *id)
{
    char key[KEY_MAX];
    const char *value = lab_value(lab, key_of("lab", KEY_REQUESTS, id, key));
    return value && !strstr(value, "\"answer\":\"\"") && strstr(value, "\"answer\"");
}

/* Sends node0 a request of that kind and returns the answer, in a static buffer. */
static const char *ask(Host *h, const char *id, const char *kind)
{
    static RequestRecord request;
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = NULL;
    request = (RequestRecord){.at_usec = clock_realtime_usec()};
    (void)snprintf(request.id, sizeof(request.id), "%s", id);
    (void)snprintf(request.kind, sizeof(request.kind), "%s", kind);
    (void)snprintf(request.target, sizeof(request.target), "node0");
    text = request_record_encode(&request, NULL);
    lab_put(h->lab, key_of("lab", KEY_REQUESTS, id, key), text);
    lab_wait_for(h->lab, is_answered, id, "an answer", 60000);
    const char *value = lab_value(h->lab, key);
    assert_int_equal(request_record_decode(key, value, strlen(value), &request, &err), 0);
    return request.answer;
}

static bool has_health(Lab *lab, const void *part)
{
    const char *value = lab_value(lab, "/sdtrain/lab/health/node0");
    return value && strstr(value, part);
}

/* Returns whether the part is in the file in which the daemon keeps the kernel log's state for the next daemon. */
static bool has_kept(Lab *lab, const void *part)
{
    char path[400];
    _cleanup_free_ char *text = NULL;
    size_t n;
    (void)snprintf(path, sizeof(path), "%s/node0/run/health/kernel-log.json", lab_folder(lab));
    return file_read(path, 65536, &text, &n, NULL) == 0 && strstr(text, part);
}

static void expect_answer(const char *answer, const char *part)
{
    if (!strstr(answer, part))
        fail_msg("\"%s\" is not in \"%s\"", part, answer);
}

/* ---- tests ---- */

/* Writes more lines than the daemon reads at once, so that a read may end inside a line. */
static void storm(const Host *h, int first, int last)
{
    char text[64 * 1024];
    int used = 0;
    for (int i = first; i <= last; i++)
        used += snprintf(text + used, sizeof(text) - (size_t)used, "6,%d,1,-;message %d\n", i, i);
    assert_true((size_t)used < sizeof(text));
    log_kernel(h, text);
}

/* A fatal error in the kernel's log is known at once, not at the next round of probes, which is a day off. A restart
 * neither forgets the error nor counts it again. */
static void test_xid_isolates_at_once(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 86400");
    NodeRecord record;
    assert_true(lab_node_record(h.lab, 0, &record)); /* a registered node has run its probes */
    assert_int_equal(record.verdict, NODE_HEALTHY);
    lab_wait(h.lab, has_health, "2 GPUs, driver 570.86");
    storm(&h, 1, 1099);
    log_kernel(&h, "6,1100,1,-;usb 1-1: new device\n"
                   " SUBSYSTEM=usb\n"
                   "4,1101,2,-;NVRM: Xid (PCI:0000:3b:00): 31, a program's fault\n");
    log_kernel(&h, "4,1102,3,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n");
    lab_wait(h.lab, says, (&(Wanted){NODE_ISOLATE, 0, "Xid 79 on 0000:3b:00"}));
    lab_wait(h.lab, has_health, "a reboot, then sdctl node uncordon");
    /* Waits until the state is saved: the kernel would show the next daemon all records again, but a FIFO delivers
     * each record once. */
    lab_wait(h.lab, has_kept, "\"next\":1103");

    (void)kill(h.node->pid, SIGKILL); /* our own child, not yet reaped: the pid is valid */
    (void)lab_wait_end(h.lab, h.node);
    lab_delete(h.lab, "/sdtrain/lab/nodes/node0"); /* stands for the end of the lease */
    h.node = lab_start_node(h.lab, 0, h.settings, NULL);
    lab_wait(h.lab, says, (&(Wanted){NODE_ISOLATE, 0, "Xid 79 on 0000:3b:00"}));
    /* Writes the records of the ring buffer again, as read after a restart, and one new record. */
    log_kernel(&h, "4,1101,2,-;NVRM: Xid (PCI:0000:3b:00): 31, a program's fault\n"
                   "4,1102,3,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
                   "4,1103,4,-;NVRM: Xid (PCI:0000:5e:00): 64, row remapper failed\n");
    lab_wait(h.lab, has_health, "(and 1 more)");
    expect_answer(ask(&h, "r1", "check"), "isolate: kernel-log: Xid 79");

    /* The operator clears the faults after a reset: all are forgotten, and stay forgotten. */
    expect_answer(ask(&h, "r2", "clear"), "healthy");
    lab_wait(h.lab, says, (&(Wanted){NODE_HEALTHY, 0, ""}));
    log_kernel(&h, "4,1102,3,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n");
    expect_answer(ask(&h, "r3", "check"), "healthy");
    end_host(&h);
}

/* A memory fault of one GPU costs only that GPU's slot; faults of both GPUs cost the node. */
static void test_fault_of_one_gpu_loses_its_slot(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 86400");
    log_kernel(&h, "4,7,3,-;NVRM: Xid (PCI:0000:5e:00): 48, DBE\n");
    lab_wait(h.lab, says, (&(Wanted){NODE_SUSPECT, 2, "Xid 48 on 0000:5e:00"}));
    say_nvml(&h, "{\"gpus\": [{\"pci\": \"00000000:3B:00.0\", \"uuid\": \"GPU-a\", "
                 "\"uncorrected\": 3}, {\"pci\": \"00000000:5E:00.0\"}]}");
    expect_answer(ask(&h, "r1", "check"), "isolate: ");
    lab_wait(h.lab, says, (&(Wanted){NODE_ISOLATE, 3, ""}));
    end_host(&h);
}

static bool has_judged_anew(Lab *lab, const void *node)
{
    (void)lab;
    return lab_log_has(node, "configuration reloaded");
}

/* Adds these settings to the node's file, and makes the daemon reload it. */
static void change_settings(const Host *h, const char *settings)
{
    char path[400];
    _cleanup_free_ char *text = NULL, *edited = NULL;
    size_t n;
    (void)snprintf(path, sizeof(path), "%s/config.json", h->node->folder);
    assert_int_equal(file_read(path, 1 << 16, &text, &n, NULL), 0);
    assert_true(asprintf(&edited, "%.*s, %s}", (int)n - 1, text, settings) > 0);
    assert_int_equal(file_write(path, edited, strlen(edited), 0, NULL), 0);
    assert_int_equal(kill(h->node->pid, SIGHUP), 0);
    lab_wait(h->lab, has_judged_anew, h->node);
}

/* A fatal NVLink error drains the node; a nonfatal NVLink message does not. A reload with other xid_actions changes
 * the verdict. */
static void test_severity_is_heard(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 86400");
    log_kernel(&h, "6,7,3,-;NVRM: Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 "
                   "(0x0409a0c2)\n");
    expect_answer(ask(&h, "r1", "check"), "healthy");
    lab_wait(h.lab, has_health,
             "1 that ask for nothing, the last: Xid 145 (nonfatal) on 0000:3b:00");
    log_kernel(&h, "6,8,3,-;NVRM: Xid (PCI:0000:5e:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 "
                   "(0x025001c6)\n");
    lab_wait(h.lab, says, (&(Wanted){NODE_DRAIN, 0, "kernel-log: Xid 149 (fatal) on 0000:5e:00"}));
    lab_wait(h.lab, has_health, "a reboot, or a reset of the GPU and sdctl node check --clear");

    change_settings(&h, "\"xid_actions\": {\"149 fatal\": \"suspect\"}");
    lab_wait(h.lab, says,
             (&(Wanted){NODE_SUSPECT, 0, "kernel-log: Xid 149 (fatal) on 0000:5e:00"}));
    end_host(&h);
}

/* A reload makes an idle node run its probes with the new settings at once, though the next round is a day off. */
static void test_a_reload_is_heard_in_an_idle_node(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 86400");
    expect_answer(ask(&h, "r1", "check"), "healthy"); /* no round is under way */
    change_settings(&h, "\"disk_min_bytes\": 1125899906842624");
    lab_wait(h.lab, says, (&(Wanted){NODE_SUSPECT, 0, "disk: "}));
    end_host(&h);
}

/* The driver's message of three lines, which the kernel writes as one record, counts as Xid 79. */
static void test_gpu_off_the_bus_without_a_number(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 86400");
    log_kernel(&h, "4,7,3,-;NVRM: The NVIDIA GPU 0000:3b:00.0\\x0a               NVRM: (PCI ID: "
                   "10de:2330) installed in "
                   "this system has\\x0a               NVRM: fallen off the bus and is not "
                   "responding to commands.\n");
    lab_wait(h.lab, says,
             (&(Wanted){NODE_ISOLATE, 0,
                        "kernel-log: Xid 79 on 0000:3b:00: NVRM: The NVIDIA GPU"}));
    end_host(&h);
}

/* A failing program counts for the submission of the slot's rank, also after that rank has ended. */
static void test_programs_of_several_submissions_fail_on_one_gpu(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 86400, \"drain_sec\": 1");
    char line[160];
    for (int i = 1; i <= 3; i++) {
        char submission[SUBMISSION_BYTES];
        (void)snprintf(submission, sizeof(submission), "%032d", i);
        lab_submit(h.lab, submission);
        lab_put_spec(h.lab, "a");
        (void)lab_put_world(h.lab, "a", i, (LabRun[]){{0, 2}}, 1); /* a rank in slot 1 */
        lab_wait(h.lab, lab_all_in_state, &(LabWhere){"a", i, 0, RANK_READY});
        for (int k = 0; k < 3; k++) { /* slot 0 has no rank, so its faults do not count */
            (void)snprintf(line, sizeof(line),
                           "4,%d,1,-;NVRM: Xid (PCI:0000:5e:00): 31, pid=7\n"
                           "4,%d,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=8\n",
                           6 * i + 2 * k, 6 * i + 2 * k + 1);
            log_kernel(&h, line);
        }
        if (i < 3)
            expect_answer(ask(&h, (const char *[]){"", "r1", "r2"}[i], "check"), "healthy");
    }
    lab_wait(
        h.lab, says,
        (&(Wanted){NODE_SUSPECT, 0,
                   "Xid 31 on 0000:5e:00: programs failed 3 times in 24 h, of 3 submissions"}));
    end_host(&h);
}

static bool tells_gpus(Lab *lab, const void *n)
{
    NodeRecord record;
    return lab_node_record(lab, 0, &record) && record.n_gpus == *(const int *)n;
}

/* The node's record counts all GPUs that the driver has shown since the boot: a new GPU is counted at once, and a
 * GPU that has vanished still counts. */
static void test_record_tells_how_many_gpus(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 1");
    NodeRecord record;
    assert_true(lab_node_record(h.lab, 0, &record));
    assert_int_equal(record.n_gpus, 2);
    say_nvml(&h, "{\"gpus\": [{\"pci\": \"00000000:3B:00.0\"}, {\"pci\": \"00000000:5E:00.0\"}, "
                 "{\"pci\": \"00000000:86:00.0\"}]}");
    lab_wait(h.lab, tells_gpus, &(int){3});
    say_nvml(&h, "{\"gpus\": [{\"pci\": \"00000000:3B:00.0\"}]}");
    lab_wait(h.lab, says, (&(Wanted){NODE_ISOLATE, 0, "was here since the boot and is gone"}));
    assert_true(tells_gpus(h.lab, &(int){3}));
    end_host(&h);
}

/* A GPU on the PCI bus that the driver does not show is not counted: no rank could use it. */
static void test_gpu_without_a_driver_does_not_count(_unused_ void **state)
{
    Host h = {.lab = lab_start()};
    char folder[400], path[500], settings[1200];
    static const struct {
        const char *name, *text;
    } files[] = {{"vendor", "0x10de\n"}, {"class", "0x030200\n"}};
    (void)snprintf(folder, sizeof(folder), "%s/sys/bus/pci/devices/0000:3b:00.0",
                   lab_folder(h.lab));
    assert_int_equal(folder_make(folder, NULL), 0);
    for (size_t i = 0; i < ELEMENTSOF(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, files[i].name);
        assert_int_equal(file_write(path, files[i].text, strlen(files[i].text), 0, NULL), 0);
    }
    (void)snprintf(settings, sizeof(settings),
                   "\"slots\": 2, \"kernel_log\": \"off\", \"nvml\": \"no-such-nvml\", "
                   "\"sysfs\": \"%s/sys\"",
                   lab_folder(h.lab));
    (void)lab_start_node(h.lab, 0, settings, NULL);
    NodeRecord record;
    assert_true(lab_node_record(h.lab, 0, &record));
    assert_int_equal(record.n_gpus, 0);
    (void)lab_stop(h.lab); /* always returns NULL */
}

/* With a round of probes each second, findings from NVML and sysfs appear and disappear without any request. */
static void test_rounds(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 1, \"rdma_devices\": 1");
    char folder[400], path[500];
    lab_wait(h.lab, says, (&(Wanted){NODE_DRAIN, 0, "rdma: 0 of 1 RDMA devices"}));
    (void)snprintf(folder, sizeof(folder), "%s/sys/class/infiniband/rdmap0/ports/1",
                   lab_folder(h.lab));
    assert_int_equal(folder_make(folder, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/state", folder);
    assert_int_equal(file_write(path, "4: ACTIVE\n", 10, 0, NULL), 0);
    lab_wait(h.lab, says, (&(Wanted){NODE_HEALTHY, 0, ""}));
    say_nvml(&h, "{\"gpus\": [{\"pci\": \"00000000:3B:00.0\", \"uuid\": \"GPU-a\"}]}");
    lab_wait(h.lab, says, (&(Wanted){NODE_ISOLATE, 0, "GPU-b"})); /* NVML lacks GPU-b */
    say_nvml(&h, healthy_gpus);
    lab_wait(h.lab, says, (&(Wanted){NODE_HEALTHY, 0, ""}));
    say_nvml(&h, "{"); /* a library that fails is a finding, not a crash */
    lab_wait(h.lab, says, (&(Wanted){NODE_DRAIN, 0, "nvmlInit gives error 9"}));
    end_host(&h);
}

static bool node1_has_health(Lab *lab, const void *part)
{
    const char *value = lab_value(lab, "/sdtrain/lab/health/node1");
    return value && strstr(value, part);
}

/* A node with GPUs must be able to read the kernel's log; a node without GPUs need not. */
static void test_log_that_cannot_be_read(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 86400");
    (void)lab_start_node(
        h.lab, 1, "\"kernel_log\": \"/no/such/log\", \"gpus\": 1, \"nvml\": \"no-such-nvml\"",
        NULL);
    NodeRecord record;
    assert_true(lab_node_record(h.lab, 1, &record));
    assert_int_equal(record.verdict, NODE_DRAIN); /* the node's GPU is missing, too */
    assert_non_null(strstr(record.evidence, "1 GPUs are expected"));
    lab_wait(h.lab, node1_has_health, "log can't be read");
    (void)lab_start_node(h.lab, 2, "\"kernel_log\": \"off\", \"nvml\": \"no-such-nvml\"", NULL);
    assert_true(lab_node_record(h.lab, 2, &record));
    if (strstr(record.evidence, "log")) /* the machine itself may be under load, and so suspect */
        fail_msg("%s", record.evidence);
    end_host(&h);
}

static bool says_that_it_hangs(Lab *lab, const void *userdata)
{
    const LabNode *node = userdata;
    (void)lab;
    return lab_log_has(node, "probe gpu hangs");
}

/* A library that never answers makes its probe hang: the probe is killed, other probes are not delayed, and the
 * second hang isolates the node. */
static void test_hung_probe_is_killed(_unused_ void **state)
{
    Host h = new_host("\"health_sec\": 1, \"probe_sec\": 3");
    say_nvml(&h, "{\"hang\": \"nvmlDeviceGetCount_v2\", \"gpus\": []}");
    lab_wait(h.lab, says_that_it_hangs, h.node);
    lab_wait(h.lab, says, (&(Wanted){NODE_ISOLATE, 0, "gpu: the probe hung"}));
    say_nvml(&h, healthy_gpus);
    lab_wait(h.lab, says, (&(Wanted){NODE_HEALTHY, 0, ""}));
    end_host(&h);
}

/* Whether the fake cloud gives a spot notice. */
static atomic_bool is_leaving;

static bool answer_metadata(_unused_ void *context, const EndpointRequest *request, char *ret,
                            size_t size)
{
    bool told = strstr(request->path, "instance-action") && atomic_load(&is_leaving);
    endpoint_reply(ret, size, told || strstr(request->path, "token") ? 200 : 404, 0,
                   told ? "{\"action\": \"terminate\", \"time\": \"2026-11-26T15:22:00Z\"}"
                        : "a-token");
    return true;
}

/* A spot notice is found though the next round of probes is a day off. The notice still counts after the cloud has
 * withdrawn it, and after a restart of the daemon. */
static void test_spot_notice(_unused_ void **state)
{
    char settings[200];
    FakeEndpoint *cloud = endpoint_start("127.0.0.1:0", answer_metadata, NULL);
    (void)snprintf(settings, sizeof(settings),
                   "\"health_sec\": 86400, \"spot_endpoint\": \"http://127.0.0.1:%d\"",
                   endpoint_port(cloud));
    Host h = new_host(settings);
    NodeRecord record;
    assert_true(lab_node_record(h.lab, 0, &record));
    assert_int_equal(record.verdict, NODE_HEALTHY);
    atomic_store(&is_leaving, true);
    lab_wait(h.lab, says,
             (&(Wanted){NODE_DRAIN, 0, "spot: the cloud takes this instance at 2026"}));
    lab_wait(h.lab, has_health, "a reboot, or 15 minutes without the notice");
    atomic_store(&is_leaving, false);
    expect_answer(ask(&h, "r1", "check"), "drain: spot: the cloud takes this instance");

    (void)kill(h.node->pid, SIGKILL); /* our own child, not yet reaped: the pid is valid */
    (void)lab_wait_end(h.lab, h.node);
    lab_delete(h.lab, "/sdtrain/lab/nodes/node0"); /* stands for the end of the lease */
    h.node = lab_start_node(h.lab, 0, h.settings, NULL);
    assert_true(lab_node_record(h.lab, 0, &record)); /* the notice is in the first record */
    assert_int_equal(record.verdict, NODE_DRAIN);
    end_host(&h);
    endpoint_stop(cloud);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xid_isolates_at_once),
        cmocka_unit_test(test_fault_of_one_gpu_loses_its_slot),
        cmocka_unit_test(test_severity_is_heard),
        cmocka_unit_test(test_a_reload_is_heard_in_an_idle_node),
        cmocka_unit_test(test_gpu_off_the_bus_without_a_number),
        cmocka_unit_test(test_programs_of_several_submissions_fail_on_one_gpu),
        cmocka_unit_test(test_record_tells_how_many_gpus),
        cmocka_unit_test(test_gpu_without_a_driver_does_not_count),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_log_that_cannot_be_read),
        cmocka_unit_test(test_hung_probe_is_killed),
        cmocka_unit_test(test_spot_notice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
