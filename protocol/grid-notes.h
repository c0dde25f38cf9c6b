/* SPDX-License-Identifier: Apache-2.0 */
/* grid-notes.h - what a grid of pictures shows: written into its PNG by `sdtrainer sample`, read by `sdctl job report`.
 *
 * It is one chunk tEXt of the keyword "sdtrain" whose text is an object of JSON in ASCII, which any reader of PNG
 * shows:
 *
 *     {"job": "first", "of": "network", "step": 240, "weights": "ema", "seed": "1", "captions": ["a cat", ...]}
 *
 * "of" is "data" for the data's own pictures, which have neither step, weights nor seed. Captions are in the order of
 * the cells, row by row; "" is a cell without one.
 *
 * Ownership: GridNotes own their captions; grid_notes_clear() frees them. grid_notes_put() gives the caller a buffer.
 * Units:     bytes.
 * Errors:    grid_notes_get(): 1 there are notes, 0 there are none, -EINVAL with the source and the byte.
 * Threads:   any.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "protocol/job.h"

enum { GRID_CELLS_MAX = 400, GRID_CAPTION_MAX = 300, GRID_NOTES_BYTES_MAX = 1 << 19 };

typedef struct GridNotes {
    char job[JOB_NAME_MAX + 1];
    bool real; /* pictures of the data; else those that a network draws */
    bool ema;  /* by averaged weights */
    int64_t step;
    uint64_t seed;
    char (*captions)[GRID_CAPTION_MAX + 1];
    int n_captions;
} GridNotes;

/* Adds the next cell's caption, fit for a terminal: a long one is cut, and "(not UTF-8)" stands for one that is not. */
void grid_notes_add(GridNotes *notes, const char *caption);
void grid_notes_clear(GridNotes *notes);
/* The same PNG with notes, after its header. */
char *grid_notes_put(const GridNotes *notes, const void *png, size_t n_bytes, size_t *ret_bytes);
int grid_notes_get(const char *source, const void *png, size_t n_bytes, GridNotes *ret, Error *err);
