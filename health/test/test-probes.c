/* SPDX-License-Identifier: Apache-2.0 */
/* test-probes.c - injects every fault that a probe knows, through a fake NVML, a fake sysfs and a fake proc. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "health/gpus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/sdtrain-probes-XXXXXX";

/* ---- a machine to probe ---- */

typedef struct Machine {
    ProbeContext context;
    ProbeResult result; /* result of the last run */
} Machine;

static void write_file(const char *text, const char *format, ...) _printf_(2, 3);
static void write_file(const char *text, const char *format, ...)
{
    char path[400], folder[400];
    va_list ap;
    int n = snprintf(path, sizeof(path), "%s/", root);
    va_start(ap, format);
    (void)vsnprintf(path + n, sizeof(path) - (size_t)n, format, ap);
    va_end(ap);
    (void)snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(folder_make(folder, NULL), 0);
    assert_int_equal(file_write(path, text, strlen(text), 0, NULL), 0);
}

static Machine new_machine(void)
{
    Machine m = {.context = {.boot_id = "boot-1", .n_slots = 8}};
    ProbeContext *c = &m.context;
    (void)snprintf(c->run_dir, sizeof(c->run_dir), "%s", root);
    (void)snprintf(c->log_dir, sizeof(c->log_dir), "%s", root);
    (void)snprintf(c->nvml, sizeof(c->nvml), "%s/fake-nvml.so", getenv("SDTRAIN_BIN"));
    (void)snprintf(c->sysfs, sizeof(c->sysfs), "%s/sys", root);
    (void)snprintf(c->proc, sizeof(c->proc), "%s/proc", root);
    assert_int_equal(folder_remove(c->sysfs, NULL), 0);
    assert_int_equal(folder_remove(c->proc, NULL), 0);
    return m;
}

static void clear_machine(Machine *m)
{
    probe_result_clear(&m->result);
    probe_context_clear(&m->context);
}

