/* SPDX-License-Identifier: Apache-2.0 */
/* drawing.h - draws a grid of pictures from a checkpoint, by DDIM.
 *
 * Latents are decoded by the VAE of a model folder or, without one, by codec.h: then a grid shows whether a run learns,
 * on data that sdprep made with that codec. Picture i depends on checkpoint, seed, caption and the device's numerics,
 * not on how many pictures there are.
 *
 * Ownership: drawing_new() gives the caller a Drawing; job, grid, data, config and devices are borrowed. PNGs are
 *            free()d by the caller.
 * Units:     pictures, DDIM steps.
 * Errors:    -EINVAL: job, data, model and grid do not fit each other, or the model is missing. -EDOM: the network made
 *            something that is not finite. Those of model.h, ddim.h, the data and the device, and those of progress().
 * Threads:   the devices'.
 */
#pragma once

#include "data/dataset.h"
#include "nn/network.h"
#include "protocol/grid-notes.h"

typedef struct DrawingNeeds {
    /* Its uri is not used. Without an embedding of the empty caption its guidance is taken as 1. */
    const JobGrid *grid;
    const Job *job;
    Dataset *data;
    const UnetConfig *config;
    Device *device;       /* of the network */
    Device *model_device; /* of the model's networks; may be the same */
    int grain;            /* pictures that the network computes at once */
    /* Called after each step: one of DDIM, or a picture that is decoded. An error ends the drawing. */
    int (*progress)(void *userdata, int64_t done, int64_t all, Error *err);
    void *userdata;
} DrawingNeeds;

typedef struct Drawing Drawing;

/* Also reads the model and encodes the captions. */
int drawing_new(const DrawingNeeds *needs, Drawing **ret, Error *err);
Drawing *drawing_free(Drawing *drawing);
DEFINE_CLEANUP(Drawing, drawing_free)
/* The parameters whose values drawing_run() needs, in device memory that the Drawing owns. */
const ParameterList *drawing_parameters(const Drawing *drawing);
float *drawing_weights(Drawing *drawing);
/* Draws pictures by the weights, which are those of this step. *ret is a PNG with notes. */
int drawing_run(Drawing *drawing, int64_t step, bool of_ema, char **ret, size_t *ret_bytes,
                Error *err);
/* Decodes the data's own first pictures in the same way: the best that a fully trained network could draw. */
int drawing_show_data(Drawing *drawing, char **ret, size_t *ret_bytes, Error *err);
