/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-job-edit.c - any words as the --set options of `sdctl job start`, on a job file. They are refused with an error
 * text, or give a new file, which is a valid job or is refused with an error text. Applying one --set twice has the
 * same result as once. Words end with a NUL. */
#include "base/memory.h"
#include "ctl/job/start/edit.h"
#include "protocol/job.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char file[] =
    "{\"name\": \"a\", \"kind\": \"train\", \"world\": {\"min\": 1, \"max\": 2},"
    " \"model\": {\"config\": \"file:///m/config.json\", \"init\": \"random\"},"
    " \"data\": {\"streams\": [{\"uri\": \"file:///d/\"}, {\"uri\": \"file:///e/\", \"weight\": "
    "2}],"
    " \"empty_text\": \"file:///d/empty.npy\"},"
    " \"train\": {\"global_batch\": 4, \"grain\": 1, \"steps\": 10, \"optimizer\": {\"lr\": "
    "0.001}},"
    " \"checkpoint\": {\"uri\": \"file:///c/\"}}";

static void edit_again(const OptionTexts *sets, const char *once)
{
    Error err = ERROR_INIT;
    _cleanup_free_ char *twice = NULL;
    if (job_edit("twice", once, sets, NULL, &twice, &err) ==
        0) /* an error is possible: the text may be nested too deeply */
        assert(strcmp(once, twice) == 0);
    else
        assert(err.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    _cleanup_free_ char *words = memory_zeroed(n + 1, 1), *text = NULL;
    memcpy(words, data, n);
    OptionTexts sets = {0};
    for (size_t at = 0; at < n && sets.n < (int)ELEMENTSOF(sets.items);
         at += strlen(words + at) + 1)
        sets.items[sets.n++] = words + at;
    Error err = ERROR_INIT;
    if (job_edit("file", file, &sets, NULL, &text, &err) < 0) {
        assert(err.text[0] && !text);
        return 0;
    }
    _cleanup_(job_freep) Job *job = NULL;
    if (job_parse("edited", text, strlen(text), &job, &err) < 0)
        assert(err.text[0]);
    if (sets.n == 1)
        edit_again(&sets, text);
    return 0;
}
