/* SPDX-License-Identifier: Apache-2.0 */
/* client.c - creates and frees the client, and holds functions that all its parts share. */
#include "etcd/etcd-internal.h"

#include <string.h>

enum {
    TIMEOUT_DEFAULT_SEC = 5,
    SILENCE_MIN_MSEC = 500,
};

static int open_all(Etcd *etcd, const EtcdOptions *options, Error *err)
{
    int r = endpoints_parse(etcd, options, err);
    if (r < 0)
        return r;
    if (!options->cert_file != !options->key_file || (options->cert_file && !options->ca_file))
        return error_set(err, -EINVAL,
                         "a client certificate needs cert_file, key_file and ca_file");
    if (!options->user != !options->password)
        return error_set(err, -EINVAL, "an etcd user needs a password and the other way round");
    etcd->endpoint_list = memory_text(options->endpoints);
    if (options->user) {
        etcd->user = memory_text(options->user);
        etcd->password = memory_text(options->password);
        secret_set_add(&etcd->secrets, etcd->password);
    }
    r = etcd_watchdog_open(etcd, err);
    if (r < 0)
        return r;

    const char *addresses[ETCD_ENDPOINTS_MAX];
    for (size_t i = 0; i < etcd->n_endpoints; i++)
        addresses[i] = etcd->endpoints[i].address;
    r = wire_new(etcd->event, options, addresses, etcd->n_endpoints, &etcd->wire, err);
    if (r < 0)
        return r;
    etcd->current = wire_draw(etcd->wire);
    assert(etcd->current < etcd->n_endpoints);
    return 0;
}

int etcd_new(sd_event *event, const EtcdOptions *options, Etcd **ret, Error *err)
{
    Etcd *etcd = memory_new(Etcd);
    *etcd = (Etcd){
        .n_references = 1,
        .event = sd_event_ref(event),
        .timeout_usec =
            options->timeout_usec ? options->timeout_usec : TIMEOUT_DEFAULT_SEC * USEC_PER_SEC,
    };
    /* An endpoint may be silent for a third of the timeout, so three endpoints can be tried within one deadline. */
    etcd->silence_usec = MAX(etcd->timeout_usec / 3, SILENCE_MIN_MSEC * USEC_PER_MSEC);
    int r = open_all(etcd, options, err);
    if (r < 0) {
        (void)etcd_free(etcd);
        return r;
    }
    *ret = etcd;
    return 0;
}

Etcd *etcd_ref(Etcd *etcd)
{
    assert(etcd->n_references > 0);
    etcd->n_references++;
    return etcd;
}

Etcd *etcd_unref(Etcd *etcd)
{
    assert(etcd->n_references > 0);
    if (--etcd->n_references == 0) {
        assert(etcd->closed);
        free(etcd);
    }
    return NULL;
}

int timer_new(Etcd *etcd, sd_event_time_handler_t handler, void *userdata, sd_event_source **ret)
{
    int r = sd_event_add_time(etcd->event, ret, CLOCK_BOOTTIME, 0, 1, handler, userdata);
    if (r >= 0)
        (void)sd_event_source_set_enabled(*ret, SD_EVENT_OFF); /* cannot fail for a new timer */
    return r;
}

Etcd *etcd_free(Etcd *etcd)
{
    if (!etcd)
        return NULL;
    assert(!etcd->closed);
    assert(!etcd->dispatching); /* etcd_free() must not be called from a callback */

    Rpc *rpc;
    etcd->closed = true;
    while (!LIST_EMPTY(&etcd->calls))
        (void)etcd_call_free(LIST_FIRST(&etcd->calls));
    LIST_FOREACH(rpc, &etcd->rpcs, list)
    (void)rpc_cancel(rpc);
    etcd->wire = wire_free(etcd->wire); /* wire_free() ends each rpc */
    assert(LIST_EMPTY(&etcd->rpcs));

    for (size_t i = 0; i < etcd->n_endpoints; i++)
        free(etcd->endpoints[i].address);
    sd_event_source_disable_unref(etcd->watchdog);
    sd_event_unref(etcd->event);
    free(etcd->endpoint_list);
    free(etcd->user);
    if (etcd->password)
        explicit_bzero(etcd->password, strlen(etcd->password));
    free(etcd->password);
    free(etcd->token);
    secret_set_clear(&etcd->secrets);
    return etcd_unref(etcd);
}
