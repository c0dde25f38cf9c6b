/* SPDX-License-Identifier: Apache-2.0 */
/* testing.h - included by every unit test: cmocka, with the headers that cmocka needs before it.
 *
 * Ownership: none. Units: none.
 * Errors:    a failed assertion ends the test.
 * Threads:   cmocka's assertions may run only in the main thread.
 */
#pragma once

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
