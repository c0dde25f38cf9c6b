/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-unet-config.c - any text gives a config or an error; a config that was read can be written
 * and read again, and its network can be listed. */
#include "nn/parameters.h"
#include "protocol/unet-config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    Error err = ERROR_INIT;
    UnetConfig config, again;
    if (unet_config_parse("fuzz", (const char *)data, n_bytes, &config, &err) < 0) {
        assert(strncmp(err.text, "fuzz: ", 6) == 0);
        return 0;
    }
    _cleanup_free_ char *text = NULL, *text_again = NULL;
    int r = unet_config_format(&config, &text);
    assert(r == 0);
    r = unet_config_parse("fuzz", text, strlen(text), &again, &err);
    assert(r == 0);
    r = unet_config_format(&again, &text_again);
    assert(r == 0 && strcmp(text, text_again) == 0);

    _cleanup_(parameter_list_freep) ParameterList *list = NULL;
    r = unet_parameters(&config, &list, &err);
    assert(r == 0 || r == -EINVAL);
    return 0;
}
