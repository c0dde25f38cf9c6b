/* SPDX-License-Identifier: Apache-2.0 */
/* show.c - `sdctl job show`: the job file as it was submitted, byte for byte, to be started again. */
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"

#include <string.h>

int job_show(const Arguments *a)
{
    Error err = ERROR_INIT;
    ModelJob *job;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r == 0)
        r = model_find_job(model, a->operand, &job, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    const char *text = job->spec.spec;
    if (fwrite(text, 1, strlen(text), stdout) < strlen(text) || fflush(stdout) != 0)
        return ctl_fail(&err, error_errno(&err, -errno, "cannot write"));
    if (*job->spec.resume_uri) /* it is no part of the file */
        fprintf(stderr, "sdctl: it was started with --resume %s\n", job->spec.resume_uri);
    return CTL_DONE;
}
