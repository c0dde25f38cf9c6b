/* SPDX-License-Identifier: Apache-2.0 */
/* model-fit.c - see model-fit.h. */
#include "encoders/networks/model-fit.h"

#include "encoders/networks/model-part.h"

#include <math.h>

static bool is_about(double a, double b) { return fabs(a / b - 1) < 1e-4; }

/* A network must get latents that were multiplied by scaling_factor. If it was not noted whether the latents in the
 * data are multiplied (stored_scale 0), latent_scale may be 1, if they are, or scaling_factor, if they are not. */
static int check_scale(const char *source, const ModelWanted *w, double scaling_factor, Error *err)
{
    const double stored = w->stored_scale > 0 ? w->stored_scale : 1;
    const double seen = stored * w->latent_scale;
    if (is_about(seen, scaling_factor) || (w->stored_scale <= 0 && w->latent_scale == 1))
        return 0;
    return error_set(err, -EINVAL,
                     "%.300s: scaling_factor is %g, but the network of %.200s was trained on "
                     "latents times %g (data.latent_scale is %g)",
                     source, scaling_factor, w->network, seen, w->latent_scale);
}

int model_fit_vae(Store *model, const ModelWanted *w, VaeConfig *ret, Error *err)
{
    _cleanup_free_ char *source = NULL, *text = NULL;
    size_t n_bytes;
    int r = model_part_config(model, MODEL_VAE, &source, &text, &n_bytes, err);
    if (r == 0)
        r = vae_config_parse(source, text, n_bytes, ret, err);
    if (r < 0)
        return r;
    if (ret->latent_channels != w->latent_channels)
        return error_set(err, -EINVAL,
                         "%.300s: latent_channels is %d, but the network of %.200s was trained on "
                         "latents of %d channels",
                         source, ret->latent_channels, w->network, w->latent_channels);
    return check_scale(source, w, ret->scaling_factor, err);
}

int model_fit_text(Store *model, const ModelWanted *w, ClipTextConfig *ret, Error *err)
{
    _cleanup_free_ char *source = NULL, *text = NULL;
    size_t n_bytes;
    int r = model_part_config(model, MODEL_TEXT_ENCODER, &source, &text, &n_bytes, err);
    if (r == 0)
        r = clip_text_config_parse(source, text, n_bytes, ret, err);
    if (r < 0)
        return r;
    if (ret->hidden_size != w->text_dim)
        return error_set(err, -EINVAL,
                         "%.300s: hidden_size is %d, but the network of %.200s was trained on "
                         "texts of width %d",
                         source, ret->hidden_size, w->network, w->text_dim);
    if (w->n_tokens > 0 && ret->max_position_embeddings != w->n_tokens)
        return error_set(err, -EINVAL,
                         "%.300s: max_position_embeddings is %d, but the network of %.200s was "
                         "trained on texts of %d tokens",
                         source, ret->max_position_embeddings, w->network, w->n_tokens);
    return 0;
}
