/* SPDX-License-Identifier: Apache-2.0 */
/* testing-job.h - for tests: a folder with a small dataset, a tiny U-Net and a job that trains it.
 *
 * Ownership: testing_job_open() fills a TestingJob, testing_job_close() removes its folder.
 * Units:     12 steps of 4 grains of one sample; 24 samples, latents 4x8x8, text 7x16.
 * Errors:    a failed cmocka assertion.
 * Threads:   the main thread.
 */
#pragma once

#include "protocol/job.h"

typedef struct TestingJob {
    char folder[64];
    char *text; /* text of the job file */
} TestingJob;

void testing_job_open(TestingJob *ret);
void testing_job_close(TestingJob *job);
/* Returns the text of the same job with its checkpoints in <folder>/<name> and further keys in "train" (", \"key\":
 * value"). The caller frees it. */
char *testing_job_text(const TestingJob *job, const char *name, const char *train);
/* Like testing_job_text(), with this number of steps, of which every `every`-th is saved. */
char *testing_job_text_of(const TestingJob *job, const char *name, const char *train, int steps,
                          int every);
Job *testing_job_parse(const char *text);
