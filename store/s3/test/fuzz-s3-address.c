/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-s3-address.c - any text as a redirect's Location and, split at its line ends, as endpoint, region, bucket and
 * key is either refused, or gives a host that fits and a path that begins with "/"; neither host nor path can end the
 * request's line. The text is also tried as a store's URI and as a key. */
#include "store/backend.h"
#include "store/s3/client/address.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check(S3Address *address)
{
    assert(memchr(address->host, '\0', sizeof(address->host)) && address->host[0]);
    assert(address->path && address->path[0] == '/');
    for (const char *p = address->host; *p; p++)
        assert((unsigned char)*p > ' ' && *p != 127 && *p != '/' && *p != '@');
    for (const char *p = address->path; *p; p++)
        assert((unsigned char)*p > ' ' && *p != 127);
    s3_address_clear(address);
}

static void try_parts(char *text)
{
    char *rest = text;
    char *endpoint = strsep(&rest, "\n"), *region = strsep(&rest, "\n");
    char *bucket = strsep(&rest, "\n"), *key = rest;
    if (!key || s3_endpoint_check(endpoint, NULL) < 0)
        return;
    static S3Options options;
    if (!options.region) {
        int r = s3_options_load(&options, NULL);
        assert(r == 0);
    }
    S3Options mine = options;
    mine.endpoint = endpoint;
    S3Address address = {0};
    if (s3_address_make(&mine, region, bucket, key, &address, NULL) == 0)
        check(&address);
    S3RegionCache regions = {0};
    s3_region_cache_note(&regions, bucket, region);
    assert(s3_region_cache_find(&regions, &mine, bucket));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    _cleanup_free_ char *text = malloc(n_bytes + 1);
    if (!text)
        return 0;
    memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    S3Address address = {0};
    for (int tls = 0; tls <= 1; tls++)
        if (s3_address_parse(text, tls, &address, NULL) == 0) {
            assert(!tls || address.tls);
            check(&address);
        }
    (void)store_key_is_good(text); /* checks only that the call is safe */
    if (strncmp(text, "s3://", 5) == 0) {
        Store *store = NULL;
        if (store_open(text, &store, NULL) == 0)
            assert(strncmp(store_uri(store), "s3://", 5) == 0);
        store = store_free(store);
    }
    try_parts(text);
    return 0;
}
