/* SPDX-License-Identifier: Apache-2.0 */
/* grid-notes.h - notes about the contents of a grid of pictures. `sdtrainer sample` writes them into the PNG, and
 * `sdctl job report` reads them.
 *
 * The notes are one tEXt chunk with the keyword "sdtrain". Its text is a JSON object in ASCII, which PNG readers can
 * show:
 *
 *     {"job": "first", "of": "network", "step": 240, "weights": "ema", "seed": "1", "captions": ["a cat", ...]}
 *
 * "of" is "data" for the data's own pictures, which have neither step, weights nor seed. Captions are in the order of
 * the cells, row by row; "" is a cell without a caption.
 *
 * Ownership: GridNotes own their captions; grid_notes_clear() frees them. grid_notes_put() gives the caller a buffer.
 * Units:     bytes.
 * Errors:    grid_notes_get() returns 1 if there are notes, 0 if there are none, and -EINVAL with an error that names
 *            the source.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "protocol/job.h"

enum { GRID_CELLS_MAX = JOB_PICTURES_MAX, GRID_CAPTION_MAX = 300, GRID_NOTES_BYTES_MAX = 1 << 19 };

typedef struct GridNotes {
    char job[JOB_NAME_MAX + 1];
    bool real; /* true: pictures of the data; false: samples of a network */
    bool ema;  /* true: the samples were drawn with averaged weights */
    int64_t step;
    uint64_t seed;
    char (*captions)[GRID_CAPTION_MAX + 1];
    int n_captions;
} GridNotes;

/* Adds the caption of the next cell, made safe for a terminal. A long caption is cut, and a text that is not UTF-8
 * becomes "(not UTF-8)". */
void grid_notes_add(GridNotes *notes, const char *caption);
void grid_notes_clear(GridNotes *notes);
/* Returns a copy of the PNG with the notes inserted after its header. */
char *grid_notes_put(const GridNotes *notes, const void *png, size_t n_bytes, size_t *ret_bytes);
int grid_notes_get(const char *source, const void *png, size_t n_bytes, GridNotes *ret, Error *err);
