/* SPDX-License-Identifier: Apache-2.0 */
/* exactmath.h - elementary functions whose results do not depend on libm, CPU or compiler, to the last bit.
 *
 * libm's sin and exp give different bits with and without FMA, and between versions. Everything that
 * influences a weight (noise, initial weights, the noise schedule, the time embedding) uses these
 * functions. They use only +, -, *, / and sqrt of IEEE doubles, in a fixed order, compiled without
 * contraction.
 *
 * Ownership: none. Units: radians.
 * Errors:    none. An argument outside the ranges below is a bug of the caller; NaN gives NaN.
 */
#pragma once

#include "base/macro.h"

/* The source of a GPU kernel defines EXACT_FUNCTION and includes exactmath.c, to get its own copies of
 * the functions. */
#ifndef EXACT_FUNCTION
#define EXACT_FUNCTION
#ifdef __cplusplus
extern "C" {
#endif
double exact_exp(double x); /* error under 2 ulp; |x| > 708 clamps to 0 or infinity */
double exact_log(double x); /* x > 0, normal; error under 2 ulp */
double exact_sin(double x); /* |x| <= 1e5; absolute error under 1e-15 */
double exact_cos(double x); /* |x| <= 1e5; absolute error under 1e-15 */

/* Turns two random words into two independent draws of N(0, 1), rounded to float (Box-Muller). */
void exact_normal_pair(uint32_t word0, uint32_t word1, float ret[2]);
#ifdef __cplusplus
}
#endif
#else
#define EXACT_INTERNAL EXACT_FUNCTION
#endif
