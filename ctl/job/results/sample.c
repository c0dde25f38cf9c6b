/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - `sdctl job sample`: `sdtrainer sample` with the job's own spec. */
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "ctl/programs.h"

#include "base/file.h"

#include <string.h>
#include <sys/mman.h>

/* The spec's text in a file that sdtrainer inherits: it has no name that an interrupt could leave behind. */
static int write_spec(const ModelJob *job, int *ret_fd, Error *err)
{
    *ret_fd = memfd_create("job", 0);
    if (*ret_fd < 0)
        return error_errno(err, -errno, "cannot keep the job file of %s", job->name);
    int r = fd_write_all(*ret_fd, job->spec.spec, strlen(job->spec.spec));
    return r < 0 ? error_errno(err, r, "cannot keep the job file of %s", job->name) : 0;
}

/* The words of `sdtrainer sample`, ended by NULL. */
typedef struct Words {
    const char *items[PROGRAMS_ARGUMENTS_MAX + 1];
    char samples[16], seed[16];
    int n;
} Words;

static void add(Words *w, const char *option, const char *value)
{
    if (!value)
        return;
    assert(w->n + 2 <= PROGRAMS_ARGUMENTS_MAX); /* 64 captions at most */
    w->items[w->n++] = option;
    w->items[w->n++] = value;
}

static const char *format(int number, char ret[16])
{
    (void)snprintf(ret, 16, "%d", number);
    return number < 0 ? NULL : ret;
}

static void list_words(const Arguments *a, const char *spec, Words *ret)
{
    *ret = (Words){.items = {"sample"}, .n = 1};
    add(ret, "--job", spec);
    add(ret, "--out", a->out);
    add(ret, "--pictures", a->pictures);
    add(ret, "--model", a->model);
    add(ret, "--samples", format(a->samples, ret->samples));
    add(ret, "--seed", format(a->seed, ret->seed));
    for (int i = 0; i < a->captions.n; i++)
        add(ret, "--caption", a->captions.items[i]);
}

int job_sample(const Arguments *a)
{
    Error err = ERROR_INIT;
    ModelJob *job;
    char spec[40];
    _cleanup_fd_ int fd = -EBADF;
    Words words;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r == 0)
        r = model_find_job(model, a->operand, &job, &err);
    if (r == 0 && !checkpoints_latest(&job->checkpoints))
        r = error_set(&err, -ENOENT,
                      "job %s has no checkpoint yet; sdctl job checkpoint %s has it save one",
                      a->operand, a->operand);
    if (r == 0)
        r = write_spec(job, &fd, &err);
    if (r == 0) {
        (void)snprintf(spec, sizeof(spec), "/proc/self/fd/%d", fd);
        list_words(a, spec, &words);
        r = programs_run_trainer(words.items, &err);
    }
    if (r < 0)
        return ctl_fail(&err, r);
    if (r > 0)
        return CTL_FAILED; /* sdtrainer has said why */
    /* sdtrainer has said of which step: a job that trains may have saved since its records were read. */
    printf("job %s: samples are in %s\n", a->operand, a->out);
    if (a->pictures)
        printf("job %s: the data's own pictures are in %s\n", a->operand, a->pictures);
    return CTL_DONE;
}
