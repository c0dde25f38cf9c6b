/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - `sdctl job sample`: `sdtrainer sample` with the job's own spec. */
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "ctl/programs.h"

#include "base/file.h"

#include <string.h>

/* The spec's text in a file that only this user can read; the caller unlinks it. */
static int write_spec(const ModelJob *job, char *path, size_t size, Error *err)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(path, size, "%s/sdctl-%s-XXXXXX", folder ? folder : "/tmp", job->name);
    _cleanup_fd_ int fd = mkstemp(path);
    if (fd < 0) {
        int r = error_errno(err, -errno, "cannot make %s", path);
        *path = '\0';
        return r;
    }
    int r = fd_write_all(fd, job->spec.spec, strlen(job->spec.spec));
    return r < 0 ? error_errno(err, r, "cannot write %s", path) : 0;
}

int job_sample(const Arguments *a)
{
    Error err = ERROR_INIT;
    ModelJob *job;
    char spec[600] = "";
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r == 0)
        r = model_find_job(model, a->operand, &job, &err);
    if (r == 0 && !checkpoints_latest(&job->checkpoints))
        r = error_set(&err, -ENOENT, "job %s has no checkpoint yet", a->operand);
    if (r == 0)
        r = write_spec(job, spec, sizeof(spec), &err);
    if (r == 0)
        r = programs_run_trainer((const char *const[]){"sample", "--job", spec, "--out", a->out,
                                                       NULL},
                                 &err);
    if (*spec)
        (void)unlink(spec);
    if (r < 0)
        return ctl_fail(&err, r);
    if (r > 0)
        return CTL_FAILED; /* sdtrainer has said why */
    printf("job %s: samples of step %lld are in %s\n", a->operand,
           (long long)checkpoints_latest(&job->checkpoints)->step, a->out);
    return CTL_DONE;
}
