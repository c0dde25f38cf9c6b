/* SPDX-License-Identifier: Apache-2.0 */
/* health.c - see health.h. */
#include "ctl/node/health.h"

#include "base/clock.h"
#include "base/json/json-build.h"
#include "base/slots.h"
#include "cluster/keys.h"
#include "cluster/request.h"
#include "ctl/print.h"

/* ---- requesting a check ---- */

static int must_be_here(CtlClient *client, const char *node, Error *err)
{
    char key[KEY_MAX];
    _cleanup_(etcd_answer_freep) EtcdAnswer *record = NULL;
    int r = client_get(client, key_of(client->cluster, KEY_NODES, node, key), false, &record, err);
    if (r == 0 && record->n_kvs == 0)
        r = error_set(err, -ENOENT, "node %s is not here: nobody can check it", node);
    return r;
}

int health_request(CtlClient *client, const char *node, const char *machine_id, bool clear,
                   double timeout_sec, RequestRecord *ret, NodeVerdict *ret_verdict, Error *err)
{
    char key[KEY_MAX];
    bool done;
    RequestRecord request = {0};
    int r = must_be_here(client, node, err);
    if (r < 0)
        return r;
    (void)snprintf(request.machine_id, sizeof(request.machine_id), "%s", machine_id);
    r = client_request(client, clear ? "clear" : "check", node, &request, err);
    if (r < 0)
        return r;
    (void)key_of(client->cluster, KEY_REQUESTS, request.id, key);
    const EtcdOp remove = {.kind = ETCD_DELETE, .key = key};
    r = client_await(client, &request, timeout_sec, err);
    if (r == -ETIMEDOUT)
        (void)error_set(err, r, "node %s did not answer within %g s", node, timeout_sec);
    Error ignored = ERROR_INIT;
    /* If the deletion fails, the request is removed after an hour. */
    (void)client_txn(client, NULL, 0, &remove, 1, &done, &ignored);
    if (r < 0)
        return r;
    if (!request_verdict(&request, ret_verdict))
        return error_set(err, -EPROTO, "node %s answers \"%s\"", node, request.answer);
    *ret = request;
    return 0;
}

/* ---- output ---- */

static json_t *time_json(uint64_t usec)
{
    return usec ? json_real((double)usec * 1e-6) : json_null();
}

static json_t *probe_json(const HealthProbeRecord *p)
{
    char slots[SLOTS_TEXT_MAX];
    JsonBuild b = json_build();
    json_add_text(&b, "probe", p->name);
    json_add_text(&b, "verdict", node_verdict_names[p->verdict]);
    json_add_text(&b, "text", p->text);
    json_add_text(&b, "cleared_by", p->cure);
    json_add_text(&b, "bad_slots", slots_format(p->bad_slots, slots));
    json_add(&b, "since", time_json(p->since_usec));
    json_add(&b, "at", time_json(p->at_usec));
    json_add_real(&b, "took_s", (double)p->took_usec * 1e-6);
    json_add_int(&b, "hangs", p->hangs);
    json_add_int(&b, "failures", p->failures);
    return json_build_end(&b);
}

json_t *health_json(const HealthRecord *h)
{
    char slots[SLOTS_TEXT_MAX];
    if (!h)
        return json_null();
    json_t *probes = json_array();
    for (size_t i = 0; i < h->n_probes; i++)
        json_array_append_new(probes, probe_json(&h->probes[i]));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "verdict",
                     node_verdict_names[h->verdict], "evidence", h->evidence, "cleared_by", h->cure,
                     "bad_slots", slots_format(h->bad_slots, slots), "since",
                     time_json(h->since_usec), "at", time_json(h->at_usec), "probes", probes);
}

static void print_probe(const HealthProbeRecord *p, uint64_t now_usec)
{
    char age[SPAN_TEXT_BYTES] = "never";
    if (p->at_usec)
        (void)span_text((double)(now_usec - MIN(p->at_usec, now_usec)) * 1e-6, age);
    printf("  %-12s %-8s %-12s %s\n", p->name, node_verdict_names[p->verdict], age, p->text);
}

void health_print(const HealthRecord *h)
{
    char since[TIME_TEXT_BYTES], slots[SLOTS_TEXT_MAX];
    uint64_t now_usec = clock_realtime_usec();
    if (!h)
        return;
    if (h->verdict != NODE_HEALTHY)
        printf("  %s since %s, cleared by %s\n", node_verdict_names[h->verdict],
               date_text(h->since_usec, since), *h->cure ? h->cure : "its next good check");
    if (h->bad_slots)
        printf("  slots not to be used: %s\n", slots_format(h->bad_slots, slots));
    printf("  %-12s %-8s %-12s %s\n", "PROBE", "VERDICT", "AGE", "SAYS");
    for (size_t i = 0; i < h->n_probes; i++)
        print_probe(&h->probes[i], now_usec);
}
