/* SPDX-License-Identifier: Apache-2.0 */
/* first-operands.c - see first.h: operands, the right results, and how long a call takes. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/number/bits.h"
#include "base/number/philox.h"
#include "kernels/test/first/first.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN = 1 << 18, CHECKED = 64, PIECES = 4, ROUNDS = 5, RUNS_MAX = 64, ROUND_USEC = 2000 };

#define PIECE_BYTES ((size_t)8 << 20)

/* ---- bf16 ---- */

double first_of_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

/* Converts values that are finite and not tiny. Rounds to nearest, ties to even. */
uint16_t first_to_bf16(double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/* ---- memory ---- */

void *first_memory(Device *device, size_t n_bytes)
{
    void *memory;
    Error err = ERROR_INIT;
    int r = device_allocate(device, n_bytes, &memory, &err);
    if (r < 0) {
        first_failed("device_allocate", r, err.text);
        _exit(EXIT_FAILURE);
    }
    return memory;
}

void first_wait(Device *device, const char *what)
{
    Error err = ERROR_INIT;
    int r = device_synchronise(device, &err);
    if (r < 0) {
        first_failed(what, r, err.text);
        _exit(EXIT_FAILURE);
    }
}

void first_operand(Device *device, size_t n, uint64_t seed, double scale, FirstOperand *ret)
{
    *ret = (FirstOperand){first_memory(device, n * 2), n, memory_zeroed(PATTERN, 2)};
    for (size_t i = 0; i < PATTERN; i++) {
        const uint16_t bits = (uint16_t)((philox4x32(seed, 0, i).word[0] & 0x80ffu) | 0x3e00u);
        ret->pattern[i] = first_to_bf16(first_of_bf16(bits) * scale);
    }
    for (size_t at = 0; at < n; at += PATTERN)
        device_upload(device, (char *)ret->memory + at * 2, ret->pattern,
                      MIN(n - at, (size_t)PATTERN) * 2);
}

void first_operand_free(Device *device, FirstOperand *operand)
{
    device_release(device, operand->memory);
    free(operand->pattern);
    *operand = (FirstOperand){NULL};
}

double first_value(const FirstOperand *operand, size_t i)
{
    return first_of_bf16(operand->pattern[i % PATTERN]);
}

/* ---- checks ---- */

static uint64_t hash_words(uint64_t hash, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (size_t i = n / 8 * 8; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t first_hash(Device *device, const void *memory, size_t n_bytes)
{
    const size_t piece = MIN(n_bytes, PIECE_BYTES);
    const size_t n_pieces = n_bytes <= piece ? 1 : PIECES;
    _cleanup_free_ unsigned char *host = malloc(MAX(piece, (size_t)1));
    uint64_t hash = 1;
    if (!host) {
        first_failed("malloc", -ENOMEM, "no memory for a copy of a result");
        _exit(EXIT_FAILURE);
    }
    first_wait(device, "the wait before a copy");
    for (size_t i = 0; i < n_pieces; i++) {
        const size_t at = n_pieces == 1 ? 0 : (n_bytes - piece) / (n_pieces - 1) * i / 4 * 4;
        device_download(device, host, (const char *)memory + at, piece);
        hash = hash_words(hash, host, piece);
    }
    first_wait(device, "a copy to the host");
    return hash;
}

static double read_element(Device *device, const void *result, DataType type, size_t i)
{
    const size_t n_bytes = data_type_bytes(type);
    float wide = 0;
    uint16_t narrow = 0;
    device_download(device, type == DATA_F32 ? (void *)&wide : &narrow,
                    (const char *)result + i * n_bytes, n_bytes);
    return type == DATA_F32 ? (double)wide : first_of_bf16(narrow);
}

void first_compare(Device *device, const void *result, DataType type, size_t n, FirstExpect expect,
                   const void *userdata, json_t *line)
{
    double error = 0, largest = 0, ratio = 0;
    bool finite = true;
    first_wait(device, "the wait before a check");
    for (size_t k = 0; k < CHECKED; k++) {
        const Philox draw = philox4x32(7, k, 0);
        const size_t i = k == 0   ? 0
                         : k == 1 ? n - 1
                                  : (((size_t)draw.word[0] << 32) | draw.word[1]) % n;
        const FirstSum want = expect(userdata, i);
        const double got = read_element(device, result, type, i), wrong = fabs(got - want.sum);
        /* The error of rounding the result to its type. The tolerance below also allows for sums in fp32 that
         * truncate. */
        const double own = type == DATA_F32 ? 0x1p-23 : 0x1p-8;
        if (!isfinite(got)) {
            finite = false;
            continue;
        }
        error = MAX(error, wrong);
        largest = MAX(largest, fabs(want.sum));
        const double rounded = (fabs(want.sum) + fabs(want.between)) * own;
        ratio = MAX(ratio, wrong / (rounded + want.sizes * 0x1p-16 + 1e-30));
    }
    first_wait(device, "the copies of a check");
    json_object_set_new(line, "error", first_number(error));
    json_object_set_new(line, "largest", first_number(largest));
    json_object_set_new(line, "ratio", first_number(ratio));
    json_object_set_new(line, "finite", json_boolean(finite));
}

/* ---- time ---- */

static int by_length(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the mean time of several runs; < 0: a run was refused. */
static double time_runs(Device *device, FirstCall call, void *userdata, int runs)
{
    const uint64_t began = clock_monotonic_usec();
    for (int i = 0; i < runs; i++)
        if (!call(userdata))
            return -1;
    first_wait(device, "a call that was timed");
    return (double)MAX(clock_monotonic_usec() - began, (uint64_t)1) / runs;
}

double first_usec(Device *device, FirstCall call, void *userdata)
{
    double rounds[ROUNDS];
    first_wait(device, "the wait before time is taken");
    double usec = time_runs(device, call, userdata, 1);
    if (usec < 0 || first_emulated())
        return usec;
    usec = time_runs(device, call, userdata, 1); /* the first run may load the kernel */
    const int runs = CLAMP((int)(ROUND_USEC / MAX(usec, 1.0)), 1, RUNS_MAX);
    for (int i = 0; i < ROUNDS; i++) {
        rounds[i] = time_runs(device, call, userdata, runs);
        if (rounds[i] < 0)
            return -1;
    }
    qsort(rounds, ROUNDS, sizeof(*rounds), by_length);
    return rounds[ROUNDS / 2];
}
