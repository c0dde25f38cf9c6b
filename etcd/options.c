/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - parses the list of a client's endpoints. */
#include "etcd/etcd-internal.h"

#include <string.h>

static int endpoint_check(const char *item, const char *address, bool tls, bool https, bool http,
                          Error *err)
{
    const char *colon = strrchr(address, ':');
    char *end = NULL;

    if (!colon || colon == address || (strchr(address, ':') != colon && address[0] != '['))
        return error_set(err, -EINVAL, "etcd endpoint \"%s\": want host:port", item);
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end || port == 0 || port > 65535)
        return error_set(err, -EINVAL, "etcd endpoint \"%s\": \"%s\" is not a port", item,
                         colon + 1);
    if (strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]%") !=
        strlen(address))
        return error_set(err, -EINVAL, "etcd endpoint \"%s\": want host:port", item);
    if (https && !tls)
        return error_set(err, -EINVAL, "etcd endpoint \"%s\" wants TLS: set SDTRAIN_ETCD_CA", item);
    if (http && tls)
        return error_set(err, -EINVAL,
                         "etcd endpoint \"%s\" is plain but SDTRAIN_ETCD_CA asks for TLS", item);
    return 0;
}

int endpoints_parse(Etcd *etcd, const EtcdOptions *options, Error *err)
{
    if (!options->endpoints || !*options->endpoints)
        return error_set(err, -EINVAL, "no etcd endpoint: set SDTRAIN_ETCD=host:port,...");

    _cleanup_free_ char *text = memory_text(options->endpoints);
    char *position = text, *item;
    while ((item = strsep(&position, ","))) {
        item += strspn(item, " ");
        for (size_t n = strlen(item); n > 0 && (item[n - 1] == ' ' || item[n - 1] == '/'); n--)
            item[n - 1] = 0;
        bool http = !strncmp(item, "http://", 7), https = !strncmp(item, "https://", 8);
        const char *address = item + (http ? 7 : https ? 8 : 0);

        int r = endpoint_check(item, address, options->ca_file, https, http, err);
        if (r < 0)
            return r;
        if (etcd->n_endpoints == ETCD_ENDPOINTS_MAX)
            return error_set(err, -E2BIG, "more than %d etcd endpoints", ETCD_ENDPOINTS_MAX);
        etcd->endpoints[etcd->n_endpoints++].address = memory_text(address);
    }
    return 0;
}
