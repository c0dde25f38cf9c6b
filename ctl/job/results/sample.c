/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - `sdctl job sample`: runs `sdtrainer sample` with the job's own spec. */
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "ctl/programs.h"

#include "base/file.h"

#include <string.h>
#include <sys/mman.h>

/* Writes the spec's text into an anonymous file, which sdtrainer inherits. An interrupt leaves no file behind. */
static int write_spec(const ModelJob *job, int *ret_fd, Error *err)
{
    *ret_fd = memfd_create("job", 0);
    if (*ret_fd < 0)
        return error_errno(err, -errno, "cannot keep the job file of %s", job->name);
    int r = fd_write_all(*ret_fd, job->spec.spec, strlen(job->spec.spec));
    return r < 0 ? error_errno(err, r, "cannot keep the job file of %s", job->name) : 0;
}

/* The arguments of `sdtrainer sample`, ended by NULL. */
typedef struct Words {
    const char *items[PROGRAMS_ARGUMENTS_MAX + 1];
    char samples[16], seed[16];
    int n;
} Words;

static void add(Words *w, const char *option, const char *value)
{
    if (!value)
        return;
    assert(w->n + 2 <= PROGRAMS_ARGUMENTS_MAX); /* fits: the user can give at most 64 captions */
    w->items[w->n++] = option;
    w->items[w->n++] = value;
}

static const char *format(int number, char ret[16])
{
    (void)snprintf(ret, 16, "%d", number);
    return number < 0 ? NULL : ret;
}

typedef struct DrawOptions {
    const char *out, *model, *pictures;
    OptionTexts captions;
    int samples, seed; /* -1: not given */
} DrawOptions;

enum { SAMPLES_MAX = 400 }; /* the same limit as in sdtrainer sample */

#define OPTIONS_STRUCT DrawOptions
static const CtlOption options[] = {
    OPTION_OUT(.is_needed = true),
    OPTION_MODEL,
    {"caption", 0, "TEXT", "instead of the dataset's first ones; again: images take them in turn",
     TAKES(TEXTS, captions)},
    {"samples", 0, "N", "how many images; 16 by default, or one a caption",
     TAKES_NUMBER(samples, 1, SAMPLES_MAX, "1 to 400 images")},
    {"seed", 0, "N", "of the starting noise; 1 by default",
     TAKES_NUMBER(seed, 0, INT32_MAX, "a number, 0 or more")},
    {"pictures", 0, "FILE", "also: the data's own first pictures, as many, by the same decoder",
     TAKES(TEXT, pictures)},
};
const CtlOptions job_sample_options = CTL_OPTIONS(options, .samples = -1, .seed = -1);

static void list_words(const Arguments *a, const char *spec, Words *ret)
{
    const DrawOptions *o = arguments_own(a);
    *ret = (Words){.items = {"sample"}, .n = 1};
    add(ret, "--job", spec);
    add(ret, "--out", o->out);
    add(ret, "--pictures", o->pictures);
    add(ret, "--model", o->model);
    add(ret, "--samples", format(o->samples, ret->samples));
    add(ret, "--seed", format(o->seed, ret->seed));
    for (int i = 0; i < o->captions.n; i++)
        add(ret, "--caption", o->captions.items[i]);
}

int job_sample(const Arguments *a)
{
    const DrawOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    ModelJob *job;
    char spec[40];
    _cleanup_fd_ int fd = -EBADF;
    Words words;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r == 0)
        r = model_find_job(model, a->operand, &job, &err);
    if (r == 0)
        r = model_refuse_program(job, &err);
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
        return CTL_FAILED; /* sdtrainer has printed the error */
    /* The step is not printed here: the job may have saved again since its records were read. sdtrainer prints the
     * right step. */
    printf("job %s: samples are in %s\n", a->operand, o->out);
    if (o->pictures)
        printf("job %s: the data's own pictures are in %s\n", a->operand, o->pictures);
    return CTL_DONE;
}
