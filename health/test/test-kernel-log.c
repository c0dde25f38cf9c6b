/* SPDX-License-Identifier: Apache-2.0 */
/* test-kernel-log.c - drivers' messages in the kernel's log: which are recognised, which action each needs, what the
 * settings override, and what is kept when the daemon restarts. */
#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/test/testing.h"
#include "health/kernel-log.h"

#include <string.h>

enum { GPUS = 2 };

static const PciAddress addresses[GPUS] = {"0000:3b:00", "0000:5e:00"};
static SubmissionId submissions[GPUS];

/* Makes a machine of two GPUs, some time after its boot. */
static KernelScene new_scene(void)
{
    memset(submissions, 0, sizeof(submissions));
    return (KernelScene){.now_usec = 1000,
                         .boot_usec = 3600 * USEC_PER_SEC,
                         .gpus = addresses,
                         .n_gpus = GPUS,
                         .submissions = (const SubmissionId *)submissions,
                         .n_submissions = GPUS};
}

static KernelLog new_log(void)
{
    KernelLog log = {0};
    kernel_log_begin(&log, "boot-1");
    return log;
}

static bool take(KernelLog *log, const KernelScene *scene, const char *line)
{
    return kernel_log_take(log, scene, line, strlen(line));
}

/* Reads the text as the next record. */
static bool say(KernelLog *log, const KernelScene *scene, const char *text)
{
    char line[1024];
    (void)snprintf(line, sizeof(line), "4,%llu,7,-;%s", (unsigned long long)MAX(log->next_seq, 1u),
                   text);
    return take(log, scene, line);
}

