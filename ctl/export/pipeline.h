/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - a checkpoint's U-Net and a model's VAE, text encoder and tokenizer as one folder that diffusers'
 * StableDiffusionPipeline.from_pretrained loads.
 *
 * The folder is written under a temporary name in the same parent folder and renamed when it is complete, so the final
 * name never has an incomplete pipeline. A killed process leaves FOLDER.part-XXXXXX, which may be removed.
 *
 * Units: none. Threads: the main thread.
 * Ownership: everything is borrowed.
 * Errors:    -EEXIST: the path exists; -EINVAL: the model does not fit (model-fit.h) or lacks a file; -ENOSPC: not
 *            enough room, found before anything is written; also the errors of weights.h and model-copy.h.
 */
#pragma once

#include "manifest/manifest.h"
#include "protocol/job.h"

typedef struct PipelineOptions {
    const char *folder; /* path of the folder to make */
    const char *model;  /* path or URI of a diffusers model folder */
    /* The job that trained the U-Net. The pipeline gets this job's noise schedule and prediction type. */
    const Job *job;
    bool ema; /* export the averaged weights */
} PipelineOptions;

int pipeline_write(Store *store, const Manifest *manifest, const PipelineOptions *options,
                   Error *err);