/* Runs the probe. Its state goes into the next run through JSON, as between daemon and child. */
static int try_probe(Machine *m, const Probe *probe, Error *err)
{
    probe_result_clear(&m->result);
    m->result = (ProbeResult){0};
    int r = probe->run(&m->context, &m->result, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *text = NULL;
    ProbeResult back = {0};
    assert_int_equal(probe_result_format(&m->result, &text), 0);
    assert_true(strlen(text) < PROBE_STATE_MAX);
    assert_int_equal(probe_result_parse(text, strlen(text), &back, err), 0);
    json_decref(m->context.state);
    m->context.state = back.state;
    return 0;
}

static void probe(Machine *m, const Probe *which)
{
    Error err = ERROR_INIT;
    assert_int_equal(try_probe(m, which, &err), 0);
}

/* Makes the last run seem to be `seconds` ago. */
static void let_pass(Machine *m, double seconds)
{
    double usec = 0;
    assert_true(probe_recall(m->context.state, "usec", &usec));
    (void)json_object_set_new(m->context.state, "usec", json_real(usec - seconds * 1e6));
}

static const ProbeFinding *found(const ProbeResult *result, FaultCode fault)
{
    for (size_t i = 0; i < result->n_findings; i++)
        if (result->findings[i].fault == fault)
            return &result->findings[i];
    return NULL;
}

static void expect_well(const ProbeResult *result)
{
    for (size_t i = 0; i < result->n_findings; i++)
        fail_msg("found %s: %s", fault_rule(result->findings[i].fault)->name,
                 result->findings[i].text);
}

static void expect(const ProbeResult *result, FaultCode fault, int slot, const char *part)
{
    const ProbeFinding *f = found(result, fault);
    if (!f)
        fail_msg("%s was not found", fault_rule(fault)->name);
    assert_int_equal(f->slot, slot);
    if (!strstr(f->text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, f->text);
}

/* ---- GPUs ---- */

enum { GPUS = 4 };

/* Makes n healthy GPUs, the first at 0000:1b:00. `more` overrides values of GPU `which`. */
static void set_gpus(int n, int which, const char *more)
{
    char text[4096], path[64];
    int used = snprintf(text, sizeof(text), "{\"driver\": \"570.86\", \"gpus\": [");
    for (int i = 0; i < n; i++) {
        json_t *gpu = json_pack("{ss,so,so,si,si,si,si,si,si,si,si,si,si,si,si,si,si}", "driver",
                                "", "pci", json_sprintf("0000%04X:%02X:00.0", 0, 0x1b + i), "uuid",
                                json_sprintf("GPU-%08d", i), "uncorrected", 0, "corrected", 5,
                                "sram", 0, "rows", 0, "pages_single", 0, "pages_double", 0,
                                "recovery", 0, "clocks", 4, "width", 16, "width_max", 16,
                                "generation", 5, "generation_max", 5, "replays", 0, "links", 18);
        if (i == which) {
            json_t *extra = json_loads(more, 0, NULL);
            assert_non_null(extra);
            (void)json_object_update(gpu, extra);
            json_decref(extra);
        }
        char *one = json_dumps(gpu, JSON_COMPACT);
        used += snprintf(text + used, sizeof(text) - (size_t)used, "%s%s", i ? "," : "", one);
        free(one);
        json_decref(gpu);
    }
    (void)snprintf(text + used, sizeof(text) - (size_t)used, "]}");
    write_file(text, "nvml.json");
    (void)snprintf(path, sizeof(path), "%s/nvml.json", root);
    (void)setenv("FAKE_NVML", path, 1);
}

static void put_on_bus(int i)
{
    write_file("0x10de\n", "sys/bus/pci/devices/0000:%02x:00.0/vendor", 0x1b + i);
    write_file("0x030200\n", "sys/bus/pci/devices/0000:%02x:00.0/class", 0x1b + i);
}

static void test_no_gpu(_unused_ void **state)
{
    Machine m = new_machine();
    (void)snprintf(m.context.nvml, sizeof(m.context.nvml), "libno-such-nvml.so.1");
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    assert_string_equal(m.result.note, "no GPU");
    m.context.gpus = 8;
    probe(&m, &probe_gpu);
    expect(&m.result, FAULT_GPU_LIBRARY, -1, "8 GPUs are expected");
    clear_machine(&m);

    m = new_machine(); /* the library exists, but its driver is not loaded */
    (void)unsetenv("FAKE_NVML");
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    clear_machine(&m);
}

static void test_gpu_faults(_unused_ void **state)
{
    static const struct {
        const char *more;
        FaultCode fault;
        const char *part;
    } all[] = {
        {"{\"uncorrected\": 2}", FAULT_GPU_DOUBLE_BIT, "2 uncorrectable"},
        {"{\"sram\": 5}", FAULT_GPU_SRAM, "5 uncorrectable SRAM"},
        {"{\"rows_failed\": 1}", FAULT_GPU_REMAP_FAILED, "could not"},
        {"{\"rows_pending\": 1}", FAULT_GPU_REMAP_PENDING, "waits for a reset"},
        {"{\"rows\": 512}", FAULT_GPU_REMAP_MANY, "512 rows"},
        {"{\"pages_single\": 60, \"pages_double\": 3}", FAULT_GPU_PAGES_MANY, "63 pages"},
        {"{\"pages_double\": 15}", FAULT_GPU_PAGES_SOME, "15 pages"},
        {"{\"pages_pending\": 1}", FAULT_GPU_PAGES_PENDING, "waits for a reset"},
        {"{\"recovery\": 1}", FAULT_GPU_NEEDS_RESET, "GPU reset"},
        {"{\"recovery\": 2}", FAULT_GPU_NEEDS_REBOOT, "node reboot"},
        {"{\"recovery\": 3}", FAULT_GPU_NEEDS_RESET, "drain P2P"},
        {"{\"recovery\": 4}", FAULT_GPU_NEEDS_RESET, "drain and reset"},
        {"{\"clocks\": 72}", FAULT_GPU_THROTTLED, "hardware slowdown heat"},
        {"{\"clocks\": 32}", FAULT_GPU_THROTTLED, "others' are not"},
        {"{\"width\": 8}", FAULT_GPU_PCIE_LINK, "8 of 16 PCIe lanes"},
        {"{\"generation\": 3}", FAULT_GPU_PCIE_LINK, "generation 3 of 5"},
        {"{\"errors\": {\"nvmlDeviceGetTotalEccErrors\": 15}}", FAULT_GPU_LOST, "lost"},
        {"{\"errors\": {\"nvmlDeviceGetRemappedRows\": 16}}", FAULT_GPU_NEEDS_RESET, "reset"},
        {"{\"errors\": {\"nvmlDeviceGetRemappedRows\": 999}}", FAULT_GPU_UNREADABLE,
         "error 999 for remapped rows"},
    };
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        Machine m = new_machine();
        m.context.gpus = GPUS;
        set_gpus(GPUS, 2, all[i].more);
        probe(&m, &probe_gpu);
        expect(&m.result, all[i].fault, 2, all[i].part);
        expect(&m.result, all[i].fault, 2, "GPU 2");
        assert_int_equal(m.result.n_findings, 1);
        clear_machine(&m);
    }
    Machine m = new_machine();
    m.context.gpus = GPUS;
    set_gpus(GPUS, -1, "");
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    assert_string_equal(m.result.note, "4 GPUs, driver 570.86");
    /* Idle links slow down, and a driver may support none of these queries: neither is a fault. */
    set_gpus(GPUS, 1, "{\"clocks\": 1, \"generation\": 1}");
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    write_file("{\"gpus\": [{\"pci\": \"00000000:1B:00.0\"}]}", "nvml.json");
    m.context.gpus = 1;
    json_decref(m.context.state);
    m.context.state = NULL;
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    clear_machine(&m);
}

/* A GPU falls off the bus: NVML counts fewer GPUs, or reports a lost handle. The other GPUs keep their slots. */
static void test_gpu_falls_off(_unused_ void **state)
{
    Machine m = new_machine();
    m.context.gpus = GPUS;
    for (int i = 0; i < GPUS; i++)
        put_on_bus(i);
    set_gpus(GPUS, -1, "");
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    set_gpus(GPUS, 1, "{\"errors\": {\"nvmlDeviceGetHandleByIndex_v2\": 15}}");
    probe(&m, &probe_gpu);
    expect(&m.result, FAULT_GPU_LOST, -1, "lost");
    expect(&m.result, FAULT_GPU_GONE, 1, "GPU-00000001");

    set_gpus(GPUS - 1, -1, ""); /* the last GPU is missing; the bus still shows it */
    probe(&m, &probe_gpu);
    expect(&m.result, FAULT_GPU_GONE, 3, "0000:1e:00");
    expect(&m.result, FAULT_GPU_COUNT, -1, "NVML has 3 GPUs, the bus 4, 4 are expected");
    /* GPUs that were seen in an earlier boot are forgotten. */
    (void)snprintf(m.context.boot_id, sizeof(m.context.boot_id), "boot-2");
    probe(&m, &probe_gpu);
    assert_null(found(&m.result, FAULT_GPU_GONE));
    expect(&m.result, FAULT_GPU_COUNT, -1, "NVML has 3");
    clear_machine(&m);

    m = new_machine(); /* the first GPU is missing: the others keep their slots */
    set_gpus(GPUS, -1, "");
    probe(&m, &probe_gpu);
    Gpus gpus;
    gpus_parse(json_object_get(m.context.state, "gpus"), &gpus);
    assert_int_equal(gpus.n, GPUS);
    assert_int_equal(gpus_find(&gpus, "0000:1c:00"), 1);
    assert_string_equal(gpus.gpus[1].uuid, "GPU-00000001");
    write_file("{\"gpus\": [{\"pci\": \"00000000:1C:00.0\", \"uncorrected\": 1}]}", "nvml.json");
    probe(&m, &probe_gpu);
    expect(&m.result, FAULT_GPU_DOUBLE_BIT, 1, "GPU 1");
    expect(&m.result, FAULT_GPU_GONE, 0, "GPU 0");
    clear_machine(&m);
}

static void test_gpu_rates(_unused_ void **state)
{
    static const struct {
        const char *more;
        FaultCode fault;
        const char *part;
    } all[] = {
        {"{\"corrected\": 1205}", FAULT_GPU_SINGLE_BITS, "20 corrected"},
        {"{\"replays\": 32}", FAULT_GPU_PCIE_REPLAYS, "32 PCIe replays a minute, 31"},
        {"{\"links\": 17}", FAULT_GPU_NVLINK_DOWN, "17 NVLinks up, 18 were"},
        {"{\"link_crc\": 400}", FAULT_GPU_NVLINK_CRC, "120 NVLink CRC"},
        {"{\"link_recoveries\": 1}", FAULT_GPU_NVLINK_RECOVERY, "18 times"},
    };
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        Machine m = new_machine();
        set_gpus(GPUS, 2, "{\"link_crc\": 0, \"link_recoveries\": 0}");
        probe(&m, &probe_gpu);
        expect_well(&m.result);
        let_pass(&m, 60);
        probe(&m, &probe_gpu);
        expect_well(&m.result);
        let_pass(&m, 60);
        set_gpus(GPUS, 2, all[i].more);
        probe(&m, &probe_gpu);
        expect(&m.result, all[i].fault, 2, all[i].part);
        clear_machine(&m);
    }
    Machine m = new_machine();
    set_gpus(GPUS, 2, "{\"replays\": 100000}"); /* the first value is only noted */
    probe(&m, &probe_gpu);
    let_pass(&m, 60);
    set_gpus(GPUS, 2, "{\"replays\": 100031}"); /* the allowed rise in a minute */
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    let_pass(&m, 60);
    set_gpus(GPUS, 2, "{\"replays\": 3}"); /* the counter was reset */
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    clear_machine(&m);
}

