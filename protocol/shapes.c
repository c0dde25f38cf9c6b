/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c - see shapes.h. */
#include "protocol/shapes.h"

/* 64 TiB, more memory than any machine can address. */
static const double BYTES_MAX = 0x1p46;

static int check_channels(const char *file, const UnetConfig *config, const DatasetShape *data,
                          Error *err)
{
    if (config->in_channels != data->channels)
        return error_set(err, -EINVAL, "%s: in_channels: %d, but the data's latents have %d", file,
                         config->in_channels, data->channels);
    if (config->out_channels != config->in_channels)
        return error_set(err, -EINVAL,
                         "%s: out_channels: %d, but what is predicted has the in_channels %d of "
                         "the latents",
                         file, config->out_channels, config->in_channels);
    if (config->cross_attention_dim != data->text_dim)
        return error_set(err, -EINVAL,
                         "%s: cross_attention_dim %d: the data have %d text dimensions", file,
                         config->cross_attention_dim, data->text_dim);
    return 0;
}

/* Checks that a layer's largest tensor fits into BYTES_MAX. The widest tensor of a network is the inner tensor of a
 * feed-forward, 8 times as wide as its level, or two skips side by side. This check uses doubles, which cannot
 * overflow; later code computes sizes in int64. */
static int check_sizes(const Job *job, const UnetConfig *config, const DatasetShape *data,
                       int64_t grain, Error *err)
{
    double widest = MAX(config->in_channels, config->cross_attention_dim);
    for (int i = 0; i < config->n_levels; i++)
        widest = MAX(widest, 8.0 * config->block_out_channels[i]);
    const double pixels = (double)data->height * data->width, tokens = (double)data->text_tokens;
    const double bytes = (double)grain * MAX(pixels, tokens) * widest * (double)sizeof(float);
    if (bytes > BYTES_MAX)
        return error_set(err, -EINVAL,
                         "%s: train.grain: %lld samples of %dx%d latents and %d text tokens with "
                         "this network's channels are %.3g bytes a layer, more than any machine "
                         "has",
                         job->model.config_uri, (long long)grain, data->height, data->width,
                         data->text_tokens, bytes);
    return 0;
}

int shapes_check(const Job *job, const UnetConfig *config, const DatasetShape *data, int64_t grain,
                 Error *err)
{
    const char *file = job->model.config_uri;
    if (data->channels < 1 || data->height < 1 || data->width < 1 || data->text_tokens < 1 ||
        data->text_dim < 1 || grain < 1)
        return error_set(err, -EINVAL,
                         "data: latents of %dx%dx%d and text of %dx%d: nothing can be trained",
                         data->channels, data->height, data->width, data->text_tokens,
                         data->text_dim);
    int r = check_channels(file, config, data, err);
    return r < 0 ? r : check_sizes(job, config, data, grain, err);
}
