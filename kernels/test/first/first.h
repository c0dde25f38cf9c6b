/* SPDX-License-Identifier: Apache-2.0 */
/* first.h - what the cases of gpu-first share: lines, a device, operands whose values the host knows, and time.
 *
 * gpu-first asks a GPU, and NVIDIA's libraries on it, what no machine without one can tell. Each case runs in a process
 * of its own, and says each answer at once as one line of JSON.
 *
 * Ownership: first_line() takes its line. Devices and memory live as long as the case's process.
 * Units:     elements, bytes, microseconds; seconds where a name says so.
 * Errors:    a case returns 0, whatever it found, or -errno where it could not look. A helper that cannot get something
 *            (a device, memory, a device that still works) ends the process, after a line that says why.
 * Threads:   first_line() is any thread's; the rest is the main thread's.
 */
#pragma once

#include "base/json/json.h"
#include "kernels/kernels.h"

typedef int (*FirstRun)(void);

int first_machine(void);
int first_places(void);
int first_cublaslt(void);
int first_cublaslt_again(void);
int first_cudnn(void);
int first_numbers(void);
int first_nccl(void);
int first_nccl_two(void);
/* Is in first-attention.c, where that file is there. */
__attribute__((weak)) int first_attention(void);

/* ---- lines ---- */

/* Whether the emulator stands for the GPU: shapes are to be tiny. */
bool first_emulated(void);
/* Seconds that the case still has. A case that adds work asks first: one that is late is killed. */
double first_left_sec(void);
/* Adds "case" and prints the line at once. */
void first_line(json_t *line);
/* A value for a line. JSON has no NaN and no infinity: those become texts. */
json_t *first_number(double value);
/* A value for a line, whatever bytes the text has; NULL becomes null. */
json_t *first_text(const char *text);
/* Switches a library's log of errors on, before the library is opened, unless somebody has set the variable. Lines of
 * the case quote the text that the library writes to stdout. */
void first_log(const char *variable, const char *value);
/* A line that says what failed, by which call and with which text. */
void first_failed(const char *api, int code, const char *text);

/* ---- a device and its memory ---- */

Device *first_device(DataType type);
/* Zeroed. */
void *first_memory(Device *device, size_t n_bytes);
/* Waits for all that was put on any stream. Ends the case where the device is broken; what: the call before it. */
void first_wait(Device *device, const char *what);

/* Random values in bf16, signs of both kinds and sizes from 1/8 to 1/2 or so, as activations have them. Element i is
 * known to the host without a copy. */
typedef struct FirstOperand {
    void *memory;
    size_t n; /* elements */
    uint16_t *pattern;
} FirstOperand;

/* scale: a power of two by which the values are multiplied. */
void first_operand(Device *device, size_t n, uint64_t seed, double scale, FirstOperand *ret);
void first_operand_free(Device *device, FirstOperand *operand);
double first_value(const FirstOperand *operand, size_t i);
/* A bf16's bits as a number, and a number's nearest bf16. */
double first_of_bf16(uint16_t bits);
uint16_t first_to_bf16(double value);

/* ---- checks ---- */

/* A number of four pieces of the memory of 8 MiB each, from its beginning to its end: equal bytes have equal ones. The
 * host makes it, so that no kernel of this project is needed. Waits for the device first. */
uint64_t first_hash(Device *device, const void *memory, size_t n_bytes);

/* The value that element i of a result should have, in double: the sum of its terms, and the sum of their sizes. */
typedef struct FirstSum {
    double sum, sizes;
    double between; /* a part that may have been rounded before the rest was added */
} FirstSum;
typedef FirstSum (*FirstExpect)(const void *userdata, size_t i);

/* Compares 64 of n elements (the first and the last are among them). The line gets "error", the largest difference;
 * "largest", the largest value that there should be; "ratio", the largest difference in units of what rounding explains
 * (above 1 a result is wrong); and "finite". */
void first_compare(Device *device, const void *result, DataType type, size_t n, FirstExpect expect,
                   const void *userdata, json_t *line);

/* ---- time ---- */

/* Puts one run on the device; false: it was refused. */
typedef bool (*FirstCall)(void *userdata);
/* The median of five rounds of as many runs as take 2 ms, by the host's clock, each with one wait. < 0: refused. */
double first_usec(Device *device, FirstCall call, void *userdata);
