/* SPDX-License-Identifier: Apache-2.0 */
/* send-test.c - `sdctl alerts test`: asks the leader to send a notification to every sink and to resolve the
 * notification at once, and waits for the sinks' answers. */
#include "ctl/alerts/list.h"
#include "ctl/alerts/verbs.h"
#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/print.h"

#include <string.h>

enum { WAIT_SEC = 40 };

/* Prints the sinks' answers. Returns true when every sink accepted the notification. */
static bool report(const RequestRecord *q, bool as_json)
{
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

typedef struct AlertsTestOptions {
    double timeout_sec; /* < 0: not given */
    const char *sink;
} AlertsTestOptions;

#define OPTIONS_STRUCT AlertsTestOptions
static const CtlOption options[] = {
    OPTION_TIMEOUT,
    {"sink", 0, "NAME", "through this sink only", TAKES(TEXT, sink)},
};
const CtlOptions alerts_test_options = CTL_OPTIONS(options, .timeout_sec = -1);

int alerts_test(const Arguments *a)
{
    const AlertsTestOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    CtlClient client = {0};
    RequestRecord request = {0};
    const double timeout_sec = o->timeout_sec < 0 ? WAIT_SEC : o->timeout_sec;
    if (o->sink && strlen(o->sink) > SINK_NAME_MAX)
        return arguments_refuse(a->verb, "\"%s\" is longer than a sink's name", o->sink);
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = client_request(&client, "alerts-test", o->sink ? o->sink : "", &request, &err);
    if (r == 0)
        r = client_await(&client, &request, timeout_sec, &err);
    client_close(&client);
    if (r == -ETIMEDOUT)
        (void)error_set(&err, r, "no leader has answered within %g s", timeout_sec);
    if (r < 0)
        return ctl_fail(&err, r);
    return report(&request, a->json) ? CTL_DONE : CTL_FAILED;
}
