/* SPDX-License-Identifier: Apache-2.0 */
/* testing-fork.c - linked into every unit test: in a child of fork(), a failed assertion aborts the child.
 *
 * Without this, cmocka would jump to the next test, and the child would run all tests that are left, beside its parent,
 * which may wait for the child for ever. */
#include "base/macro.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static char abort_variable[] = "CMOCKA_TEST_ABORT=0"; /* cmocka reads it when an assertion fails */

/* Changes the variable in place: setenv() in a child waits for ever if another thread held its lock. */
static void abort_in_child(void) { abort_variable[strlen(abort_variable) - 1] = '1'; }

__attribute__((constructor)) static void begin(void)
{
    if (!getenv("CMOCKA_TEST_ABORT") && putenv(abort_variable) == 0)
        (void)pthread_atfork(NULL, NULL, abort_in_child);
}
