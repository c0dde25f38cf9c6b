/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - `sdctl node check`: makes the node run all its probes now. */
#include "cluster/keys.h"
#include "ctl/arguments.h"
#include "ctl/node/health.h"
#include "ctl/node/verbs.h"
#include "ctl/print.h"

/* Reads the health record, which the node writes together with its answer. Leaves *ret unset if there is no record. */
static int read_health(CtlClient *client, const char *node, HealthRecord *ret, bool *ret_there,
                       Error *err)
{
    char key[KEY_MAX];
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    *ret_there = false;
    int r = client_get(client, key_of(client->cluster, KEY_HEALTH, node, key), false, &answer, err);
    if (r < 0 || answer->n_kvs == 0)
        return r;
    r = health_record_decode(key, answer->kvs[0].value, answer->kvs[0].n_value, ret, err);
    *ret_there = r == 0;
    return r;
}

typedef struct CheckOptions {
    double timeout_sec; /* < 0: not given */
    bool clear;
} CheckOptions;

#define OPTIONS_STRUCT CheckOptions
static const CtlOption options[] = {
    OPTION_TIMEOUT,
    {"clear", 0, NULL, "it was reset: forget what only a reset would cure", TAKES(NOTHING, clear)},
};
const CtlOptions node_check_options = CTL_OPTIONS(options, .timeout_sec = -1);

int node_check(const Arguments *a)
{
    const CheckOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    CtlClient client = {0};
    RequestRecord request;
    NodeVerdict verdict = NODE_HEALTHY;
    HealthRecord health;
    bool there = false;
    double timeout_sec = o->timeout_sec < 0 ? HEALTH_CHECK_SEC : o->timeout_sec;
    int r = client_open_for_node(&a->client, a->operand, &client, &err);
    if (r == 0)
        r = health_request(&client, a->operand, "", o->clear, timeout_sec, &request, &verdict,
                           &err);
    if (r == 0)
        r = read_health(&client, a->operand, &health, &there, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);
    if (a->json) {
        print_json(json_pack("{s:s, s:s, s:o}", "node", a->operand, "answer", request.answer,
                             "health", health_json(there ? &health : NULL)));
    } else {
        printf("node %s: %s\n", a->operand, request.answer);
        health_print(there ? &health : NULL);
    }
    return verdict >= NODE_DRAIN ? CTL_FAILED : CTL_DONE;
}
