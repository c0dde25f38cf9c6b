/* SPDX-License-Identifier: Apache-2.0 */
/* testing.h - what every unit test includes: cmocka with the headers that it wants first.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    a failed assertion ends the test.
 * Threads:   cmocka asserts belong to the main thread.
 */
#pragma once

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
