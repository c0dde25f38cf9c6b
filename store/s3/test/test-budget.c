/* test-budget.c - bytes that many take: never more than there are, in turn, and not for ever. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "store/s3/client/budget.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

static uint64_t in_a_minute(void) { return clock_boottime_usec() + 60 * USEC_PER_SEC; }

static void test_limits(_unused_ void **state)
{
    Budget budget;
    assert_int_equal(budget_init(&budget, 100), 0);
    assert_int_equal(budget_take(&budget, 60, in_a_minute()), 0);
    assert_true(budget_try(&budget, 40));
    assert_false(budget_try(&budget, 1));
    assert_int_equal(budget_take(&budget, 1, clock_boottime_usec() + 20000), -ETIMEDOUT);
    assert_int_equal(budget_take(&budget, 1, 0), -ETIMEDOUT);
    budget_give(&budget, 40);
    assert_int_equal(budget_take(&budget, 40, 0), 0); /* what fits waits for nothing */
    budget_give(&budget, 40);

    /* More than there is: alone. */
    assert_false(budget_try(&budget, 1000));
    budget_give(&budget, 60);
    assert_int_equal(budget_take(&budget, 1000, in_a_minute()), 0);
    assert_false(budget_try(&budget, 1));
    assert_false(budget_try(&budget, UINT64_MAX));
    budget_give(&budget, 1000);
    assert_int_equal(budget.used, 0);
    budget_clear(&budget);
}

typedef struct Taker {
    Budget *budget;
    pthread_t thread;
    uint64_t n;
    atomic_int *turns;
    int turn;
} Taker;

static void *take_once(void *userdata)
{
    Taker *t = userdata;
    assert(budget_take(t->budget, t->n, in_a_minute()) == 0);
    t->turn = atomic_fetch_add(t->turns, 1);
    budget_give(t->budget, t->n);
    return NULL;
}

/* Who wants all is not passed by those who want little. */
static void test_turns(_unused_ void **state)
{
    Budget budget;
    atomic_int turns = 0;
    assert_int_equal(budget_init(&budget, 100), 0);
    assert_true(budget_try(&budget, 50));
    assert_true(budget_try(&budget, 50));
    Taker all = {.budget = &budget, .n = 100, .turns = &turns};
    Taker little[4];
    assert_int_equal(pthread_create(&all.thread, NULL, take_once, &all), 0);
    for (bool waits = false; !waits; (void)usleep(100)) {
        (void)pthread_mutex_lock(&budget.lock);
        waits = !TAILQ_EMPTY(&budget.waiters);
        (void)pthread_mutex_unlock(&budget.lock);
    }
    for (size_t i = 0; i < ELEMENTSOF(little); i++) {
        little[i] = (Taker){.budget = &budget, .n = 10, .turns = &turns};
        assert_int_equal(pthread_create(&little[i].thread, NULL, take_once, &little[i]), 0);
    }
    budget_give(&budget, 50);
    assert_false(budget_try(&budget, 1));
    /* One who leaves lets others pass. */
    assert_int_equal(budget_take(&budget, 1, 0), -ETIMEDOUT);
    budget_give(&budget, 50);
    assert_int_equal(pthread_join(all.thread, NULL), 0);
    for (size_t i = 0; i < ELEMENTSOF(little); i++)
        assert_int_equal(pthread_join(little[i].thread, NULL), 0);
    assert_int_equal(all.turn, 0);
    assert_int_equal(budget.used, 0);
    budget_clear(&budget);
}

enum { MANY = 6, ROUNDS = 400, MOST = 1000 };

typedef struct Crowd {
    Budget budget;
    atomic_int_least64_t used;
    atomic_bool broken;
} Crowd;

static void *take_often(void *userdata)
{
    Crowd *crowd = userdata;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t n = 1 + (i * 389 + (int)(pthread_self() % 97)) % MOST;
        if (budget_take(&crowd->budget, (uint64_t)n, in_a_minute()) < 0 ||
            atomic_fetch_add(&crowd->used, n) + n > MOST)
            atomic_store(&crowd->broken, true);
        atomic_fetch_sub(&crowd->used, n);
        budget_give(&crowd->budget, (uint64_t)n);
    }
    return NULL;
}

static void test_crowd(_unused_ void **state)
{
    static Crowd crowd;
    pthread_t threads[MANY];
    assert_int_equal(budget_init(&crowd.budget, MOST), 0);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_often, &crowd), 0);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_false(atomic_load(&crowd.broken));
    assert_int_equal(crowd.budget.used, 0);
    budget_clear(&crowd.budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
