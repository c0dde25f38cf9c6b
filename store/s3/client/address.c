/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - see address.h. */
#include "store/s3/client/address.h"

#include "base/memory.h"
#include "store/s3/protocol/sign.h"

#include <string.h>
#include <strings.h>

/* ---- regions ---- */

/* Whether the text may be a region. The check matters since the text comes from a server, and becomes part of the host
 * name to which signed requests are sent. */
static bool is_region(const char *region)
{
    return *region && strlen(region) < S3_REGION_MAX &&
           !region[strspn(region,
                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")];
}

void s3_region_cache_note(S3RegionCache *regions, const char *bucket, const char *region)
{
    if (!is_region(region))
        return;
    size_t at = 0, known = MIN(regions->n, (size_t)S3_PLACES);
    while (at < known && strcmp(regions->place[at].bucket, bucket) != 0)
        at++;
    if (at == known)
        at = regions->n++ % S3_PLACES;
    (void)snprintf(regions->place[at].bucket, sizeof(regions->place[at].bucket), "%s", bucket);
    (void)snprintf(regions->place[at].region, sizeof(regions->place[at].region), "%s", region);
}

const char *s3_region_cache_find(const S3RegionCache *regions, const S3Options *options,
                                 const char *bucket)
{
    for (size_t i = 0; i < MIN(regions->n, (size_t)S3_PLACES); i++)
        if (strcmp(regions->place[i].bucket, bucket) == 0)
            return regions->place[i].region;
    return options->region;
}

/* ---- addresses ---- */

/* Splits "scheme://authority/rest"; rest begins with '/', '?' or '#', or is empty. */
static int url_split(const char *url, S3Address *ret, const char **ret_rest, Error *err)
{
    S3Address address = {0};
    const char *authority;
    if (strncasecmp(url, "https://", 8) == 0) {
        address.tls = true;
        authority = url + 8;
    } else if (strncasecmp(url, "http://", 7) == 0) {
        authority = url + 7;
    } else {
        return error_set(err, -EINVAL, "%.200s: expected http:// or https://", url);
    }

    size_t n = strcspn(authority, "/?#");
    for (size_t i = 0; i < n; i++)
        if (authority[i] <= ' ' || authority[i] == 0x7f || strchr("@\\\"<>", authority[i]))
            return error_set(err, -EINVAL,
                             "the URL of an S3 server must be only a host and a port");
    if (n == 0 || n >= sizeof(address.host))
        return error_set(err, -EINVAL, "%.200s: no host that can be used", url);
    memcpy(address.host, authority, n);

    const char *own = address.tls ? ":443" : ":80";
    size_t n_own = strlen(own);
    if (n > n_own && strcmp(address.host + n - n_own, own) == 0)
        address.host[n - n_own] = '\0';
    *ret_rest = authority + n;
    *ret = address;
    return 0;
}

int s3_endpoint_check(const char *endpoint, Error *err)
{
    S3Address address;
    const char *rest;
    int r = url_split(endpoint, &address, &rest, err);
    if (r == 0 && *rest)
        return error_set(err, -EINVAL, "%.200s: an S3 endpoint has no path", endpoint);
    return r;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcasecmp(text + n - n_end, end) == 0;
}

static bool is_aws(const char *host)
{
    return ends_with(host, ".amazonaws.com") || ends_with(host, ".amazonaws.com.cn");
}

/* Returns whether the bucket's name can begin a host name. With TLS, the name must be a single label, because a
 * server's certificate covers only one label in front of the endpoint; without TLS, the name may be several labels. */
static bool bucket_makes_host(const char *bucket, bool tls)
{
    size_t n = strlen(bucket);
    if (n < 3 || n > 63 || bucket[0] == '-' || bucket[n - 1] == '-' || bucket[0] == '.' ||
        bucket[n - 1] == '.')
        return false;
    for (const char *p = bucket; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '-';
        if (!plain && (*p != '.' || tls || p[1] == '.'))
            return false;
    }
    return true;
}

/* Replaces "s3.amazonaws.com" or "s3.<options' region>.amazonaws.com" by the host for the bucket's region. */
static void host_follow_region(const S3Options *options, const char *region, char *host)
{
    char own[S3_HOST_MAX];
    static const char *const ends[] = {"amazonaws.com", "amazonaws.com.cn"};
    for (size_t i = 0; i < ELEMENTSOF(ends); i++) {
        (void)snprintf(own, sizeof(own), "s3.%s.%s", options->region, ends[i]);
        bool global = i == 0 && strcasecmp(host, "s3.amazonaws.com") == 0;
        if (strcmp(region, options->region) != 0 && (global || strcasecmp(host, own) == 0)) {
            (void)snprintf(host, S3_HOST_MAX, "s3.%s.%s", region, ends[i]);
            return;
        }
    }
}

int s3_address_make(const S3Options *options, const char *region, const char *bucket,
                    const char *key, S3Address *ret, Error *err)
{
    S3Address address;
    const char *rest;
    if (!is_region(region))
        return error_set(err, -EINVAL, "bucket %.100s: its region has no region's name", bucket);
    int r = url_split(options->endpoint, &address, &rest, err);
    if (r < 0)
        return r;
    host_follow_region(options, region, address.host);

    bool virtual = options->addressing == S3_ADDRESS_VIRTUAL ||
                   (options->addressing == S3_ADDRESS_AUTO && address.tls && is_aws(address.host) &&
                    bucket_makes_host(bucket, true));
    if (options->addressing == S3_ADDRESS_VIRTUAL && !bucket_makes_host(bucket, address.tls))
        return error_set(err, -EINVAL, "bucket %.100s: cannot be part of a host name", bucket);

    _cleanup_free_ char *encoded_key = sign_encode(key, true);
    _cleanup_free_ char *encoded_bucket = sign_encode(bucket, false);
    if (virtual) {
        char host[S3_HOST_MAX];
        if (snprintf(host, sizeof(host), "%s.%s", bucket, address.host) >= (int)sizeof(host))
            return error_set(err, -EINVAL, "bucket %.100s: too long a host name", bucket);
        memcpy(address.host, host, sizeof(host));
        address.path = memory_format("/%s", encoded_key);
    } else {
        address.path = memory_format("/%s%s%s", encoded_bucket, *key ? "/" : "", encoded_key);
    }
    *ret = address;
    return 0;
}

int s3_address_parse(const char *location, bool from_tls, S3Address *ret, Error *err)
{
    S3Address address;
    const char *rest;
    int r = url_split(location, &address, &rest, err);
    if (r < 0)
        return r;
    if (from_tls && !address.tls)
        return error_set(err, -EINVAL, "%.200s: leads from https to http", location);
    size_t n = strcspn(rest, "?#");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)rest[i] <= ' ' || (unsigned char)rest[i] >= 0x7f)
            return error_set(err, -EINVAL, "%.200s: not a URL", location);
    address.path = n > 0 ? memory_bytes(rest, n) : memory_text("/");
    *ret = address;
    return 0;
}

void s3_address_clear(S3Address *address)
{
    free(address->path);
    *address = (S3Address){0};
}
