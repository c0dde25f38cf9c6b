/* budget.h - a bound on the bytes that several threads hold together.
 *
 * Ownership: a Budget is a value. budget_clear() runs when no thread waits and all bytes were given back.
 * Units:     bytes; deadlines are CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT the bytes did not become free until the deadline.
 * Threads:   any. Threads are served in the order of their calls, so that small requests do not starve a large one.
 */
#pragma once

#include "base/macro.h"

#include <pthread.h>
#include <sys/queue.h>

typedef struct BudgetWaiter BudgetWaiter;

typedef struct Budget {
    pthread_mutex_t lock;
    TAILQ_HEAD(, BudgetWaiter) waiters;
    uint64_t most; /* the bound */
    uint64_t
        used; /* bytes taken and not given back; more than most only while one thread has all of them */
} Budget;

int budget_init(Budget *budget, uint64_t most);
void budget_clear(Budget *budget);
/* Waits until n_bytes are free. More than `most` are given while nobody else holds any. */
int budget_take(Budget *budget, uint64_t n_bytes, uint64_t deadline_usec);
bool budget_try(Budget *budget, uint64_t n_bytes); /* does not wait; false: not free now */
void budget_give(Budget *budget, uint64_t n_bytes);