static const ProbeFinding *found(const ProbeResult *result, FaultCode fault)
{
    for (size_t i = 0; i < result->n_findings; i++)
        if (result->findings[i].fault == fault)
            return &result->findings[i];
    return NULL;
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

static ProbeResult judge(const KernelLog *log, const KernelScene *scene)
{
    ProbeResult result;
    kernel_log_judge(log, scene, &result);
    return result;
}

static XidOverrides overrides_of(const char *text)
{
    XidOverrides ret;
    Error err = ERROR_INIT;
    _cleanup_json_ json_t *map = json_loads(text, 0, NULL);
    assert_non_null(map);
    if (xid_overrides_read(map, &ret, &err) < 0)
        fail_msg("%s", err.text);
    return ret;
}

/* ---- messages ---- */

#define X "NVRM: Xid (PCI:0000:3b:00): "
#define LOST                                                                                       \
    "NVRM: The NVIDIA GPU 0000:3b:00.0\\x0a               NVRM: (PCI ID: 10de:2330) installed in " \
    "this system has\\x0a"                                                                         \
    "               NVRM: fallen off the bus and is not responding to commands."

static void test_records_are_parsed(_unused_ void **state)
{
    static const struct {
        const char *text;
        XidKind kind;
        int code;
        const char *pci;
        XidAction action;
    } all[] = {
        {X "79, pid='<unknown>', GPU has fallen off the bus.", XID_GPU, 79, "0000:3b:00",
         XID_REBOOT},
        {"NVRM: Xid (0000:03:00): 13, Graphics Exception", XID_GPU, 13, "0000:03:00", XID_PROGRAM},
        {"NVRM: Xid (PCI:0000:9B:00): 48, DBE", XID_GPU, 48, "0000:9b:00", XID_ISOLATE_SLOT},
        {X "63, Row Remapper", XID_GPU, 63, "0000:3b:00", XID_NOTE},
        {X "119, Timeout waiting for RPC", XID_GPU, 119, "0000:3b:00", XID_RESET},
        {X "777, something new", XID_GPU, 777, "0000:3b:00", XID_SUSPECT},
        {X "777, something Fatal", XID_GPU, 777, "0000:3b:00", XID_SUSPECT},
        {X "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", XID_GPU,
         154, "0000:3b:00", XID_RESET},
        {X "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
         XID_GPU, 154, "0000:3b:00", XID_REBOOT},
        {X "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", XID_GPU,
         154, "0000:3b:00", XID_RESET},
        {X "154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", XID_GPU, 154,
         "0000:3b:00", XID_RESET},
        {X "154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
         XID_GPU, 154, "0000:3b:00", XID_CURED},
        {X "154, words that nobody has seen", XID_GPU, 154, "0000:3b:00", XID_SUSPECT},
        /* severity, as drivers write it */
        {X "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", XID_GPU, 145,
         "0000:3b:00", XID_NOTE},
        {X "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)", XID_GPU, 149,
         "0000:3b:00", XID_RESET},
        {X "149, NETIR Fatal XC0 i0 Link -1 (0x000fe406)", XID_GPU, 149, "0000:3b:00", XID_RESET},
        {X "144, SAW_MVB Non-fatal XC0", XID_GPU, 144, "0000:3b:00", XID_NOTE},
        {X "150, SAW_MVB NON-FATAL XC0", XID_GPU, 150, "0000:3b:00", XID_NOTE},
        {X "144, SAW_MVB Non Fatal XC0", XID_GPU, 144, "0000:3b:00", XID_NOTE},
        {X "150, name=Fatal, MSE Nonfatal XC0", XID_GPU, 150, "0000:3b:00", XID_NOTE},
        {X "146, NOT_FATAL_AT_ALL XC0", XID_GPU, 146, "0000:3b:00", XID_NOTE},
        {X "146, Fatality XC0", XID_GPU, 146, "0000:3b:00", XID_NOTE},
        {"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress", XID_SWITCH,
         12028, "0000:c1:00", XID_NOTE},
        {"nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
         XID_SWITCH, 20034, "0000:86:00", XID_ISOLATE},
        {"nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Link 30 LTSSM Fault Up", XID_SWITCH,
         20034, "0000:86:00", XID_SUSPECT},
        /* GPUs off the bus, reported with and without an Xid */
        {LOST, XID_GPU, 79, "0000:3b:00", XID_REBOOT},
        {"NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", XID_GPU, 79, "0000:3b:00",
         XID_REBOOT},
        {"NVRM: GPU at PCI:0000:3b:00: has fallen off the bus.", XID_GPU, 79, "0000:3b:00",
         XID_REBOOT},
        {"NVRM: fallen off the bus and is not responding to commands.", XID_GPU, 79, "",
         XID_REBOOT},
        /* links and NICs */
        {"nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction "
         "Layer, (Requester ID)",
         XID_PCIE, 0, "0000:3b:00", XID_RESET},
        {"nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link "
         "Layer",
         XID_PCIE, 0, "0000:3b:00", XID_RESET},
        {"nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), "
         "type=Transaction Layer",
         XID_PCIE, 0, "0000:3b:00", XID_NOTE},
        {"nvidia-nvswitch2 0000:86:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
         XID_PCIE, 0, "0000:86:00", XID_NOTE},
        {"efa 0000:9b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible",
         XID_NIC, 0, "0000:9b:00", XID_SUSPECT},
        {"mlx5_core 0000:9b:00.0: poll_health:800:(pid 0): Fatal error 1 detected", XID_NIC, 0,
         "0000:9b:00", XID_SUSPECT},
        {"mlx5_core 0000:9b:00.0: print_health_info:431:(pid 0): Health issue observed, firmware "
         "internal error, "
         "severity(2) CRITICAL:",
         XID_NIC, 0, "0000:9b:00", XID_SUSPECT},
        {"mlx5_core 0000:9b:00.0: print_health_info:431:(pid 0): Health issue observed, HW fatal "
         "error, severity(3) "
         "ERROR:",
         XID_NIC, 0, "0000:9b:00", XID_NOTE},
    };
    const XidOverrides none = {0};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        XidEvent event;
        /* a copy of exactly this size: a sanitizer sees reads beyond it */
        _cleanup_free_ char *text = strndup(all[i].text, strlen(all[i].text));
        if (xid_parse(text, strlen(text), &event) < 0)
            fail_msg("not seen: %s", text);
        assert_int_equal(event.kind, all[i].kind);
        assert_int_equal(event.code, all[i].code);
        assert_string_equal(event.pci, all[i].pci);
        if (xid_action(&none, event.kind, event.code, event.word) != all[i].action)
            fail_msg("%s: %s",
                     xid_action_name(xid_action(&none, event.kind, event.code, event.word)), text);
    }
    static const char *const others[] = {
        "usb 1-1: new device",
        "NVRM: Xid (PCI:zz): 79",
        X "soon",
        "Xid (",
        "Xid ()",
        "usb 1-1: fallen off the bus",
        "NVRM: The NVIDIA GPU 0000:3b:00.0",
        "nvidia 0000:3b:00.0: enabling device",
        "nvme 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "nvidia-modeset: severity=Fatal",
        "mlx5_core 0000:9b:00.0: Link up",
        "nvidia 0000:3b:00.0",
        "efa"};
    for (size_t i = 0; i < ELEMENTSOF(others); i++) {
        XidEvent event;
        assert_int_equal(xid_parse(others[i], strlen(others[i]), &event), -ENOENT);
    }
    KernelRecord record;
    assert_int_equal(kernel_record_parse("3,99,5,-;a", 10, &record), 0);
    assert_int_equal(record.seq, 99);
    assert_int_equal(kernel_record_parse(" SUBSYSTEM=pci", 14, &record), -EBADMSG);
    assert_int_equal(kernel_record_parse("3,99999999999999999999999,5,-;", 30, &record), -EBADMSG);
}

