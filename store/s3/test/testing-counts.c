/* SPDX-License-Identifier: Apache-2.0 */
/* testing-counts.c - see testing-counts.h. */
#include "store/s3/test/testing-counts.h"

#include "store/s3/client/client-internal.h"

void s3_client_counts(const S3Client *client, S3Counts *ret)
{
    *ret = (S3Counts){
        .requests = atomic_load(&client->requests),
        .retries = atomic_load(&client->retries),
        .slow_downs = atomic_load(&client->slow_downs),
        .hedges = atomic_load(&client->hedges),
        .hedges_won = atomic_load(&client->hedges_won),
        .bytes_in = atomic_load(&client->bytes_in),
        .bytes_out = atomic_load(&client->bytes_out),
        .resigned = atomic_load(&client->resigned),
        .concurrency = atomic_load(&client->concurrency),
        .clock_offset_sec = atomic_load(&client->clock_offset_sec),
    };
}
