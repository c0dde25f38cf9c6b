/* SPDX-License-Identifier: Apache-2.0 */
/* checks.c - see checks.h. */
#include "nn/test/checks.h"

#include "base/memory.h"
#include "base/number/hash.h"
#include "base/number/philox.h"
#include "kernels/test/emulator/emulated.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, SEED = 20261123 };

Checks checks;

void checks_must(int r, const Error *err)
{
    if (r >= 0)
        return;
    (void)fprintf(stderr, "check-operations: %s\n", err->text);
    exit(2);
}

/* ---- memory ---- */

size_t tensor_bytes(const Tensor *t) { return (size_t)t->n * data_type_bytes(t->type); }

void checks_poison(char *memory, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes; at += checks.poison_bytes)
        device_copy(checks.device, memory + at, checks.poison,
                    MIN(n_bytes - at, checks.poison_bytes));
}

Tensor tensor_new(int64_t n, DataType type)
{
    Tensor t = {.n = n, .type = type};
    Error err = ERROR_INIT;
    void *memory = NULL;
    checks_must(device_allocate(checks.device, tensor_bytes(&t) + GUARD, &memory, &err), &err);
    t.device = memory;
    checks_poison(t.device, tensor_bytes(&t) + GUARD);
    return t;
}

void tensor_forget(Tensor *t)
{
    free((void *)(uintptr_t)t->host);
    t->host = NULL;
}

void tensor_free(Tensor *t)
{
    tensor_forget(t);
    device_release(checks.device, t->device);
}

Tensor tensor_random(int64_t n, DataType type)
{
    Tensor t = tensor_new(n, type);
    char *host = memory_given(malloc(tensor_bytes(&t) + GUARD));
    uint64_t state = SEED + ++checks.draws;
    for (int64_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const float value = type == DATA_F32
                                ? (float)((int64_t)(state >> 40) - (1 << 23)) / (1 << 23)
                                : (float)((int)(state >> 56) - 128) / 128;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        if (type == DATA_F32)
            ((float *)(void *)host)[i] = value;
        else
            ((uint16_t *)(void *)host)[i] = (uint16_t)(bits >> 16);
    }
    device_upload(checks.device, t.device, host, tensor_bytes(&t));
    t.host = host;
    return t;
}

static const void *tensor_host(Tensor *t)
{
    if (!t->host) {
        void *copy = memory_given(malloc(tensor_bytes(t) + GUARD));
        device_download(checks.device, copy, t->device, tensor_bytes(t) + GUARD);
        t->host = copy;
    }
    return t->host;
}

void tensor_set(Tensor *t, int64_t stride, int64_t from, int64_t to, int64_t period, float value)
{
    char *host = (char *)(uintptr_t)tensor_host(t);
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    assert(t->type == DATA_F32 || (bits & 0xffff) == 0);
    for (int64_t row = 0; row < t->n; row += stride)
        for (int64_t i = row + from; i < row + to; i += period)
            if (t->type == DATA_F32)
                ((float *)(void *)host)[i] = value;
            else
                ((uint16_t *)(void *)host)[i] = (uint16_t)(bits >> 16);
    device_upload(checks.device, t->device, host, tensor_bytes(t));
}

double tensor_value(Tensor *t, int64_t i)
{
    const void *host = tensor_host(t);
    float value;
    assert(i >= 0 && i < t->n);
    if (t->type == DATA_F32)
        return (double)((const float *)host)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)host)[i] << 16;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* ---- one pass ---- */

int64_t checks_draw(int64_t n)
{
    const uint64_t bits = philox4x32(SEED, 1, ++checks.draws).word[0];
    return (int64_t)(bits * (uint64_t)n >> 32);
}

static Hash run_once(const Pass *p, bool *ret_guarded)
{
    checks_poison(p->out->device, tensor_bytes(p->out));
    tensor_forget(p->out);
    p->run(p->context);
    const unsigned char *host = tensor_host(p->out);
    *ret_guarded = true;
    for (size_t i = 0; i < GUARD; i++)
        *ret_guarded &= host[tensor_bytes(p->out) + i] == 0xff;
    return hash_bytes(host, tensor_bytes(p->out));
}

void checks_run(const Pass *p)
{
    static int64_t at[SAMPLES];
    static double want[SAMPLES];
    Error err = ERROR_INIT;
    bool guarded[2];
    const Hash first = run_once(p, &guarded[0]), second = run_once(p, &guarded[1]);
    checks_must(device_synchronise(checks.device, &err), &err);
    const int n = p->sample(p->context, at, want);
    double distance = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        const double difference = tensor_value(p->out, at[i]) - want[i];
        distance += difference * difference;
        norm += want[i] * want[i];
    }
    const double error = sqrt(distance) / sqrt(norm);
    const bool same = hash_equal(first, second), kept = guarded[0] && guarded[1];
    const bool right = same && kept && error <= checks.tolerance; /* false for NaN */
    char hash[HASH_TEXT_BYTES];
    char number[32] = "null"; /* JSON has no NaN */
    if (isfinite(error))
        (void)snprintf(number, sizeof(number), "%.3g", error);
    (void)printf(
        "{\"operation\":\"%s\",\"pass\":\"%s\",\"error\":%s,\"results\":%d,\"twice_equal\":%s,"
        "\"nothing_behind\":%s,\"hash\":\"%s\",\"right\":%s}\n",
        p->operation, p->name, number, n, same ? "true" : "false", kept ? "true" : "false",
        hash_format(first, hash), right ? "true" : "false");
    (void)fflush(stdout);
    checks.n_passes++;
    checks.n_wrong += !right;
    tensor_forget(p->out);
}

void *checks_allocate(size_t n_bytes)
{
    Error err = ERROR_INIT;
    void *memory = NULL;
    checks_must(device_allocate(checks.device, MAX(n_bytes, (size_t)1), &memory, &err), &err);
    return memory;
}

void checks_open(const char *name, DataType type, bool tunes)
{
    const DeviceOptions options = {.kind = strcmp(name, "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU,
                                   .threads = 1,
                                   .type = type,
                                   .tune = tunes};
    Error err = ERROR_INIT;
    checks_must(strcmp(name, "emulated") == 0 ? emulated_device_open(&options, &checks.device, &err)
                                              : device_open(&options, &checks.device, &err),
                &err);
    checks.type = type;
    checks.tolerance = type == DATA_F32 ? 1e-5 : 1e-2;
    checks.poison_bytes = 16 << 20;
    checks.poison = checks_allocate(checks.poison_bytes);
    _cleanup_free_ char *all = memory_given(malloc(checks.poison_bytes));
    memset(all, 0xff, checks.poison_bytes);
    device_upload(checks.device, checks.poison, all, checks.poison_bytes);
}
