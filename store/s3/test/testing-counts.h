/* SPDX-License-Identifier: Apache-2.0 */
/* testing-counts.h - the figures that an S3Client keeps of its requests.
 *
 * Ownership: values.
 * Units:     bytes, seconds.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "store/s3/client/client.h"

typedef struct S3Counts {
    uint64_t requests; /* begun */
    uint64_t retries;  /* tries of a request after its first */
    uint64_t slow_downs;
    uint64_t hedges, hedges_won; /* sent; and those whose answer came first */
    uint64_t bytes_in, bytes_out;
    uint64_t resigned;        /* tries for another clock, region, place or credentials */
    int64_t concurrency;      /* tries that may be under way now */
    int64_t clock_offset_sec; /* the server's clock minus ours; 0 until it was learned */
} S3Counts;

void s3_client_counts(const S3Client *client, S3Counts *ret);
