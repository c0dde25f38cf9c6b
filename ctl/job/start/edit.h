/* SPDX-License-Identifier: Apache-2.0 */
/* edit.h - changes keys of a job file from the command line: `job start --set KEY=VALUE --name NAME`.
 *
 * Units: none. Threads: any.
 * Ownership: job_edit() gives the caller a text to free.
 * Errors:    -EINVAL with "--set KEY=VALUE: what is wrong"; the meaning of keys is checked by job_parse() afterwards.
 */
#pragma once

#include "base/error.h"
#include "ctl/option.h"

/* Applies each KEY=VALUE to the job file's text, and then sets its name (NULL: unchanged). A KEY is "train.steps" or
 * "data.streams[0].uri"; missing objects on the path are created. A VALUE is JSON, or else a plain text; "null" removes
 * the key. source names the text in errors. */
int job_edit(const char *source, const char *text, const OptionTexts *sets, const char *name,
             char **ret, Error *err);
