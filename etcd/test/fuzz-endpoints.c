/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-endpoints.c - any text as the list of etcd's endpoints is either refused with an error, or split into
 * entries that all are host:port. */
#include "etcd/etcd-internal.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void try_list(const char *text, const char *ca_file)
{
    Etcd etcd = {0};
    Error err = ERROR_INIT;
    int r = endpoints_parse(&etcd, &(EtcdOptions){.endpoints = text, .ca_file = ca_file}, &err);
    assert(r >= 0 || err.text[0]);
    assert(etcd.n_endpoints <= ETCD_ENDPOINTS_MAX);
    for (size_t i = 0; i < etcd.n_endpoints; i++) {
        char *address = etcd.endpoints[i].address;
        assert(strrchr(address, ':') && atoi(strrchr(address, ':') + 1) > 0);
        free(address);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    _cleanup_free_ char *text = malloc(n_bytes + 1);
    if (!text)
        return 0;
    memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    try_list(text, NULL);
    try_list(text, "/ca.pem");
    return 0;
}
