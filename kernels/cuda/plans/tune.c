/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - see tune.h. */
#include "kernels/cuda/plans/tune.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number/philox.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#define TIME_VARIABLE "SDTRAIN_CUDA_TUNE_SEC"

enum {
    WARM_RUNS = 2,
    ROUNDS = 5,
    RUNS_MAX = 64,     /* the most runs in one round */
    ROUND_USEC = 2000, /* the shortest round, unless RUNS_MAX runs are shorter */
    /* A candidate whose warm run takes so many times as long as the fastest candidate is not timed. */
    HOPELESS = 3,
    SECONDS = 300, /* the time for tuning all operations of a device */
    SECONDS_MAX = 86400,
};

/* A slower algorithm with less workspace is chosen if its time is at most this multiple of the time of the fastest. */
static const double tolerated = 1.01;

int tune_operand(Device *device, size_t n_bytes, void **ret, Error *err)
{
    enum { PATTERN = 1 << 18 }; /* elements of the pattern */
    int r = device_allocate(device, n_bytes, ret, err);
    if (r < 0)
        return r;
    const size_t n = MIN(DIV_ROUND_UP(n_bytes, sizeof(uint16_t)), (size_t)PATTERN);
    _cleanup_free_ uint16_t *pattern = memory_zeroed(MAX(n, (size_t)1), sizeof(*pattern));
    for (size_t i = 0; i < n; i++)
        pattern[i] = (uint16_t)((philox4x32(1, 0, i).word[0] & 0x80ffu) | 0x3e00u);
    for (size_t at = 0; at < n_bytes; at += PATTERN * sizeof(*pattern))
        device_upload(device, (char *)*ret + at, pattern,
                      MIN(n_bytes - at, PATTERN * sizeof(*pattern)));
    return 0;
}

/* ---- time ---- */

static uint64_t bound_usec(const CudaCompute *c)
{
    const char *value = getenv(TIME_VARIABLE);
    if (c->tune_sec > 0)
        return (uint64_t)c->tune_sec * 1000000;
    char *end = NULL;
    const long seconds = value ? strtol(value, &end, 10) : SECONDS;
    if (value && (end == value || *end || seconds < 0 || seconds > SECONDS_MAX)) {
        log_warning(TIME_VARIABLE "=%.40s is not a number of seconds up to %d: %d it is", value,
                    SECONDS_MAX, SECONDS);
        return (uint64_t)SECONDS * 1000000;
    }
    return (uint64_t)seconds * 1000000;
}

/* Measures the mean time of several runs. Returns 1, 0 if the library refuses a run, or -errno. */
static int time_runs(const Tuning *t, int candidate, int runs, double *ret_usec, Error *err)
{
    Device *device = t->compute->device;
    bool runs_well = true;
    double usec;
    cuda_clock_mark(device, 0);
    for (int i = 0; i < runs && runs_well; i++)
        runs_well = t->start(t->userdata, candidate);
    cuda_clock_mark(device, 1);
    int r = cuda_clock_usec(device, &usec, err);
    if (r < 0)
        return error_prefix(err, r, "%s", t->operation);
    *ret_usec = usec / runs;
    return runs_well;
}

static int by_length(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int is_right(const Tuning *t, int candidate, Error *err)
{
    return t->check ? t->check(t->userdata, candidate, err) : 1;
}

/* Measures a candidate. fastest: the time of the fastest candidate before it, or 0 if it is the first. */
static int measure(const Tuning *t, int candidate, double fastest, Error *err)
{
    double rounds[ROUNDS], usec = 0;
    int r = is_right(t, candidate, err);
    if (r > 0)
        r = time_runs(t, candidate, 1, &usec, err);
    for (int i = 1; r > 0 && i < WARM_RUNS; i++) {
        double again;
        r = time_runs(t, candidate, 1, &again, err);
        usec = MIN(usec, again); /* the first run may load the kernel, and any run may be delayed */
    }
    if (r <= 0 || (fastest > 0 && usec > HOPELESS * fastest))
        return MIN(r, 0);
    const int runs = CLAMP((int)(ROUND_USEC / MAX(usec, 1.0)), 1, RUNS_MAX);
    for (int i = 0; r > 0 && i < ROUNDS; i++)
        r = time_runs(t, candidate, runs, &rounds[i], err);
    if (r <= 0)
        return r;
    qsort(rounds, ROUNDS, sizeof(*rounds), by_length);
    t->candidates[candidate].usec = rounds[ROUNDS / 2];
    return 0;
}

/* ---- the choice ---- */

enum {
    NONE = INT_MAX, /* no candidate runs */
    LATE_MAX = 2,   /* the most candidates after the time is over: the first may refuse to run */
};

static bool is_late(const CudaCompute *c, uint64_t now)
{
    return (c->tuned ? now - c->tune_began_usec : 0) >= bound_usec(c);
}

int tune_candidates_max(const CudaCompute *compute)
{
    return is_late(compute, clock_monotonic_usec()) ? LATE_MAX : TUNE_CANDIDATES_MAX;
}

static int best_of(const Tuning *t, double fastest)
{
    int best = NONE;
    for (int i = 0; i < t->n_candidates; i++) {
        const TuneCandidate *c = &t->candidates[i];
        if (c->usec >= 0 && c->usec <= fastest * tolerated &&
            (best == NONE || c->workspace_bytes < t->candidates[best].workspace_bytes))
            best = i;
    }
    return best;
}

static int choose_by_time(const Tuning *t, Error *err)
{
    double fastest = 0;
    for (int i = 0; i < t->n_candidates; i++) {
        const TuneCandidate *c = &t->candidates[i];
        int r = measure(t, i, fastest, err);
        if (r < 0)
            return r;
        if (c->usec >= 0 && (fastest <= 0 || c->usec < fastest))
            fastest = c->usec;
    }
    return best_of(t, fastest);
}

static int choose_first(const Tuning *t, Error *err)
{
    double usec;
    for (int i = 0; i < t->n_candidates; i++) {
        int r = is_right(t, i, err);
        if (r > 0)
            r = time_runs(t, i, 1, &usec, err);
        if (r != 0)
            return r < 0 ? r : i;
    }
    return NONE;
}

int tune_choose(const Tuning *t, Error *err)
{
    CudaCompute *c = t->compute;
    const uint64_t now = clock_monotonic_usec();
    assert(t->n_candidates >= 0 && t->n_candidates <= TUNE_CANDIDATES_MAX);
    if (c->tuned++ == 0)
        c->tune_began_usec = now;
    for (int i = 0; i < t->n_candidates; i++)
        t->candidates[i].usec = -1;
    const double seconds = (double)(now - c->tune_began_usec) * 1e-6;
    const bool late = is_late(c, now);
    const int best = late ? choose_first(t, err) : choose_by_time(t, err);
    if (best < 0)
        return best;
    if (best == NONE)
        return error_set(err, -EINVAL, "%s: none of %d algorithms runs%s", t->operation,
                         t->n_candidates, t->check ? " and gives what it should" : "");
    const TuneCandidate *chosen = &t->candidates[best];
    if (late)
        log_warning("plan of %s: the first that the library offers, untimed: tuning has taken its "
                    "%.0f s (%s)",
                    t->operation, seconds, c->tune_sec > 0 ? "train.plan_sec" : TIME_VARIABLE);
    else
        log_info("plan of %s: %.1f us, %" PRId64 " bytes of workspace, the best of %d (number %d, "
                 "after %.0f s)",
                 t->operation, chosen->usec, chosen->workspace_bytes, t->n_candidates, c->tuned,
                 seconds);
    return best;
}
