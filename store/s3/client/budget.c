/* budget.c - see budget.h. */
#include "store/s3/client/budget.h"

#include "base/clock.h"

#include <errno.h>
#include <time.h>

struct BudgetWaiter {
    TAILQ_ENTRY(BudgetWaiter) link;
    pthread_cond_t turn;
    uint64_t n_bytes;
    bool served;
};

int budget_init(Budget *budget, uint64_t most)
{
    *budget = (Budget){.most = most};
    TAILQ_INIT(&budget->waiters);
    return -pthread_mutex_init(&budget->lock, NULL);
}

void budget_clear(Budget *budget)
{
    assert(TAILQ_EMPTY(&budget->waiters) && budget->used == 0);
    (void)pthread_mutex_destroy(&budget->lock); /* fails only while it is locked */
}

static bool fits(const Budget *budget, uint64_t n_bytes)
{
    return budget->used == 0 ||
           (budget->used <= budget->most && n_bytes <= budget->most - budget->used);
}

static void serve(Budget *budget)
{
    BudgetWaiter *first;
    while ((first = TAILQ_FIRST(&budget->waiters)) && fits(budget, first->n_bytes)) {
        budget->used += first->n_bytes;
        first->served = true;
        TAILQ_REMOVE(&budget->waiters, first, link);
        (void)pthread_cond_signal(&first->turn); /* cannot fail */
    }
}

/* Of a monotonic condition: the deadlines' own clock is none that a condition knows. */
static struct timespec monotonic_at(uint64_t deadline_usec)
{
    uint64_t now = clock_boottime_usec(), left = deadline_usec > now ? deadline_usec - now : 0;
    uint64_t at = clock_monotonic_usec() + MIN(left, UINT64_C(86400) * USEC_PER_SEC);
    return (struct timespec){.tv_sec = (time_t)(at / USEC_PER_SEC),
                             .tv_nsec = (long)(at % USEC_PER_SEC * NSEC_PER_USEC)};
}

int budget_take(Budget *budget, uint64_t n_bytes, uint64_t deadline_usec)
{
    BudgetWaiter me = {.n_bytes = n_bytes};
    pthread_condattr_t attributes;
    /* These cannot fail on Linux. */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&me.turn, &attributes);
    (void)pthread_condattr_destroy(&attributes);

    (void)pthread_mutex_lock(&budget->lock);
    TAILQ_INSERT_TAIL(&budget->waiters, &me, link);
    serve(budget);
    struct timespec at = monotonic_at(deadline_usec);
    int r = 0;
    while (!me.served && r == 0)
        r = pthread_cond_timedwait(&me.turn, &budget->lock, &at);
    if (!me.served) {
        TAILQ_REMOVE(&budget->waiters, &me, link);
        serve(budget); /* who waited behind it may fit */
    }
    (void)pthread_mutex_unlock(&budget->lock);
    (void)pthread_cond_destroy(&me.turn);
    return me.served ? 0 : -ETIMEDOUT;
}

bool budget_try(Budget *budget, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&budget->lock);
    bool may = TAILQ_EMPTY(&budget->waiters) && fits(budget, n_bytes);
    if (may)
        budget->used += n_bytes;
    (void)pthread_mutex_unlock(&budget->lock);
    return may;
}

void budget_give(Budget *budget, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&budget->lock);
    assert(budget->used >= n_bytes);
    budget->used -= n_bytes;
    serve(budget);
    (void)pthread_mutex_unlock(&budget->lock);
}
