/* SPDX-License-Identifier: Apache-2.0 */
/* health-record.c - see health-record.h. */
#include "daemon/health/health-record.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/number/hash.h"
#include "daemon/health/probes.h"
#include "daemon/world/exit.h"

#include <string.h>

enum { AGES_OLD_SEC = 300 };

static const NodeVerdict verdict_of[HEALTH_LEVELS] = {NODE_HEALTHY, NODE_SUSPECT, NODE_DRAIN,
                                                      NODE_ISOLATE};

/* Converts boottime to realtime, because other machines read the record. 0 stays 0. */
static uint64_t real_time_of(uint64_t boot_usec)
{
    uint64_t now = clock_boottime_usec();
    return boot_usec == 0 ? 0 : clock_realtime_usec() - (now - MIN(now, boot_usec));
}

static void fill_probe(const ProbeAnswer *answer, HealthProbeRecord *ret)
{
    (void)snprintf(ret->name, sizeof(ret->name), "%s", answer->name);
    (void)snprintf(ret->text, sizeof(ret->text), "%s", answer->text);
    exit_repair_text(ret->text);
    if (answer->level != HEALTH_OK)
        (void)snprintf(ret->cure, sizeof(ret->cure), "%s", fault_cure_text(answer->cure));
    ret->verdict = verdict_of[answer->level];
    ret->bad_slots = answer->bad_slots;
    ret->since_usec = answer->since_usec;
    ret->at_usec = real_time_of(answer->at_usec);
    ret->took_usec = answer->took_usec;
    ret->hangs = (int)MIN(answer->hangs, (unsigned)INT32_MAX);
    ret->failures = (int)MIN(answer->failures, (unsigned)INT32_MAX);
}

static void fill(const Probes *p, HealthRecord *ret)
{
    memset(ret, 0, sizeof(*ret)); /* clears the padding, too: content_of() hashes all bytes */
    ret->verdict = p->node_verdict;
    ret->bad_slots = p->verdict.bad_slots;
    ret->since_usec = p->verdict_since_usec;
    ret->at_usec = clock_realtime_usec();
    ret->left_usec = p->leaving ? ret->at_usec : 0;
    assert(p->n_answers <= ELEMENTSOF(ret->probes));
    ret->n_probes = p->n_answers;
    (void)snprintf(ret->node, sizeof(ret->node), "%s", p->needs.config->node);
    (void)snprintf(ret->machine_id, sizeof(ret->machine_id), "%s", p->needs.config->machine_id);
    (void)snprintf(ret->evidence, sizeof(ret->evidence), "%s", p->evidence);
    exit_repair_text(ret->evidence);
    memcpy(ret->cure, p->cure, sizeof(ret->cure));
    memcpy(ret->report, p->report, sizeof(ret->report));
    exit_repair_text(ret->report);
    memcpy(ret->report_id, p->report_id, sizeof(ret->report_id));
    for (size_t i = 0; i < p->n_answers; i++)
        fill_probe(&p->answers[i], &ret->probes[i]);
}

static void on_health_put(int r, const Error *err, _unused_ const EtcdTxnResult *result,
                          void *userdata)
{
    Probes *p = userdata;
    p->post = NULL; /* the call frees itself */
    if (r < 0) {
        log_debug("cannot put this node's health: %s", err->text);
        p->is_posted = false;
        if (p->leaving)
            p->needs.record_settled(p->needs.userdata);
        return;
    }
    if (!p->is_posted)
        health_record_update(p, true); /* the health changed during the write */
    if (p->leaving)
        p->needs.record_settled(p->needs.userdata);
}

/* Returns a hash of the record without its times and durations, and without the texts of healthy probes. */
static Hash content_of(const HealthRecord *record)
{
    static HealthRecord copy; /* static because it is large; only the loop thread calls this */
    memcpy(&copy, record, sizeof(copy));
    copy.at_usec = copy.left_usec = 0;
    for (size_t i = 0; i < copy.n_probes; i++) {
        HealthProbeRecord *probe = &copy.probes[i];
        probe->at_usec = probe->took_usec = 0;
        if (probe->verdict == NODE_HEALTHY)
            memset(probe->text, 0, sizeof(probe->text));
    }
    return hash_bytes(&copy, sizeof(copy));
}

void health_record_update(Probes *p, bool fresh)
{
    static HealthRecord record; /* static because it is large; only the loop thread calls this */
    uint64_t now = clock_boottime_usec();
    if (!p->is_ready || !*p->needs.has_name ||
        (p->leaving && !fresh)) /* the last record already says that the node leaves */
        return;
    fill(p, &record);
    Hash content = content_of(&record);
    if (!fresh && p->is_posted && hash_equal(content, p->posted) &&
        now < p->posted_usec + AGES_OLD_SEC * USEC_PER_SEC)
        return;
    if (p->post) {
        p->is_posted = false;
        return;
    }
    char key[KEY_MAX];
    _cleanup_free_ char *text = health_record_encode(&record, NULL);
    EtcdOp put = {.kind = ETCD_PUT,
                  .key = key_of(p->needs.config->cluster, KEY_HEALTH, p->needs.config->node, key),
                  .value = text};
    int r = etcd_txn(p->needs.etcd, NULL, 0, &put, 1, on_health_put, p, &p->post);
    if (r < 0)
        log_warning("cannot put this node's health: %s", strerror(-r));
    p->is_posted = r == 0;
    p->posted = content;
    p->posted_usec = now;
}
