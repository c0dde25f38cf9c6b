/* SPDX-License-Identifier: Apache-2.0 */
/* macro.h - the few macros that every file uses.
 *
 * Ownership: none. Units: bytes.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef NDEBUG
#error "asserts stay on in every build"
#endif

#define ELEMENTSOF(x) (sizeof(x) / sizeof((x)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CLAMP(x, lo, hi) ((x) < (lo) ? (lo) : (x) > (hi) ? (hi) : (x))
#define DIV_ROUND_UP(a, b) (((a) + (b)-1) / (b))
#define ROUND_UP(a, b) (DIV_ROUND_UP(a, b) * (b))

#define USEC_PER_SEC UINT64_C(1000000)
#define USEC_PER_MSEC UINT64_C(1000)
#define NSEC_PER_USEC UINT64_C(1000)
#define USEC_INFINITY UINT64_MAX

/* Marks a function that GPU kernels call, too. */
#ifdef __CUDACC__
#define _device_ __host__ __device__
#else
#define _device_
#endif

#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _unused_ __attribute__((unused))
#define _must_check_ __attribute__((warn_unused_result))
#define _noreturn_ __attribute__((noreturn))
