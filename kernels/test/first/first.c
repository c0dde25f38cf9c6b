/* SPDX-License-Identifier: Apache-2.0 */
/* first.c - gpu-first: collects from a GPU, in one minute, everything that can only be learned on a GPU.
 *
 *     gpu-first [--seconds N] [--emulated] [CASE...]
 *
 * Without a CASE all cases run, each in a separate process, for N seconds in all (60). Each line is one JSON object
 * with "case"; the last line of a case has "done", how it ended, and the end of its stderr. A case that was not begun
 * has "not_run". --emulated: the emulator replaces the GPU, and shapes are tiny. Exit: 0 if all cases ended by
 * themselves, whatever they found; 1 otherwise; 2 for a wrong usage; 3 if the headers of cuDNN and cuBLASLt were
 * missing when the program was built. */
#include <stdio.h>

#ifndef SDTRAIN_CUDA_LIBRARIES
int main(void)
{
    (void)fprintf(stderr, "gpu-first: there was no cudnn.h or no cublasLt.h when it was built\n");
    return 3;
}
#else

#include "base/clock.h"
#include "base/memory.h"
#include "kernels/test/first/first-children.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS = 60, SECONDS_MAX = 3600, CASES_MAX = 32 };

/* The only case of this process, the time when it must have ended, and whether the emulator replaces the GPU. */
static const FirstCase *own;
static uint64_t own_end;
static bool emulated;

/* ---- cases for tests of this program ---- */

static int test_abort(void)
{
    first_line(json_pack("{s:s}", "said", "before it aborts"));
    (void)fprintf(stderr, "this is why\n");
    abort();
}

static int test_hang(void)
{
    first_line(json_pack("{s:s}", "said", "before it hangs"));
    (void)pause(); /* only SIGKILL ends the process */
    return 0;
}

static int test_cut(void)
{
    (void)printf("a line of a library\n{\"case\":\"test-cut\",\"half");
    (void)fflush(stdout);
    _exit(0);
}

static const FirstCase cases[] = {
    /* clang-format off */
    {"machine", first_machine, 15, false, false},
    {"libraries", first_places, 15, false, false},
    {"numbers", first_numbers, 15, false, false},
    {"nccl", first_nccl, 12, false, false},
    {"nccl-two", first_nccl_two, 12, false, false},
    {"cublaslt-again", first_cublaslt_again, 12, false, false},
    {"cublaslt", first_cublaslt, 15, true, false},
    {"cudnn", first_cudnn, 15, true, false},
    {"attention", first_attention, 25, true, false},
    {"test-abort", test_abort, 5, false, true},
    {"test-hang", test_hang, 1, false, true},
    {"test-cut", test_cut, 5, false, true},
    /* clang-format on */
};

/* ---- for cases ---- */

bool first_emulated(void) { return emulated; }

double first_left_sec(void)
{
    const uint64_t now = clock_boottime_usec();
    return now >= own_end ? 0 : (double)(own_end - now) * 1e-6;
}

void first_line(json_t *line)
{
    _cleanup_json_ json_t *whole = json_pack("{s:s}", "case", own->name);
    int r = json_object_update(whole, line);
    assert(r == 0); /* cannot fail: both values are objects */
    json_decref(line);
    char *text = memory_given(json_dumps(whole, JSON_COMPACT | JSON_REAL_PRECISION(6)));
    flockfile(stdout);
    (void)printf("%s\n", text); /* a failure is ignored: the reader has closed the pipe */
    (void)fflush(stdout);
    funlockfile(stdout);
    free(text);
}

json_t *first_number(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

json_t *first_text(const char *text)
{
    if (!text)
        return json_null();
    char *copy = memory_text(text);
    for (char *p = copy; *p; p++)
        if ((unsigned char)*p >= 0x7f || ((unsigned char)*p < ' ' && *p != '\n' && *p != '\t'))
            *p = '?';
    json_t *value = json_string(copy);
    free(copy);
    return value;
}

void first_log(const char *variable, const char *value)
{
    if (setenv(variable, value, 0) < 0)
        first_failed("setenv", -errno, variable);
}

void first_failed(const char *api, int code, const char *text)
{
    first_line(json_pack("{s:s,s:i,s:o}", "failed", api, "code", code, "text", first_text(text)));
}

Device *first_device(DataType type)
{
    Device *device;
    Error err = ERROR_INIT;
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = type};
    int r = device_open(&options, &device, &err);
    if (r < 0) {
        first_failed("device_open", r, err.text);
        _exit(EXIT_FAILURE);
    }
    return device;
}

/* ---- main ---- */

static const FirstCase *case_of(const char *name)
{
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        if (cases[i].run && strcmp(cases[i].name, name) == 0)
            return &cases[i];
    return NULL;
}

static int run_one(const FirstCase *one, int limit_sec)
{
    own = one;
    own_end = clock_boottime_usec() + (uint64_t)limit_sec * USEC_PER_SEC;
    int r = one->run();
    if (r < 0)
        first_failed(one->name, r, strerror(-r));
    (void)fflush(stdout); /* writes what a library has printed */
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: gpu-first [--seconds N] [--emulated] [CASE...]\ncases:");
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        if (cases[i].run && !cases[i].hidden)
            (void)fprintf(stderr, " %s", cases[i].name);
    (void)fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    const FirstCase *chosen[CASES_MAX], *one = NULL;
    size_t n = 0;
    int seconds = SECONDS;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--emulated") == 0) {
            emulated = true;
        } else if (strcmp(argv[i], "--seconds") == 0 || strcmp(argv[i], "--limit") == 0) {
            seconds = atoi(value);
            i++;
        } else if (strcmp(argv[i], "--case") == 0 && (one = case_of(value))) {
            i++;
        } else if (n == CASES_MAX || !(chosen[n++] = case_of(argv[i]))) {
            return usage();
        }
    }
    if (seconds < 1 || seconds > SECONDS_MAX)
        return usage();
    if (one)
        _exit(run_one(one, seconds)); /* handlers of libraries at exit() may hang on a broken GPU */
    const bool all = n == 0;
    for (size_t i = 0; all && i < ELEMENTSOF(cases); i++)
        if (cases[i].run && !cases[i].hidden)
            chosen[n++] = &cases[i];
    return first_children_run(chosen, n, seconds, emulated) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
#endif
