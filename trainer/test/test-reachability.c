/* SPDX-License-Identifier: Apache-2.0 */
/* test-reachability.c - a machine that refuses a connection is reached, and an unknown name is reported. */
#include "base/test/testing.h"

#include "base/macro.h"
#include "trainer/reachability.h"

#include <errno.h>

static void who_refuses_is_there(_unused_ void **state)
{
    Reach peers[4] = {{.address = "127.0.0.1"},
                      {.address = "nobody.invalid"},
                      {.address = "127.1.2.3"},
                      {.address = "300.1.1.1"}};
    reachability_check(peers, 4);
    assert_int_equal(peers[0].r, 0);
    assert_true(peers[0].took_usec > 0);
    assert_int_equal(peers[1].r, -EADDRNOTAVAIL);
    assert_int_equal(peers[2].r, 0);
    assert_int_equal(peers[3].r, -EADDRNOTAVAIL);
    reachability_check(peers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_refuses_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