static void test_gpu_strangers(_unused_ void **state)
{
    Machine m = new_machine();
    set_gpus(GPUS, 2, "{\"stranger_bytes\": 1073741824}");
    m.context.busy_slots = 4; /* slot 2 has a rank of ours */
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    m.context.busy_slots = 3;
    probe(&m, &probe_gpu);
    expect(&m.result, FAULT_GPU_STRANGER_SEEN, 2, "process 4242 holds 1024 MiB");
    probe(&m, &probe_gpu);
    expect(&m.result, FAULT_GPU_STRANGER, 2, "process 4242 holds 1024 MiB");
    set_gpus(GPUS, 2, "{\"stranger_bytes\": 1048576}");
    probe(&m, &probe_gpu);
    expect_well(&m.result);
    clear_machine(&m);
}

/* ---- RDMA ---- */

static void set_port(const char *device, const char *state, const char *phys, const char *rate)
{
    write_file(state, "sys/class/infiniband/%s/ports/1/state", device);
    write_file(phys, "sys/class/infiniband/%s/ports/1/phys_state", device);
    write_file(rate, "sys/class/infiniband/%s/ports/1/rate", device);
}

static void set_counter(const char *device, const char *counter, long value)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%ld\n", value);
    write_file(text, "sys/class/infiniband/%s/ports/1/hw_counters/%s", device, counter);
}

