/* SPDX-License-Identifier: Apache-2.0 */
/* show.c - `sdctl job show`: prints the job file exactly as it was submitted, so that it can be started again. On a
 * terminal, control characters are replaced, including those for the cursor and the writing direction, because another
 * operator wrote the file. */
#include "base/memory.h"
#include "base/text/printable.h"
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"

#include <string.h>
#include <unistd.h>

/* Replaces control characters in each line. */
static void make_harmless(char *text)
{
    for (char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        printable_make_bytes(line, n);
        line += n + (line[n] != '\0');
    }
}

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
    _cleanup_free_ char *text = memory_text(job->spec.spec);
    if (isatty(STDOUT_FILENO) == 1)
        make_harmless(text);
    if (fwrite(text, 1, strlen(text), stdout) < strlen(text) || fflush(stdout) != 0)
        return ctl_fail(&err, error_errno(&err, -errno, "cannot write"));
    if (*job->spec.resume_uri) /* --resume is not part of the job file */
        fprintf(stderr, "sdctl: it was started with --resume %s\n", job->spec.resume_uri);
    return CTL_DONE;
}
