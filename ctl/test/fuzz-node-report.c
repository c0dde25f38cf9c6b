/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-node-report.c - any text as a node's report for `sdctl doctor`. It gives an error or values within their bounds,
 * and all its texts can be printed on a terminal and in JSON. */
#include "ctl/doctor/findings.h"
#include "ctl/doctor/node-report.h"

#include "base/json/json.h"
#include "base/memory.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_bounds(const NodeReport *r)
{
    assert(r->uid >= 0 && r->uid <= UINT32_MAX && r->at_usec >= 0 && r->shm_bytes >= 0);
    assert(r->memlock_bytes >= -1 && r->nofile >= -1);
    assert(r->n_stores <= RECORD_URIS_MAX && r->n_peers <= RECORD_PEERS_MAX);
    for (size_t i = 0; i < r->n_stores; i++)
        assert(r->stores[i].r <= 0 && r->stores[i].r > -4096);
    for (size_t i = 0; i < r->n_peers; i++)
        assert(r->peers[i] > -4096);
}

static void show(const NodeReport *r)
{
    Findings f = {0};
    findings_add(&f, FINDING_WRONG, "nodes", r->user, NULL, "%s%s", r->error, r->version);
    findings_add(&f, FINDING_OK, "cgroups", "n", NULL, "%s", r->cgroup);
    for (size_t i = 0; i < r->n_stores; i++) /* a URI before the error makes some texts too long */
        findings_add(&f, FINDING_WRONG, "stores", "n", NULL, "file:///%0240d: %s", 0,
                     r->stores[i].error);
    _cleanup_json_ json_t *all = findings_json(&f);
    assert(json_array_size(all) == f.n);
    for (size_t i = 0; i < f.n; i++) {
        const json_t *row = json_array_get(all, i);
        const char *found = json_string_value(json_object_get(row, "found"));
        assert(found && strcmp(found, f.rows[i].found) == 0);
        assert(json_array_size(json_object_get(row, "where")) == f.rows[i].n_places);
        for (const char *p = found; *p; p++)
            assert((unsigned char)*p >= ' ' || *p == '\t');
    }
    findings_clear(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    _cleanup_free_ char *text = memory_bytes(data, n);
    NodeReport report;
    node_report_read(text, &report);
    if (!*report.error)
        check_bounds(&report);
    show(&report);
    return 0;
}
