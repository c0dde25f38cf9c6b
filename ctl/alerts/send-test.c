/* SPDX-License-Identifier: Apache-2.0 */
/* send-test.c - `sdctl alerts test`: asks the leader for a page at every sink, which it resolves
 * at once, and waits for what the sinks said. */
#include "ctl/alerts/list.h"
#include "ctl/alerts/verbs.h"
#include "ctl/arguments.h"
#include "ctl/model.h"
#include "ctl/print.h"

#include <string.h>

enum { WAIT_SEC = 40 };
enum { ANSWERED = 1 };

typedef struct TestAsk {
    Model *model;
    RequestRecord request; /* with the answer, once it is there */
} TestAsk;

static int judge(TestAsk *ask)
{
    for (size_t i = 0; i < ask->model->n_requests; i++) {
        const RequestRecord *q = &ask->model->requests[i];
        if (strcmp(q->id, ask->request.id) == 0 && q->answer[0]) {
            ask->request = *q;
            return ANSWERED;
        }
    }
    return 0;
}

static int on_test_event(const EtcdEvent *event, void *userdata)
{
    TestAsk *ask = userdata;
    return event ? model_feed(ask->model, event) : judge(ask);
}

/* Whether every sink took it. */
static bool report(const TestAsk *ask, bool as_json)
{
    const RequestRecord *q = &ask->request;
    bool good = q->n_deliveries > 0;
    for (size_t i = 0; i < q->n_deliveries; i++)
        good &= q->deliveries[i].state == DELIVERY_RESOLVED;
    if (as_json) {
        print_json(json_pack("{s:b, s:s, s:o}", "ok", good, "answer", q->answer, "sinks",
                             deliveries_json(q->deliveries, q->n_deliveries)));
        return good;
    }
    for (size_t i = 0; i < q->n_deliveries; i++) {
        const Delivery *d = &q->deliveries[i];
        printf("%-20s %s%s\n", d->sink, d->state == DELIVERY_RESOLVED ? "accepted" : "FAILED: ",
               d->state == DELIVERY_RESOLVED ? "" : d->text);
    }
    printf("%s\n", q->answer);
    return good;
}

int alerts_test(const Arguments *a)
{
    Error err = ERROR_INIT;
    CtlClient client = {0};
    TestAsk ask = {0};
    const double timeout_sec = a->timeout_sec < 0 ? WAIT_SEC : a->timeout_sec;
    if (a->sink && strlen(a->sink) > SINK_NAME_MAX)
        return arguments_refuse(a->verb, "\"%s\" is longer than a sink's name", a->sink);
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = client_request(&client, "alerts-test", a->sink ? a->sink : "", &ask.request, &err);
    ask.model = model_new(client.cluster);
    if (r == 0)
        r = client_watch(&client, on_test_event, &ask, (uint64_t)(timeout_sec * 1e6), &err);
    client_close(&client);
    ask.model = model_free(ask.model);
    if (r == -ETIMEDOUT)
        (void)error_set(&err, r, "no leader has answered within %g s", timeout_sec);
    if (r != ANSWERED)
        return ctl_fail(&err, r);
    return report(&ask, a->json) ? CTL_DONE : CTL_FAILED;
}