static void set_good_port(const char *device)
{
    set_port(device, "4: ACTIVE\n", "5: LinkUp\n", "100 Gb/sec (4X EDR)\n");
}

static void test_rdma_devices(_unused_ void **state)
{
    Machine m = new_machine();
    probe(&m, &probe_rdma);
    expect_well(&m.result);
    assert_string_equal(m.result.note, "0 RDMA devices");
    m.context.rdma_devices = 2;
    set_good_port("rdmap1s0");
    probe(&m, &probe_rdma); /* the second device may appear late */
    expect(&m.result, FAULT_RDMA_COUNT_SEEN, -1, "1 of 2");
    probe(&m, &probe_rdma);
    expect(&m.result, FAULT_RDMA_COUNT, -1, "1 of 2");
    set_good_port("rdmap2s0");
    probe(&m, &probe_rdma);
    expect_well(&m.result);
    set_port("rdmap2s0", "1: DOWN\n", "3: Disabled\n", "100 Gb/sec (4X EDR)\n");
    probe(&m, &probe_rdma);
    expect(&m.result, FAULT_RDMA_PORT, -1, "rdmap2s0 port 1 is 1: DOWN");
    set_port("rdmap2s0", "4: ACTIVE\n", "2: Polling\n", "100 Gb/sec (4X EDR)\n");
    probe(&m, &probe_rdma);
    expect(&m.result, FAULT_RDMA_PORT, -1, "2: Polling");
    set_port("rdmap2s0", "4: ACTIVE\n", "5: LinkUp\n", "25 Gb/sec (1X EDR)\n");
    probe(&m, &probe_rdma);
    expect(&m.result, FAULT_RDMA_RATE, -1, "rdmap2s0 runs at 25 Gb/s, others here at 100");
    clear_machine(&m);
}

