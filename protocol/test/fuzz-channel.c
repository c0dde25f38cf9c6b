/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-channel.c - packets of any bytes. A message that can be decoded can be encoded again. */
#include "protocol/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error err = ERROR_INIT;
    ChannelMessage m = {0};
    if (channel_decode((const char *)data, n, &m, &err) < 0)
        return 0;
    char *text = NULL;
    size_t n_text;
    if (channel_encode(&m, &text, &n_text, &err) == 0)
        free(text);
    channel_message_clear(&m);
    return 0;
}
