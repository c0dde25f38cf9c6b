/* SPDX-License-Identifier: Apache-2.0 */
/* testing-golden.h - reads the files that tests/golden/make-encoders.py wrote, and states how far results may differ
 * from them.
 *
 * Units: elements. Threads: the test's.
 * Ownership: golden_close() frees the Golden of golden_open(); tensors are borrowed from the Golden.
 * Errors:    a wrong or missing file fails the test.
 */
#pragma once

#include "base/test/testing.h"
#include "kernels/kernels.h"
#include "store/safetensors.h"

#include <jansson.h>

typedef struct Golden {
    char *file;
    Safetensors *tensors;
    json_t *header;
} Golden;

/* Makes a path below the source tree. */
void source_path(const char *name, char *ret, size_t size);
Golden golden_open(const char *path);
void golden_close(Golden *g);
const SafetensorsEntry *golden_entry(const Golden *g, const char *name);
const void *golden_tensor(const Golden *g, const char *name);
/* Returns the text of the config in the metadata. */
const char *golden_config(const Golden *g);
/* Returns max |a - b| / max |b|; NaN if any difference is NaN. */
double largest_error(const float *a, const float *b, size_t n);
Device *open_cpu(int threads);
/* Returns the most that largest_error() may be on the device that open_cpu() opened. */
double golden_tolerance(const Device *device);
