/* fence.h - how long ranks may train without a word from etcd.
 *
 * A node that merely hears nothing trains on: nobody decides while etcd has no quorum, and the
 * commit guard protects the result. After fence_sec it stops what it runs.
 *
 * Ownership: values.
 * Units:     microseconds of one clock.
 * Errors:    none.
 * Threads:   any; fence_is_due() is pure.
 */
#pragma once

#include "base/macro.h"

typedef struct Manager Manager;

/* stood_still_usec: how long the observer itself did not run just now; it may have slept through
 * etcd's answers, which the loop brings right after. */
static inline bool fence_is_due(uint64_t now_usec, uint64_t contact_usec, uint64_t fence_usec,
                                uint64_t stood_still_usec)
{
    return stood_still_usec == 0 && now_usec > contact_usec && now_usec - contact_usec > fence_usec;
}
/* Called on every tick while ranks run. */
void fence_check(Manager *m, uint64_t now_usec, uint64_t stood_still_usec);
