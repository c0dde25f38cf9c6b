/* budget.h - bytes that many may take and give back, and that are never more than so many.
 *
 * Ownership: a Budget is a value; nobody waits any more when it is cleared.
 * Units:     bytes; deadlines are CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT.
 * Threads:   any. Who came first is served first, so that one who wants much is not passed for ever.
 */
#pragma once

#include "base/macro.h"

#include <pthread.h>
#include <sys/queue.h>

typedef struct BudgetWaiter BudgetWaiter;

typedef struct Budget {
    pthread_mutex_t lock;
    TAILQ_HEAD(, BudgetWaiter) waiters;
    uint64_t most, used;
} Budget;

int budget_init(Budget *budget, uint64_t most);
void budget_clear(Budget *budget);
/* More than `most` is given when nobody else has any. */
int budget_take(Budget *budget, uint64_t n_bytes, uint64_t deadline_usec);
bool budget_try(Budget *budget, uint64_t n_bytes);
void budget_give(Budget *budget, uint64_t n_bytes);