static void test_rdma_counters(_unused_ void **state)
{
    Machine m = new_machine();
    set_good_port("rdmap1s0");
    set_counter("rdmap1s0", "rx_drops", 1000000); /* the first value is only noted */
    set_counter("rdmap1s0", "retrans_bytes", 0);
    probe(&m, &probe_rdma);
    expect_well(&m.result);
    set_counter("rdmap1s0", "rx_drops", 1000090); /* an allowed burst */
    probe(&m, &probe_rdma);
    expect_well(&m.result);
    set_counter("rdmap1s0", "rx_drops", 1000120); /* a rise of 30 where only 10 more were allowed */
    probe(&m, &probe_rdma);
    expect(&m.result, FAULT_RDMA_COUNTER, -1, "rdmap1s0: rx_drops rose by 30");
    let_pass(&m, 200);
    /* After the pause a whole burst is allowed again. */
    set_counter("rdmap1s0", "rx_drops", 1000210);
    probe(&m, &probe_rdma);
    expect_well(&m.result);
    set_counter("rdmap1s0", "rx_drops", 5); /* the counter was reset */
    set_counter("rdmap1s0", "retrans_bytes", 2000000);
    probe(&m, &probe_rdma);
    expect(&m.result, FAULT_RDMA_COUNTER, -1, "retrans_bytes rose by 2000000");
    assert_int_equal(m.result.n_findings, 1);
    clear_machine(&m);
}

static void test_rdma_hangs(_unused_ void **state)
{
    Machine m = new_machine();
    set_good_port("rdmap1s0");
    set_counter("rdmap1s0", "no_completion_cmds", 7);
    set_counter("rdmap1s0", "keep_alive_rcvd", 100);
    probe(&m, &probe_rdma);
    set_counter("rdmap1s0", "no_completion_cmds", 9); /* no hang: keep_alive_rcvd rises, too */
    set_counter("rdmap1s0", "keep_alive_rcvd", 160);
    probe(&m, &probe_rdma);
    expect_well(&m.result);
    probe(&m, &probe_rdma); /* no counter changes */
    expect_well(&m.result);
    set_counter("rdmap1s0", "no_completion_cmds", 10);
    probe(&m, &probe_rdma);
    expect(&m.result, FAULT_RDMA_HUNG, -1, "rdmap1s0 hangs: 1 commands");
    write_file("not a number\n", "sys/class/infiniband/rdmap1s0/ports/1/hw_counters/rx_drops");
    (void)snprintf(m.context.boot_id, sizeof(m.context.boot_id), "boot-2");
    probe(&m, &probe_rdma); /* counters of another boot do not count */
    expect_well(&m.result);
    clear_machine(&m);
}

/* ---- disk, clock, host ---- */

