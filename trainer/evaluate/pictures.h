/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.h - draws a grid of pictures from a checkpoint, and puts it into a store.
 *
 * The object is <evaluation>-step-<step>-<hash>.png below grid.uri. Its hash is of checkpoint and job file: the same
 * evaluation of the same checkpoint overwrites its own grid alone.
 *
 * Ownership: borrows everything.
 * Units:     pictures, DDIM steps.
 * Errors:    -errno. The error's exit code (exit-code.h) is set where another start cannot help.
 * Threads:   the training thread.
 */
#pragma once

#include "protocol/eval-results.h"
#include "trainer/evaluate/eval-session.h"

/* Adds the artifact "grid". */
int pictures_draw(const EvalRequest *request, EvalResults *ret, Error *err);
