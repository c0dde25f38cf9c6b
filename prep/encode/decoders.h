/* SPDX-License-Identifier: Apache-2.0 */
/* decoders.h - starts the decoder processes of sdprep: their number, and the warning about missing confinement. For
 * their use see pictures.h.
 *
 * Units: processes. Errors: as pictures_open().
 * Ownership: decoders_open() gives the caller Pictures.
 * Threads:   the thread that will use the Pictures.
 */
#pragma once

#include "encoders/pictures/pictures.h"

enum { DECODERS_UNASKED_MAX = 16 };

/* Starts n decoder processes; n 0: as many as there are processors, at most DECODERS_UNASKED_MAX. Warns if the kernel
 * cannot filter the system calls of the processes. */
int decoders_open(const PictureRecipe *recipe, int n, Pictures **ret, Error *err);
