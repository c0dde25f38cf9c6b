/* SPDX-License-Identifier: Apache-2.0 */
/* testing-counts.h - the statistics that an S3Client keeps of its requests.
 *
 * Ownership: values. Units: bytes, seconds. Errors: none. Threads: any.
 */
#pragma once

#include "store/s3/client/client.h"

typedef struct S3Counts {
    uint64_t requests; /* requests begun */
    uint64_t retries;  /* tries of a request after its first */
    uint64_t slow_downs;
    uint64_t hedges, hedges_won; /* hedges sent; hedges whose answer was first */
    uint64_t bytes_in, bytes_out;
    uint64_t resigned;        /* tries with a corrected clock, region, host or credentials */
    int64_t concurrency;      /* maximum number of concurrent tries at present */
    int64_t clock_offset_sec; /* the server's clock minus ours; 0 until it is known */
} S3Counts;

void s3_client_counts(const S3Client *client, S3Counts *ret);
