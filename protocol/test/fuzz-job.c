/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-job.c - the job file's parser on any bytes. */
#include "protocol/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error err = ERROR_INIT;
    Job *job = NULL;
    if (job_parse_any("fuzz", (const char *)data, n, &job, &err) < 0)
        assert(!job && *err.text);
    (void)job_free(job);
    return 0;
}
