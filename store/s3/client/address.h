/* SPDX-License-Identifier: Apache-2.0 */
/* address.h - host and path of a request, and a cache of the regions of buckets that servers reported. Pure functions.
 *
 * Ownership: s3_address_clear() frees an S3Address's path. An S3RegionCache is a value.
 * Units:     none.
 * Errors:    -EINVAL an endpoint or bucket that makes no URL; -ENOMEM.
 * Threads:   any; an S3RegionCache belongs to one thread.
 * Source:    Amazon S3 User Guide, "Virtual hosting of buckets", "Bucket naming rules".
 */
#pragma once

#include "store/s3/settings/options.h"

enum { S3_HOST_MAX = 320, S3_REGION_MAX = 64, S3_PLACES = 64 };

/* The regions that replies named, for the last S3_PLACES buckets. */
typedef struct S3RegionCache {
    struct {
        char bucket[256], region[S3_REGION_MAX];
    } place[S3_PLACES];
    size_t n; /* number of regions noted since the start */
} S3RegionCache;

void s3_region_cache_note(S3RegionCache *regions, const char *bucket, const char *region);
/* Returns the region noted for the bucket, or else the options' region. */
const char *s3_region_cache_find(const S3RegionCache *regions, const S3Options *options,
                                 const char *bucket);

typedef struct S3Address {
    bool tls;
    char host[S3_HOST_MAX]; /* as in the Host header: without the scheme's default port */
    char *path;             /* encoded, with its leading slash */
} S3Address;

/* Checks that endpoint has the form "http://host" or "https://host:port". */
int s3_endpoint_check(const char *endpoint, Error *err);
/* Makes the address of an object. If the endpoint is AWS's own, the address has the region's host. */
int s3_address_make(const S3Options *options, const char *region, const char *bucket,
                    const char *key, S3Address *ret, Error *err);
/* Parses a Location header and drops its query. -EINVAL also for a redirect from https to http. */
int s3_address_parse(const char *location, bool from_tls, S3Address *ret, Error *err);
void s3_address_clear(S3Address *address);
