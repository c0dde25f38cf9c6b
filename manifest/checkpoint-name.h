/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint-name.h - the names of checkpoint folders and of metrics objects in a checkpoint store.
 *
 * Ownership: values. Units: steps.
 * Errors:    -EINVAL: the text is not exactly what the formatting function writes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { CHECKPOINT_FOLDER_MAX = 64, METRICS_KEY_MAX = 96 };

/* Names one attempt at one checkpoint. The names of its folder and of its metrics contain all four
 * numbers. */
typedef struct CheckpointName {
    int64_t step, owner, generation;
    uint32_t attempt; /* random, so that two writers do not use the same name */
} CheckpointName;

/* Writes the checkpoint's folder: "step-<step>-o<owner>-g<generation>-<attempt>". */
void checkpoint_name_format(const CheckpointName *name, char folder[CHECKPOINT_FOLDER_MAX]);
bool checkpoint_name_equal(const CheckpointName *a, const CheckpointName *b);
int checkpoint_name_parse(const char *folder, CheckpointName *ret);

/* Writes the metrics' key:
 * "metrics/metrics-<first>-<last>-o<owner>-g<generation>-<attempt>.jsonl". */
void metrics_key_format(const CheckpointName *name, int64_t first, int64_t last,
                        char key[METRICS_KEY_MAX]);
/* Sets ret_name->step to the last step of the range. */
int metrics_key_parse(const char *key, CheckpointName *ret_name, int64_t *ret_first);
