/* address.h - where a bucket is asked for: host and path of a request, and what servers have taught us
 * about buckets that live elsewhere. Pure.
 *
 * Ownership: an S3Address's path is freed by s3_address_clear(). S3RegionCache are a value.
 * Units:     none.
 * Errors:    -EINVAL an endpoint or bucket that makes no URL; -ENOMEM.
 * Threads:   any; S3RegionCache belong to one thread.
 * Source:    Amazon S3 User Guide, "Virtual hosting of buckets", "Bucket naming rules".
 */
#pragma once

#include "store/s3/settings/options.h"

enum { S3_HOST_MAX = 320, S3_REGION_MAX = 64, S3_PLACES = 64 };

/* Regions that replies named. More buckets than this forget the first ones, and learn anew. */
typedef struct S3RegionCache {
    struct {
        char bucket[256], region[S3_REGION_MAX];
    } place[S3_PLACES];
    size_t n; /* ever learned */
} S3RegionCache;

void s3_region_cache_learn(S3RegionCache *regions, const char *bucket, const char *region);
/* The options' region when nothing was learned. */
const char *s3_region_cache_find(const S3RegionCache *regions, const S3Options *options,
                                 const char *bucket);

typedef struct S3Address {
    bool tls;
    char host[S3_HOST_MAX]; /* as the Host header says it: no port that is the scheme's own */
    char *path;             /* encoded, with its leading slash */
} S3Address;

/* "http://host", "https://host:port": whether an endpoint is one that can be used. */
int s3_endpoint_check(const char *endpoint, Error *err);
/* AWS's own endpoint follows the region. */
int s3_address_make(const S3Options *options, const char *region, const char *bucket,
                    const char *key, S3Address *ret, Error *err);
/* Of a Location header. -EINVAL also when it leads from TLS to none; its query is left out. */
int s3_address_parse(const char *location, bool from_tls, S3Address *ret, Error *err);
void s3_address_clear(S3Address *address);
