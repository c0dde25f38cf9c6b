/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-kernel-log.c - reads arbitrary bytes as records of the kernel's log, as the log's saved state, as the output
 * of a probe's child, and as a line of sysfs. */
#include "health/kernel-log.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "health/sysfs.h"
#include "health/verdict.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take_lines(const char *text, size_t n)
{
    static const PciAddress gpus[1] = {"0000:3b:00"};
    SubmissionId submissions[1] = {"a"};
    KernelScene scene = {.now_usec = 1,
                         .boot_usec = 1,
                         .gpus = gpus,
                         .n_gpus = 1,
                         .submissions = submissions,
                         .n_submissions = 1};
    KernelLog log = {0}, again;
    kernel_log_begin(&log, "boot");
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - (text + at)) : n - at;
        (void)kernel_log_take(&log, &scene, text + at, length);
        at += length + 1;
        scene.boot_usec +=
            UINT64_C(3600) * 1000000; /* each next line is an hour later and of another program */
        submissions[0][0] = (char)('a' + (submissions[0][0] + 1) % 8);
    }
    ProbeResult result;
    ProbeAnswer answer = {0};
    kernel_log_judge(&log, &scene, &result);
    verdict_weigh(result.findings, result.n_findings, 2, &answer);
    _cleanup_free_ char *kept = NULL;
    Error err = ERROR_INIT;
    assert(kernel_log_format(&log, &kept) == 0);
    if (log.next_seq <= INT64_MAX && log.lost <= INT64_MAX) {
        assert(kernel_log_parse("state", kept, strlen(kept), &again, &err) == 0);
        assert(again.n_events == log.n_events && again.next_seq == log.next_seq);
        assert(again.n_programs == log.n_programs);
        for (size_t i = 0; i < log.n_events; i++)
            assert(again.events[i].xid.word == log.events[i].xid.word &&
                   again.events[i].xid.kind == log.events[i].xid.kind);
        /* Records that were read before are not new. */
        size_t before = again.n_events;
        for (size_t at = 0; at < n;) {
            const char *end = memchr(text + at, '\n', n - at);
            size_t length = end ? (size_t)(end - (text + at)) : n - at;
            KernelRecord record;
            if (kernel_record_parse(text + at, length, &record) == 0 && record.seq < again.next_seq)
                assert(!kernel_log_take(&again, &scene, text + at, length));
            at += length + 1;
        }
        assert(again.n_events == before);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    KernelLog log;
    Error err = ERROR_INIT;
    take_lines(text, size);
    (void)kernel_log_parse("state", text, size, &log, &err);
    ProbeResult result;
    if (probe_result_parse(text, size, &result, &err) == 0)
        probe_result_clear(&result);
    ProbeContext context;
    if (probe_context_parse(text, size, &context, &err) == 0)
        probe_context_clear(&context);
    char line[SYSFS_LINE_MAX], pci[PCI_ADDRESS_MAX];
    uint64_t number;
    size_t n = MIN(size, sizeof(line) - 1);
    memcpy(line, text, n);
    line[n] = '\0';
    (void)sysfs_parse_number(line, &number);
    /* A row of the settings is refused, or is a row that the table could have. */
    XidOverrides overrides;
    _cleanup_json_ json_t *map = json_pack("{s:s}", line, "note");
    if (map && xid_overrides_read(map, &overrides, &err) == 0) {
        char name[XID_ROW_NAME_MAX];
        assert(overrides.n == 1 && strcmp(xid_row_name(&overrides.rows[0], name), line) == 0);
    }
    (void)pci_address_parse(text, size, pci);
    return 0;
}
