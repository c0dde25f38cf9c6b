/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline-configs.c - see pipeline-configs.h. */
#include "ctl/export/pipeline-configs.h"

#include "base/json/json.h"
#include "base/memory.h"

#include <string.h>

static char *dump(const json_t *root)
{
    _cleanup_free_ char *text =
        memory_given(json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)));
    return memory_format("%s\n", text);
}

static void set(json_t *root, const char *key, json_t *value)
{
    /* This call cannot fail: without memory jansson ends the process. */
    (void)json_object_set_new(root, key, value);
}

static json_t *part(const char *library, const char *class)
{
    json_t *pair = json_array();
    /* These calls cannot fail: without memory jansson ends the process. */
    (void)json_array_append_new(pair, library ? json_string(library) : json_null());
    (void)json_array_append_new(pair, class ? json_string(class) : json_null());
    return pair;
}

char *pipeline_index_format(void)
{
    _cleanup_json_ json_t *root = json_object();
    set(root, "_class_name", json_string("StableDiffusionPipeline"));
    set(root, "feature_extractor", part(NULL, NULL));
    set(root, "requires_safety_checker", json_false());
    set(root, "safety_checker", part(NULL, NULL));
    set(root, "scheduler", part("diffusers", "DDIMScheduler"));
    set(root, "text_encoder", part("transformers", "CLIPTextModel"));
    set(root, "tokenizer", part("transformers", "CLIPTokenizer"));
    set(root, "unet", part("diffusers", "UNet2DConditionModel"));
    set(root, "vae", part("diffusers", "AutoencoderKL"));
    return dump(root);
}

char *pipeline_scheduler_format(const Job *job)
{
    const bool v = job->train.prediction == PREDICTION_V;
    _cleanup_json_ json_t *root = json_object();
    set(root, "_class_name", json_string("DDIMScheduler"));
    set(root, "beta_schedule", json_string("scaled_linear"));
    set(root, "beta_start", json_real(job->train.noise_schedule.beta_start));
    set(root, "beta_end", json_real(job->train.noise_schedule.beta_end));
    set(root, "num_train_timesteps", json_integer(job->train.noise_schedule.steps));
    set(root, "prediction_type", json_string(v ? "v_prediction" : "epsilon"));
    set(root, "clip_sample", json_false());
    set(root, "rescale_betas_zero_snr", json_false());
    set(root, "set_alpha_to_one", json_false());
    set(root, "steps_offset", json_integer(1));
    set(root, "thresholding", json_false());
    set(root, "timestep_spacing", json_string("leading"));
    set(root, "trained_betas", json_null());
    return dump(root);
}

int pipeline_config_format(const char *source, const char *text, size_t n_bytes, char **ret,
                           Error *err)
{
    static const char *const types[] = {"torch_dtype", "dtype"};
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse(source, text, n_bytes, &root, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ELEMENTSOF(types); i++)
        if (json_object_get(root, types[i]))
            set(root, types[i], json_string("float32"));
    *ret = dump(root);
    return 0;
}
