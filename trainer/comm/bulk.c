/* SPDX-License-Identifier: Apache-2.0 */
/* bulk.c - see bulk.h. */
#include "trainer/comm/bulk.h"

#include "base/clock.h"
#include "trainer/comm/rendezvous-client.h"
#include "trainer/comm/rendezvous-wire.h"

#include <string.h>

#define YES "yes"
#define NO "no"

static int set(const CommOptions *options, const char *name, const char *value, Error *err)
{
    int r = rendezvous_set(options->rendezvous, &options->key, name, value, strlen(value),
                           clock_boottime_usec() + options->connect_usec, err);
    if (r < 0 && options->unmet && options->rank != 0 && rendezvous_is_away(r))
        *options->unmet = 1; /* 1 + rank 0, which serves the store */
    return r;
}

static void offer_name(const CommOptions *options, int rank, char name[RENDEZVOUS_KEY_MAX])
{
    (void)snprintf(name, RENDEZVOUS_KEY_MAX, "g%lld/knows-bulk/%d",
                   (long long)options->key.generation, rank); /* name has room for the text */
}

int bulk_offer(const CommOptions *options, Error *err)
{
    char name[RENDEZVOUS_KEY_MAX];
    offer_name(options, options->rank, name);
    return set(options, name, YES, err);
}

/* Returns 1 if the rank knows of the bulk comm, 0 if not, or -errno. */
static int look(const CommOptions *options, int rank, Error *err)
{
    char name[RENDEZVOUS_KEY_MAX], value[RENDEZVOUS_KEY_MAX];
    size_t n;
    offer_name(options, rank, name);
    int r = rendezvous_look(options->rendezvous, &options->key, name, value, sizeof(value), &n,
                            clock_boottime_usec() + options->connect_usec, err);
    if (r == -ENOENT)
        return 0;
    if (r < 0 && options->unmet && options->rank != 0)
        *options->unmet = 1;
    return r < 0 ? r : 1;
}

/* On rank 0: reads what all ranks published, and publishes the answer. */
static int settle(const CommOptions *options, const char *name, Error *err)
{
    int r = 1;
    for (int rank = 0; rank < options->size && r == 1; rank++)
        r = look(options, rank, err);
    if (r < 0)
        return r;
    int set_r = set(options, name, r ? YES : NO, err);
    return set_r < 0 ? set_r : r;
}

/* Receives rank 0's answer. Returns 0, too, if rank 0 does not know of the bulk comm and so gives no answer. */
static int receive_answer(const CommOptions *options, const char *name, Error *err)
{
    char value[RENDEZVOUS_KEY_MAX];
    size_t n = 0;
    int r = look(options, 0, err);
    if (r <= 0)
        return r;
    r = rendezvous_get(options->rendezvous, &options->key, name, value, sizeof(value), &n,
                       clock_boottime_usec() + options->connect_usec, err);
    if (r < 0) {
        if (options->unmet)
            *options->unmet = 1;
        return r;
    }
    return n == strlen(YES) && memcmp(value, YES, n) == 0;
}

int bulk_open(const CommOptions *options, Comm **ret, Error *err)
{
    char name[RENDEZVOUS_KEY_MAX];
    (void)snprintf(name, sizeof(name), "g%lld/uses-bulk",
                   (long long)options->key.generation); /* name has room for the text */
    int r = options->rank == 0 ? settle(options, name, err) : receive_answer(options, name, err);
    *ret = NULL;
    return r <= 0 ? r : comm_open_gloo(options, ret, err);
}
