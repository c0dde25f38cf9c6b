/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - a checkpoint's U-Net and a model's VAE, text encoder and tokenizer as one folder that diffusers'
 * StableDiffusionPipeline.from_pretrained loads.
 *
 * It is written beside its place and renamed when it is whole: under the final name there is all of it or nothing. A
 * process that is killed leaves FOLDER.part-XXXXXX, which may be removed.
 *
 * Ownership: everything is borrowed.
 * Units:     none.
 * Errors:    -EEXIST there is something of that name; -EINVAL a model that does not fit (model-fit.h), or lacks a file;
 *            -ENOSPC there is no room, before anything is written; those of weights.h and model-copy.h.
 * Threads:   the main thread.
 */
#pragma once

#include "manifest/manifest.h"
#include "protocol/job.h"

typedef struct PipelineOptions {
    const char *folder; /* that is made */
    const char *model;  /* a diffusers folder, as path or URI */
    const Job *job;     /* that trained the U-Net: its schedule and what it predicts */
    bool ema;           /* the averaged weights */
} PipelineOptions;

int pipeline_write(Store *store, const Manifest *manifest, const PipelineOptions *options,
                   Error *err);