/* Nothing is read beyond a record that ends within a driver's name. */
static void test_nothing_is_read_behind_a_record(_unused_ void **state)
{
    static const char line[] = "nvidia-nvswitch1234";
    XidEvent event;
    assert_int_equal(xid_parse(line, strlen("nvidia-nvswitch"), &event), -ENOENT);
    assert_int_equal(xid_parse(line, strlen("nvidia-nvswitch1"), &event), -ENOENT);
}

static void test_codes_that_all_sources_call_fatal(_unused_ void **state)
{
    const XidOverrides none = {0};
    FaultCode fault;
    static const int fatal[] = {48,  64,  74,  79,  119, 120, 46,  62,  95, 109, 110,
                                136, 140, 142, 143, 151, 155, 156, 158, 54, 168};
    for (size_t i = 0; i < ELEMENTSOF(fatal); i++) {
        assert_true(
            xid_fault(xid_action(&none, XID_GPU, fatal[i], XID_WORD_NONE), XID_GPU, &fault));
        assert_true(fault_rule(fault)->level >= HEALTH_DRAIN);
    }
    static const int harmless[] = {13, 31, 43, 45, 92, 94, 126, 121, 144, 150, 165};
    for (size_t i = 0; i < ELEMENTSOF(harmless); i++)
        assert_false(
            xid_fault(xid_action(&none, XID_GPU, harmless[i], XID_WORD_NONE), XID_GPU, &fault));
    for (int code = 144; code <= 150; code++) {
        assert_int_equal(xid_action(&none, XID_GPU, code, XID_WORD_FATAL), XID_RESET);
        assert_int_equal(xid_action(&none, XID_GPU, code, XID_WORD_NONFATAL), XID_NOTE);
    }
    assert_int_equal(xid_action(&none, XID_GPU, 151, XID_WORD_NONFATAL), XID_REBOOT);
}

/* A fatal NVLink error drains the node, and its finding names the slot. Nonfatal NVLink messages are notes, and are
 * shown. */
static void test_severity_decides(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log();
    assert_false(say(&log, &scene, X "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)"));
    ProbeResult result = judge(&log, &scene);
    assert_int_equal(result.n_findings, 0);
    assert_non_null(
        strstr(result.note, "1 that ask for nothing, the last: Xid 145 (nonfatal) on 0000:3b:00"));
    assert_true(say(&log, &scene,
                    "NVRM: Xid (PCI:0000:5e:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x0)"));
    result = judge(&log, &scene);
    assert_int_equal(result.n_findings, 1);
    expect(&result, FAULT_XID_RESET, 1, "Xid 149 (fatal) on 0000:5e:00: NVRM: Xid");
    assert_int_equal(fault_rule(FAULT_XID_RESET)->level, HEALTH_DRAIN);
    assert_false(
        say(&log, &scene,
            "NVRM: Xid (PCI:0000:5e:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 00 (0x0)"));
    assert_int_equal(judge(&log, &scene).n_findings, 1); /* the fatal event stays fatal */
}

