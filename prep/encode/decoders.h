/* SPDX-License-Identifier: Apache-2.0 */
/* decoders.h - the decoder processes of sdprep: how many there are, and what people are told of them. pictures.h has
 * the questions and answers.
 *
 * Ownership: decoders_open() gives the caller Pictures.
 * Units:     processes.
 * Errors:    as pictures_open().
 * Threads:   the one that will ask them.
 */
#pragma once

#include "encoders/pictures/pictures.h"

enum { DECODERS_UNASKED_MAX = 16 };

/* n 0: as many as there are processors, at most DECODERS_UNASKED_MAX. Warns if the kernel cannot filter what they ask
 * of it. */
int decoders_open(const PictureRecipe *recipe, int n, Pictures **ret, Error *err);
