/* SPDX-License-Identifier: Apache-2.0 */
/* store-wait.c - see store-wait.h. */
#include "prep/raw/store-wait.h"

#include "base/clock.h"
#include "base/log.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { PAUSE_USEC = 1000000, PAUSE_USEC_MAX = 30000000 };

/* Writers that were killed leave uploads and temporary files, which take space. These leftovers are removed when a
 * dataset is finished, and here, since no dataset can be finished in a full store. Leftovers younger than an hour may
 * belong to another running process. */
static const uint64_t LEFTOVER_USEC = 3600 * USEC_PER_SEC;

static void sweep(Store *store)
{
    Error err = ERROR_INIT;
    size_t n = 0;
    if (store_sweep(store, LEFTOVER_USEC, NULL, NULL, &n, &err) < 0)
        log_warning("what dead writers left stays: %s", err.text);
    else if (n > 0)
        log_info("removed %zu leftovers of dead writers", n);
}

static bool passes(const StoreWait *wait, Store *store, int r)
{
    char path[PATH_MAX];
    return r == -EHOSTUNREACH || r == -ENOSPC || r == -EDQUOT ||
           (r == -EACCES && wait->answered &&
            store_local_path(store, "x", path, sizeof(path), NULL) < 0);
}

bool store_wait(StoreWait *wait, Store *store, const char *what, int r, const Error *err)
{
    uint64_t now = clock_boottime_usec();
    if (!passes(wait, store, r)) {
        if (wait->since_usec)
            log_info("%s: goes on after %llu s", what,
                     (unsigned long long)((now - wait->since_usec) / USEC_PER_SEC));
        *wait = (StoreWait){.answered = wait->answered || r == 0 || r == -ENOENT || r == -EEXIST};
        return false;
    }
    if (!wait->since_usec)
        wait->since_usec = now;
    if (!wait->told_usec || now - wait->told_usec >= 60 * USEC_PER_SEC) {
        log_warning("%s: waiting: %s", what, err ? err->text : strerror(-r));
        wait->told_usec = now;
    }
    wait->pause_usec = CLAMP(2 * wait->pause_usec, PAUSE_USEC, PAUSE_USEC_MAX);
    (void)usleep((useconds_t)wait->pause_usec); /* if it is interrupted, the retry is early */
    return true;
}

int store_wait_get_range(StoreWait *wait, Store *store, const char *key, uint64_t offset, size_t n,
                         void *buffer, Error *err)
{
    int r;
    do
        r = store_get_range(store, key, offset, n, buffer, err);
    while (store_wait(wait, store, key, r, err));
    return r;
}

int store_wait_get(StoreWait *wait, Store *store, const char *key, size_t max_bytes, char **ret,
                   size_t *ret_bytes, Error *err)
{
    int r;
    do
        r = store_get(store, key, max_bytes, ret, ret_bytes, err);
    while (store_wait(wait, store, key, r, err));
    return r;
}

int store_wait_put(StoreWait *wait, Store *store, const char *key, const struct iovec *parts,
                   size_t n_parts, StorePutFlags flags, Error *err)
{
    int r;
    do {
        r = store_put(store, key, parts, n_parts, flags, err);
        if ((r == -ENOSPC || r == -EDQUOT) && !wait->since_usec)
            sweep(store);
    } while (store_wait(wait, store, key, r, err));
    return r;
}

int store_wait_list(StoreWait *wait, Store *store, const char *prefix, size_t max, bool versions,
                    StoreList *ret, Error *err)
{
    int r;
    do
        r = (versions ? store_list_versions : store_list)(store, prefix, max, ret, err);
    while (store_wait(wait, store, *prefix ? prefix : store_uri(store), r, err));
    return r;
}
