/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline-configs.h - the JSON files of a pipeline that diffusers reads.
 *
 * Ownership: texts are the caller's.
 * Units:     none.
 * Errors:    -EINVAL naming the source of a text that is not a JSON object.
 * Threads:   any.
 * Source:    diffusers 0.42: DiffusionPipeline.from_pretrained, DDIMScheduler.
 */
#pragma once

#include "protocol/job.h"

/* model_index.json */
char *pipeline_index_format(void);
/* scheduler/scheduler_config.json of the sampler that `job sample` is (ddim.h), over the job's noise schedule. */
char *pipeline_scheduler_format(const Job *job);
/* A part's config, of weights that are fp32 now. */
int pipeline_config_format(const char *source, const char *text, size_t n_bytes, char **ret,
                           Error *err);
