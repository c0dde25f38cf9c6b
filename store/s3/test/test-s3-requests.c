/* SPDX-License-Identifier: Apache-2.0 */
/* test-s3-requests.c - how s3:// asks: pauses between tries, threads that cannot begin, what is left of memory. */
#include "base/clock.h"
#include "base/test/testing.h"
#include "store/s3/s3-internal.h"
#include "store/s3/test/testing-libc.h"
#include "store/s3/test/testing-objects.h"

#include <string.h>

static Store *store;

static int n_before;

static int setup(_unused_ void **state)
{
    Error err = ERROR_INIT;
    bool promised;
    fake_reset();
    n_before = atomic_load(&n_allocated);
    assert_int_equal(store_open("s3://bucket/p", &store, &err), 0);
    assert_int_equal(store_puts_if_absent(store, &promised, &err), 0);
    return 0;
}

static int teardown(_unused_ void **state)
{
    store = store_free(store);
    fake_reset();
    atomic_store(&threads_left, -1);
    const int n_left = atomic_load(&n_allocated) - n_before;
    return n_left != 0 && n_left != 2; /* two texts: what was asked of the server is kept */
}

static int put(const char *key, StorePutFlags flags, Error *err)
{
    static char body[] = "x";
    const struct iovec part = {body, 1};
    return store_put(store, key, &part, 1, flags, err);
}

/* ---- pauses ---- */

/* Of any length up to 20 s before the sixteenth try; so 400 of them are 10 s each, within 2 s. */
static void a_pause_is_drawn_and_slept(_unused_ void **state)
{
    enum { N = 400 };
    const uint64_t before_usec = atomic_load(&paused_usec);
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < N; i++) {
        const uint64_t began_usec = atomic_load(&paused_usec);
        assert_int_equal(s3_pause(16, UINT64_MAX), 0);
        least = MIN(least, atomic_load(&paused_usec) - began_usec);
        most = MAX(most, atomic_load(&paused_usec) - began_usec);
    }
    assert_in_range((atomic_load(&paused_usec) - before_usec) / N, 8 * USEC_PER_SEC,
                    12 * USEC_PER_SEC);
    assert_true(least < USEC_PER_SEC);
    assert_in_range(most, 19 * USEC_PER_SEC, 20 * USEC_PER_SEC);
}

/* Nobody begins a pause that would be over after the deadline. */
static void a_pause_ends_before_its_deadline(_unused_ void **state)
{
    const uint64_t before_usec = atomic_load(&paused_usec);
    assert_int_equal(s3_pause(1, 0), -EHOSTUNREACH);
    assert_int_equal(s3_pause(1, clock_boottime_usec()), -EHOSTUNREACH);
    assert_int_equal(atomic_load(&paused_usec), before_usec);
    for (int i = 0; i < 400; i++) {
        const uint64_t deadline_usec = clock_boottime_usec() + 5 * USEC_PER_SEC;
        const uint64_t began_usec = atomic_load(&paused_usec);
        const int r = s3_pause(16, deadline_usec);
        assert_true(r == 0 || r == -EHOSTUNREACH);
        assert_true(atomic_load(&paused_usec) - began_usec <= (r == 0 ? 5 * USEC_PER_SEC : 0));
    }
}

/* ---- threads ---- */

/* Then who defers a put does it. */
static void without_a_thread_a_put_is_done_at_once(_unused_ void **state)
{
    Error err = ERROR_INIT;
    atomic_store(&threads_left, 0);
    assert_int_equal(put("a", STORE_DEFER, &err), 0);
    assert_true(fake_has("p/a"));
    assert_int_equal(put("a", STORE_DEFER | STORE_IF_ABSENT, &err), -EEXIST);
    assert_int_equal(store_flush(store, &err), 0);
    atomic_store(&threads_left, 1); /* one does all of them */
    for (char key[] = "b"; key[0] <= 'z'; key[0]++)
        assert_int_equal(put(key, STORE_DEFER, &err), 0);
    assert_int_equal(store_flush(store, &err), 0);
    assert_int_equal(fake_n_objects(), 26);
    assert_int_equal(atomic_load(&threads_left), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_pause_is_drawn_and_slept),
        TEST(a_pause_ends_before_its_deadline),
        TEST(without_a_thread_a_put_is_done_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
