/* SPDX-License-Identifier: Apache-2.0 */
/* edit.h - a job file with some keys given at the prompt: `job start --set KEY=VALUE --name NAME`.
 *
 * Ownership: job_edit() gives the caller a text to free.
 * Units:     none.
 * Errors:    -EINVAL with "--set KEY=VALUE: what is wrong"; what the keys mean is checked by job_parse() afterwards.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"
#include "ctl/option.h"

/* Sets each KEY=VALUE of the job file's text, which source names in errors, and then its name (NULL: it stays). A KEY
 * is "train.steps" or "data.streams[0].uri"; objects on the way that are not there are made. A VALUE is JSON, or else a
 * text as it stands; "null" takes the key out. */
int job_edit(const char *source, const char *text, const OptionTexts *sets, const char *name,
             char **ret, Error *err);