static void test_disk(_unused_ void **state)
{
    Machine m = new_machine();
    Error err = ERROR_INIT;
    probe(&m, &probe_disk);
    expect_well(&m.result);
    m.context.disk_min_bytes = INT64_MAX;
    probe(&m, &probe_disk);
    expect(&m.result, FAULT_DISK_FULL, -1, "disk_min_bytes");
    m.context.disk_min_bytes = 0;
    (void)snprintf(m.context.log_dir, sizeof(m.context.log_dir), "/proc");
    probe(&m, &probe_disk); /* nothing can be written in /proc */
    expect(&m.result, FAULT_DISK_WRITE, -1, "/proc: a write of 4 KiB fails");
    (void)snprintf(m.context.log_dir, sizeof(m.context.log_dir), "/no/such/folder");
    assert_int_equal(try_probe(&m, &probe_disk, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    clear_machine(&m);
}

static void test_clock(_unused_ void **state)
{
    Machine m = new_machine();
    double offset = 0;
    probe(&m, &probe_clock);
    expect_well(&m.result);
    probe(&m, &probe_clock);
    expect_well(&m.result);
    assert_true(probe_recall(m.context.state, "offset_usec", &offset));
    (void)json_object_set_new(m.context.state, "offset_usec", json_real(offset - 90e6));
    probe(&m, &probe_clock);
    expect(&m.result, FAULT_CLOCK_STEPPED, -1, "set by +90");
    probe(&m, &probe_clock); /* a clock step is reported once */
    expect_well(&m.result);
    assert_null(probe_find("clocks"));
    clear_machine(&m);
}

/* Changes the last run's state, so that the process has been seen for so many seconds more. */
static void see_for(Machine *m, const char *key, double sec)
{
    json_t *since = json_object_get(m->context.state, "since");
    double usec;
    assert_true(probe_recall(since, key, &usec));
    (void)json_object_set_new(since, key, json_real(usec - sec * 1e6));
}

static void test_host(_unused_ void **state)
{
    Machine m = new_machine();
    write_file("MemTotal:       1000000 kB\nMemAvailable:    500000 kB\n", "proc/meminfo");
    write_file("pgfault 10\noom_kill 3\n", "proc/vmstat");
    write_file("77 (a) b) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 900 0\n", "proc/77/stat");
    probe(&m, &probe_host);
    expect_well(&m.result);
    write_file("MemTotal:       1000000 kB\nMemAvailable:    20000 kB\n", "proc/meminfo");
    write_file("pgfault 10\noom_kill 5\n", "proc/vmstat");
    write_file("77 (a) b) D 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 900 0\n", "proc/77/stat");
    write_file("78 (kthread) D 2 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 900 0\n", "proc/78/stat");
    probe(&m, &probe_host);
    expect(&m.result, FAULT_MEMORY_LOW, -1, "19 of 976 MiB");
    expect(&m.result, FAULT_OOM_KILLS, -1, "killed 2 processes");
    assert_null(found(&m.result, FAULT_STUCK_PROCESSES)); /* one run is not enough */
    probe(&m, &probe_host);
    /* Two runs right after each other are not enough. */
    assert_null(found(&m.result, FAULT_STUCK_PROCESSES));
    see_for(&m, "77-900", 15);
    probe(&m, &probe_host);
    assert_null(found(&m.result, FAULT_STUCK_PROCESSES));
    see_for(&m, "77-900", 15); /* the time adds up over the runs */
    probe(&m, &probe_host);
    expect(&m.result, FAULT_STUCK_PROCESSES, -1, "1 process stuck");
    expect(&m.result, FAULT_STUCK_PROCESSES, -1, "a) b (77)");
    assert_null(found(&m.result, FAULT_OOM_KILLS));
    write_file("77 (a) b) D 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 999 0\n", "proc/77/stat");
    write_file("voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t1\n", "proc/77/status");
    see_for(&m, "77-900", 60);
    probe(&m, &probe_host); /* another process with the same pid */
    assert_null(found(&m.result, FAULT_STUCK_PROCESSES));
    write_file("voluntary_ctxt_switches:\t11\nnonvoluntary_ctxt_switches:\t1\n", "proc/77/status");
    see_for(&m, "77-999", 60);
    probe(&m, &probe_host); /* the process was woken meanwhile */
    assert_null(found(&m.result, FAULT_STUCK_PROCESSES));
    write_file("voluntary_ctxt_switches:\t11\nnonvoluntary_ctxt_switches:\t2\n", "proc/77/status");
    see_for(&m, "77-999", 60);
    probe(&m, &probe_host);
    expect(&m.result, FAULT_STUCK_PROCESSES, -1, "1 process stuck");
    clear_machine(&m);
}

static int make_root(_unused_ void **state) { return mkdtemp(root) ? 0 : -1; }
static int remove_root(_unused_ void **state) { return folder_remove(root, NULL); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_gpu),        cmocka_unit_test(test_gpu_faults),
        cmocka_unit_test(test_gpu_falls_off), cmocka_unit_test(test_gpu_rates),
        cmocka_unit_test(test_gpu_strangers), cmocka_unit_test(test_rdma_devices),
        cmocka_unit_test(test_rdma_counters), cmocka_unit_test(test_rdma_hangs),
        cmocka_unit_test(test_disk),          cmocka_unit_test(test_clock),
        cmocka_unit_test(test_host),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