/* The driver reports a lost GPU in one record of three lines, or in three records. Only the first line has the
 * address. */
static void test_lost_gpu_has_the_address_of_its_first_line(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log();
    assert_true(say(&log, &scene, LOST));
    ProbeResult result = judge(&log, &scene);
    expect(&result, FAULT_XID_REBOOT, 0,
           "Xid 79 on 0000:3b:00: NVRM: The NVIDIA GPU 0000:3b:00.0 NVRM: (PCI ID: 10de:2330) "
           "installed in this system "
           "has NVRM: fallen off the bus");
    assert_false(
        say(&log, &scene, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")); /* known event */
    assert_int_equal(log.events[0].count, 2);

    log = new_log();
    assert_false(say(&log, &scene, "NVRM: The NVIDIA GPU 0000:5e:00.0"));
    assert_false(say(&log, &scene, "NVRM: (PCI ID: 10de:2330) installed in this system has"));
    assert_true(say(&log, &scene, "NVRM: fallen off the bus and is not responding to commands."));
    result = judge(&log, &scene);
    expect(&result, FAULT_XID_REBOOT, 1, "Xid 79 on 0000:5e:00");

    /* Lines that are further apart may be of different GPUs: the loss is reported all the same, but without an
     * address. */
    log = new_log();
    assert_false(say(&log, &scene, "NVRM: The NVIDIA GPU 0000:5e:00.0"));
    for (int i = 0; i < 3; i++)
        assert_false(say(&log, &scene, "usb 1-1: new device"));
    assert_true(say(&log, &scene, "NVRM: fallen off the bus and is not responding to commands."));
    result = judge(&log, &scene);
    expect(&result, FAULT_XID_REBOOT, -1, "Xid 79 on a GPU");
}

static void test_xid_45_names_its_cause(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log();
    assert_false(
        say(&log, &scene, X "45, pid=7, name=python3, Ch 0000000c caused by previous Xid 149"));
    assert_string_equal(log.note, "Xid 45 on 0000:3b:00, caused by Xid 149");
    assert_false(say(&log, &scene, X "45, pid=7, name=python3, Ch 0000000c"));
    assert_string_equal(log.note, "Xid 45 on 0000:3b:00");
    assert_false(
        say(&log, &scene, X "45, pid=7, name=python3, Ch 0000000c caused by previous Xid none"));
    assert_string_equal(log.note, "Xid 45 on 0000:3b:00");
    assert_int_equal(log.noted, 3);
}

/* ---- faults of programs ---- */

static void pass(KernelScene *scene, int seconds)
{
    scene->boot_usec += (uint64_t)seconds * USEC_PER_SEC;
}

static bool fail_program(KernelLog *log, KernelScene *scene, const char *submission, int code)
{
    char text[128];
    (void)snprintf(submissions[0], sizeof(submissions[0]), "%s", submission);
    (void)snprintf(text, sizeof(text), X "%d, pid=7, name=x", code);
    return say(log, scene, text);
}

/* Three faults in a day, in programs of two submissions, may be caused by the GPU: the GPU is reported as suspect, and
 * no slot is lost. */
static void test_programs_that_fail_again_and_again(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log();
    assert_false(fail_program(&log, &scene, "a", 31));
    pass(&scene, XID_BURST_SEC);
    assert_false(fail_program(&log, &scene, "a", 13));
    assert_int_equal(judge(&log, &scene).n_findings, 0);
    assert_true(fail_program(&log, &scene, "b", 43));
    ProbeResult result = judge(&log, &scene);
    assert_int_equal(result.n_findings, 1);
    expect(&result, FAULT_XID_REPEATED, 0,
           "Xid 43 on 0000:3b:00: programs failed 3 times in 24 h, of 2 submissions; it may be the "
           "GPU");
    assert_int_equal(fault_rule(FAULT_XID_REPEATED)->level, HEALTH_SUSPECT);

    /* The first fault does not count any more when it is a day old. */
    pass(&scene, XID_REPEATS_SEC - XID_BURST_SEC - 1);
    assert_int_equal(judge(&log, &scene).n_findings, 1);
    pass(&scene, 1);
    assert_int_equal(judge(&log, &scene).n_findings, 0);
    assert_true(fail_program(&log, &scene, "c", 13));
    assert_false(fail_program(&log, &scene, "d", 13)); /* the GPU is suspect already */
    kernel_log_forget(&log);
    assert_int_equal(judge(&log, &scene).n_findings, 0);
}

/* One submission's faults are not a fault of a GPU, however many there are. One crash has many lines, and Xid 45
 * only follows another event. */
static void test_one_program_is_no_proof(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log();
    for (int i = 0; i < 10; i++) {
        assert_false(fail_program(&log, &scene, "a", 31));
        pass(&scene, XID_BURST_SEC);
    }
    kernel_log_forget(&log);
    assert_false(fail_program(&log, &scene, "a", 31));
    for (int i = 0; i < 100; i++) {
        assert_false(fail_program(&log, &scene, "b", 13));
        assert_false(fail_program(&log, &scene, "b", 43));
        assert_false(fail_program(&log, &scene, "b", 31));
    }
    pass(&scene, XID_BURST_SEC);
    assert_false(fail_program(&log, &scene, "c", 45));
    assert_false(fail_program(&log, &scene, "c", 94));
    assert_int_equal(judge(&log, &scene).n_findings, 0);

    /* A fault does not count if its program is unknown, because the GPU has no slot or the slot has no rank. */
    assert_false(fail_program(&log, &scene, "", 31));
    assert_false(say(&log, &scene, "NVRM: Xid (PCI:0000:aa:00): 31, pid=7, name=x"));
    assert_int_equal(log.n_programs, 2);
    /* Faults of another GPU are counted separately. */
    (void)snprintf(submissions[1], sizeof(submissions[1]), "c");
    assert_false(say(&log, &scene, "NVRM: Xid (PCI:0000:5e:00): 31, pid=7, name=x"));
    assert_int_equal(judge(&log, &scene).n_findings, 0);
    assert_true(fail_program(&log, &scene, "c", 31));
    /* The driver reports that the GPU was reset. */
    assert_true(
        say(&log, &scene,
            X "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"));
    assert_int_equal(judge(&log, &scene).n_findings, 0);
    assert_int_equal(log.n_programs, 1);
}

/* ---- settings ---- */

static void test_settings_override_single_rows(_unused_ void **state)
{
    XidOverrides o = overrides_of(
        "{\"63\": \"isolate-slot\", \"149\": \"note\", \"149 nonfatal\": \"suspect\", "
        "\"sxid 12028\": \"suspect\", \"sxid 20034 fatal\": \"note\", \"pcie\": \"isolate\", "
        "\"nic fatal\": \"reset\", \"31\": \"note\", \"777\": \"note\", \"154\": \"note\", "
        "\"92\": \"program\", \"sxid nonfatal\": \"reset\"}");
    static const struct {
        XidKind kind;
        int code;
        XidWord word;
        XidAction action;
    } all[] = {
        {XID_GPU, 63, XID_WORD_NONE, XID_ISOLATE_SLOT},
        {XID_GPU, 64, XID_WORD_NONE, XID_RESET},
        {XID_GPU, 149, XID_WORD_FATAL, XID_NOTE},
        {XID_GPU, 149, XID_WORD_NONFATAL, XID_SUSPECT},
        {XID_GPU, 148, XID_WORD_FATAL, XID_RESET},
        {XID_SWITCH, 12028, XID_WORD_NONFATAL, XID_SUSPECT},
        {XID_SWITCH, 12028, XID_WORD_FATAL, XID_SUSPECT},
        {XID_SWITCH, 12029, XID_WORD_FATAL, XID_ISOLATE},
        {XID_SWITCH, 12029, XID_WORD_NONFATAL, XID_RESET},
        {XID_SWITCH, 20034, XID_WORD_FATAL, XID_NOTE},
        {XID_SWITCH, 20034, XID_WORD_NONE, XID_SUSPECT},
        {XID_SWITCH, 149, XID_WORD_FATAL, XID_ISOLATE},
        {XID_PCIE, 0, XID_WORD_FATAL, XID_ISOLATE},
        {XID_PCIE, 0, XID_WORD_NONE, XID_ISOLATE},
        {XID_NIC, 0, XID_WORD_FATAL, XID_RESET},
        {XID_NIC, 0, XID_WORD_NONFATAL, XID_NOTE},
        {XID_GPU, 31, XID_WORD_NONE, XID_NOTE},
        {XID_GPU, 92, XID_WORD_NONE, XID_PROGRAM},
        {XID_GPU, 777, XID_WORD_NONE, XID_NOTE},
        {XID_GPU, 778, XID_WORD_NONE, XID_SUSPECT},
        {XID_GPU, 154, XID_WORD_RESET, XID_NOTE},
        {XID_GPU, 154, XID_WORD_CURED, XID_CURED}, /* no setting can replace this action */
    };
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        assert_int_equal(xid_action(&o, all[i].kind, all[i].code, all[i].word), all[i].action);

    /* Changed settings apply to open events, too. */
    KernelScene scene = new_scene();
    KernelLog log = new_log();
    assert_true(say(&log, &scene, X "119, Timeout waiting for RPC"));
    scene.overrides = overrides_of("{\"119\": \"isolate\"}");
    ProbeResult result = judge(&log, &scene);
    expect(&result, FAULT_XID_ISOLATE, 0, "Xid 119");
    scene.overrides = overrides_of("{\"119\": \"note\"}");
    assert_int_equal(judge(&log, &scene).n_findings, 0);
}

static void test_wrong_rows_are_refused(_unused_ void **state)
{
    static const struct {
        const char *text, *part;
    } all[] = {
        {"{\"fatal\": \"note\"}", "\"fatal\" is not a row"},
        {"{\"\": \"note\"}", "\"\" is not a row"},
        {"{\"79x\": \"note\"}", "\"79x\" is not a row"},
        {"{\"079\": \"note\"}", "\"079\" is not a row"},
        {"{\"100000\": \"note\"}", "\"100000\" is not a row"},
        {"{\"149 Fatal\": \"note\"}", "\"149 Fatal\" is not a row"},
        {"{\"149  fatal\": \"note\"}", "\"149  fatal\" is not a row"},
        {"{\"149 \": \"note\"}", "\"149 \" is not a row"},
        {"{\"149 fatal x\": \"note\"}", "\"149 fatal x\" is not a row"},
        {"{\"149 reset\": \"note\"}", "\"149 reset\" is not a row"},
        {"{\"154 none\": \"note\"}", "\"154 none\" is not a row"},
        {"{\"pcie 3\": \"note\"}", "\"pcie 3\" is not a row"},
        {"{\"149 fatal\": \"resett\"}",
         "\"149 fatal\": \"resett\" is none of note, suspect, reset, reboot, "},
        {"{\"149\": \"cured\"}", "\"149\": \"cured\" is none of"},
        {"{\"sxid\": \"program\"}", "\"sxid\": \"program\" is none of"},
        {"{\"79\": 3}", "\"79\": \"\" is none of"},
    };
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        XidOverrides o = {.n = 7};
        Error err = ERROR_INIT;
        _cleanup_json_ json_t *map = json_loads(all[i].text, 0, NULL);
        assert_int_equal(xid_overrides_read(map, &o, &err), -EINVAL);
        if (!strstr(err.text, all[i].part))
            fail_msg("\"%s\" is not in \"%s\"", all[i].part, err.text);
        assert_int_equal(o.n, 7);
    }
    XidOverrides none;
    assert_int_equal(xid_overrides_read(NULL, &none, NULL), 0);
    assert_int_equal(none.n, 0);
    size_t n;
    const XidRow *table = xid_table(&n);
    char name[XID_ROW_NAME_MAX];
    for (size_t i = 0; i < n; i++) {
        assert_non_null(table[i].sources);
        assert_true(strlen(xid_row_name(&table[i], name)) > 0);
    }
}

/* ---- state between two lives of the daemon ---- */

/* After a restart the log is read again: no known event counts twice, and no new event is missed. */
static void test_restart_neither_replays_nor_forgets(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log(), again;
    Error err = ERROR_INIT;
    assert_false(take(&log, &scene, "6,10,1,-;usb 1-1: new device"));
    assert_true(take(&log, &scene, "3,11,2,-;NVRM: Xid (PCI:0000:5e:00): 48, DBE"));
    assert_false(take(&log, &scene, "3,12,3,-;NVRM: Xid (PCI:0000:5e:00): 48, DBE again"));
    assert_false(take(&log, &scene, "3,13,4,-;NVRM: Xid (PCI:0000:5e:00): 31, a program's"));
    assert_int_equal(log.n_events, 1);
    assert_int_equal(log.events[0].count, 2);
    ProbeResult result = judge(&log, &scene);
    expect(&result, FAULT_XID_SLOT, 1, "Xid 48 on 0000:5e:00: NVRM");

    _cleanup_free_ char *kept = NULL;
    assert_int_equal(kernel_log_format(&log, &kept), 0);
    assert_int_equal(kernel_log_parse("state", kept, strlen(kept), &again, &err), 0);
    kernel_log_begin(&again, "boot-1");
    assert_string_equal(again.note, "Xid 31 on 0000:5e:00");
    assert_false(take(&again, &scene, "6,10,1,-;usb 1-1: new device"));
    assert_false(take(&again, &scene, "3,11,2,-;NVRM: Xid (PCI:0000:5e:00): 48, DBE"));
    assert_int_equal(again.events[0].count, 2);
    assert_true(take(&again, &scene, "3,14,5,-;NVRM: Xid (PCI:0000:3b:00): 119, meanwhile"));
    result = judge(&again, &scene);
    expect(&result, FAULT_XID_RESET, 0, "Xid 119");
    expect(&result, FAULT_XID_SLOT, 1, "Xid 48");

    /* The driver reports a reset of one GPU, which ends only that GPU's events. A request of an operator ends all
     * events. */
    assert_true(take(&again, &scene,
                     "3,15,6,-;NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed "
                     "from 0x1 (GPU Reset Required) to 0x0 (None)"));
    assert_int_equal(again.n_events, 1);
    kernel_log_forget(&again);
    assert_int_equal(again.n_events, 0);

    kernel_log_begin(&log, "boot-2"); /* record numbers begin again, and no event is open */
    assert_int_equal(log.n_events, 0);
    assert_true(take(&log, &scene, "3,2,1,-;NVRM: Xid (PCI:0000:01:00): 79, off the bus"));
    result = judge(&log, &scene);
    expect(&result, FAULT_XID_REBOOT, -1, "Xid 79"); /* the GPU's slot is unknown */
    assert_int_equal(kernel_log_parse("state", "{}", 2, &again, &err), -EBADMSG);
}

/* A restart keeps the deciding word, even if it is beyond the text that is kept; failed programs still count. */
static void test_restart_keeps_the_deciding_word(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log(), again;
    Error err = ERROR_INIT;
    char text[512];
    (void)snprintf(text, sizeof(text), X "149, %0200d Fatal XC0", 0);
    assert_true(say(&log, &scene, text));
    assert_true(say(&log, &scene,
                    "efa 0000:9b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x"));
    assert_true(
        say(&log, &scene, "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30"));
    assert_false(fail_program(&log, &scene, "a", 31));
    assert_false(fail_program(&log, &scene, "b", 31));
    pass(&scene, XID_BURST_SEC);
    _cleanup_free_ char *kept = NULL;
    assert_int_equal(kernel_log_format(&log, &kept), 0);
    assert_int_equal(kernel_log_parse("state", kept, strlen(kept), &again, &err), 0);
    assert_true(fail_program(&again, &scene, "b", 31));
    ProbeResult result = judge(&again, &scene);
    assert_int_equal(result.n_findings, 4);
    expect(&result, FAULT_XID_RESET, 0, "Xid 149 (fatal)");
    expect(&result, FAULT_NIC_FATAL, -1, "NIC error (fatal) on 0000:9b:00");
    expect(&result, FAULT_XID_ISOLATE, -1, "SXid 20034 (fatal)");
    expect(&result, FAULT_XID_REPEATED, 0, "Xid 31");

    /* The state of an earlier version of the daemon has neither kind nor word. */
    static const char old[] =
        "{\"boot_id\":\"boot-1\",\"next\":9,\"events\":["
        "{\"code\":20034,\"switch\":true,\"pci\":\"0000:86:00\",\"text\":\"nvidia-nvswitch0: SXid "
        "(PCI:0000:86:00.0): 20034, Fatal, "
        "Link\",\"first\":1,\"last\":1,\"at_usec\":1,\"count\":1},"
        "{\"code\":79,\"switch\":false,\"pci\":\"0000:3b:00\",\"text\":\"NVRM: "
        "x\",\"first\":1,\"last\":1,"
        "\"at_usec\":1,\"count\":1}]}";
    assert_int_equal(kernel_log_parse("state", old, strlen(old), &again, &err), 0);
    result = judge(&again, &scene);
    expect(&result, FAULT_XID_ISOLATE, -1, "SXid 20034");
    expect(&result, FAULT_XID_REBOOT, 0, "Xid 79");
}

static void test_lost_records_are_said(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log();
    /* Records before the first record read do not count as lost. */
    assert_false(take(&log, &scene, "6,10,1,-;a"));
    assert_true(take(&log, &scene, "6,500,1,-;b"));
    ProbeResult result = judge(&log, &scene);
    expect(&result, FAULT_LOG_OVERRUN, -1, "489 records");
    log.lost_is_news = false;
    (void)snprintf(log.unread, sizeof(log.unread), "may not be read");
    result = judge(&log, &scene);
    assert_int_equal(result.n_findings, 0); /* on this node an unreadable log is not a fault */
    assert_string_equal(result.note, "may not be read");
    log.is_needed = true;
    result = judge(&log, &scene);
    expect(&result, FAULT_LOG_UNREADABLE, -1, "may not be read");
}

static void test_memory_is_bounded(_unused_ void **state)
{
    KernelScene scene = new_scene();
    KernelLog log = new_log();
    char line[256];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(line, sizeof(line), "3,%d,1,-;NVRM: Xid (PCI:0000:3b:00): %d, new", i,
                       1000 + i);
        (void)take(&log, &scene, line);
    }
    assert_int_equal(log.n_events, KERNEL_LOG_EVENTS_MAX);
    assert_true(take(&log, &scene, "3,1000,1,-;NVRM: Xid (PCI:0000:3b:00): 79, off the bus"));
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(line, sizeof(line), "%032d", i);
        (void)fail_program(&log, &scene, line, 31);
    }
    assert_int_equal(log.n_programs, KERNEL_LOG_PROGRAMS_MAX);
    assert_string_equal(log.programs[KERNEL_LOG_PROGRAMS_MAX - 1].submission, line);
    _cleanup_free_ char *kept = NULL;
    assert_int_equal(kernel_log_format(&log, &kept), 0);
    assert_true(strlen(kept) < PROBE_STATE_MAX);
    bool has_worst = false;
    for (size_t i = 0; i < log.n_events; i++)
        has_worst |= log.events[i].xid.code == 79;
    assert_true(has_worst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_are_parsed),
        cmocka_unit_test(test_nothing_is_read_behind_a_record),
        cmocka_unit_test(test_codes_that_all_sources_call_fatal),
        cmocka_unit_test(test_severity_decides),
        cmocka_unit_test(test_lost_gpu_has_the_address_of_its_first_line),
        cmocka_unit_test(test_xid_45_names_its_cause),
        cmocka_unit_test(test_programs_that_fail_again_and_again),
        cmocka_unit_test(test_one_program_is_no_proof),
        cmocka_unit_test(test_settings_override_single_rows),
        cmocka_unit_test(test_wrong_rows_are_refused),
        cmocka_unit_test(test_restart_neither_replays_nor_forgets),
        cmocka_unit_test(test_restart_keeps_the_deciding_word),
        cmocka_unit_test(test_lost_records_are_said),
        cmocka_unit_test(test_memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
