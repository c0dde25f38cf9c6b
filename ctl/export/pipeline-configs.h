/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline-configs.h - makes the JSON files of a pipeline folder for diffusers.
 *
 * Units: none. Threads: any.
 * Ownership: texts are the caller's.
 * Errors:    -EINVAL naming the source of a text that is not a JSON object.
 * Source:    diffusers 0.42: DiffusionPipeline.from_pretrained, DDIMScheduler.
 */
#pragma once

#include "protocol/job.h"

/* Makes model_index.json. */
char *pipeline_index_format(void);
/* Makes scheduler/scheduler_config.json: the sampler of `job sample` (ddim.h) with the job's noise schedule. */
char *pipeline_scheduler_format(const Job *job);
/* Copies the config of one model of the pipeline, with its data type set to float32, since the weights become fp32. */
int pipeline_config_format(const char *source, const char *text, size_t n_bytes, char **ret,
                           Error *err);
