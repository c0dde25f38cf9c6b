/* SPDX-License-Identifier: Apache-2.0 */
/* first.h - shared by the cases of gpu-first: lines, a device, operands whose values the host knows, and time.
 *
 * gpu-first collects from a GPU, and from NVIDIA's libraries on it, facts that can only be learned on a GPU. Each case
 * runs in a separate process and prints each result at once as one line of JSON.
 *
 * Ownership: first_line() takes its line. Devices and memory exist until the case's process ends.
 * Units:     elements, bytes, microseconds; seconds where a name says so.
 * Errors:    a case returns 0, whatever it found, or -errno if it could not do its work. A helper that cannot get
 *            something (a device, memory, a device that still works) prints a line with the reason and ends the
 *            process.
 * Threads:   first_line() may be called from any thread, the rest from the main thread.
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
/* Defined in first-attention.c, if the build has that file. */
__attribute__((weak)) int first_attention(void);

/* ---- lines ---- */

/* Reports whether the emulator replaces the GPU: then shapes must be tiny. */
bool first_emulated(void);
/* Returns the seconds that the case still has. A case that adds work checks this first: a case that is late is
 * killed. */
double first_left_sec(void);
/* Adds "case" to the line and prints it at once. */
void first_line(json_t *line);
/* Makes a number for a line. JSON has no NaN and no infinity, which become texts. */
json_t *first_number(double value);
/* Makes a text for a line, for any bytes in the text; NULL becomes null. */
json_t *first_text(const char *text);
/* Switches on a library's log of errors, unless the environment already has the variable. Must be called before the
 * library is opened. Lines of the case quote the text that the library writes to stdout. */
void first_log(const char *variable, const char *value);
/* Prints a line about a failure: the call, its code and its text. */
void first_failed(const char *api, int code, const char *text);

/* ---- a device and its memory ---- */

Device *first_device(DataType type);
/* Allocates zeroed device memory. */
void *first_memory(Device *device, size_t n_bytes);
/* Waits for all work that was queued on any stream. Ends the case with a message if the device is broken. what: the
 * name in the message. */
void first_wait(Device *device, const char *what);

/* Random values in bf16 of both signs, with sizes from about 1/8 to 1/2, as in activations. The host knows element i
 * without a copy. */
typedef struct FirstOperand {
    void *memory;
    size_t n; /* elements */
    uint16_t *pattern;
} FirstOperand;

/* Makes an operand. scale: a power of two by which the values are multiplied. */
void first_operand(Device *device, size_t n, uint64_t seed, double scale, FirstOperand *ret);
void first_operand_free(Device *device, FirstOperand *operand);
double first_value(const FirstOperand *operand, size_t i);
/* Convert a bf16's bits to a number, and a number to the nearest bf16. */
double first_of_bf16(uint16_t bits);
uint16_t first_to_bf16(double value);

/* ---- checks ---- */

/* Returns a hash of four pieces of 8 MiB of the memory, from its beginning to its end; equal bytes have equal hashes.
 * The host computes the hash, so that no kernel of this project is needed. Waits for the device first. */
uint64_t first_hash(Device *device, const void *memory, size_t n_bytes);

/* The right value of an element of a result, in double: `sum` is the sum of the element's terms, `sizes` the sum of the
 * terms' absolute values. */
typedef struct FirstSum {
    double sum, sizes;
    double between; /* a partial sum that may have been rounded before the rest was added */
} FirstSum;
typedef FirstSum (*FirstExpect)(const void *userdata, size_t i);

/* Compares 64 of n elements, including the first and the last. The line gets "error", the largest difference;
 * "largest", the largest right value; "ratio", the largest difference in units of the difference that rounding explains
 * (above 1 a result is wrong); and "finite". */
void first_compare(Device *device, const void *result, DataType type, size_t n, FirstExpect expect,
                   const void *userdata, json_t *line);

/* ---- time ---- */

/* Queues one run on the device. Returns false if the run was refused. */
typedef bool (*FirstCall)(void *userdata);
/* Returns the median of five rounds by the host's clock; a round has as many runs as take 2 ms, and one wait. < 0:
 * a run was refused. */
double first_usec(Device *device, FirstCall call, void *userdata);
