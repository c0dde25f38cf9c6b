/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-model-config.c - arbitrary text as the config of a VAE and of a text encoder is refused by name, or gives values
 * within bounds. */
#include "base/log.h"
#include "encoders/networks/clip-text-config.h"
#include "encoders/networks/vae-config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    log_set_level(LOG_LEVEL_ERROR);
    Error err = ERROR_INIT;
    VaeConfig vae;
    if (vae_config_parse("fuzz", (const char *)data, n_bytes, &vae, &err) < 0) {
        assert(strncmp(err.text, "fuzz: ", 6) == 0);
    } else {
        assert(vae.n_levels >= 1 && vae.n_levels <= VAE_LEVELS_MAX && vae.latent_channels >= 1);
        for (int i = 0; i < vae.n_levels; i++)
            assert(vae.block_out_channels[i] >= 1 &&
                   vae.block_out_channels[i] % vae.norm_num_groups == 0);
    }
    ClipTextConfig text;
    if (clip_text_config_parse("fuzz", (const char *)data, n_bytes, &text, &err) < 0)
        assert(strncmp(err.text, "fuzz: ", 6) == 0);
    else
        assert(text.vocab_size >= 1 && text.num_hidden_layers >= 1 &&
               text.hidden_size % text.num_attention_heads == 0);
    return 0;
}
