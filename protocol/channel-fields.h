/* SPDX-License-Identifier: Apache-2.0 */
/* channel-fields.h - the fields of the channel's messages, from the table by which channel.c reads and writes them: for
 * the maker of docs/reference/channel.md.
 *
 * Ownership: names are static.
 * Units:     none.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "protocol/channel.h"

typedef struct ChannelField {
    const char *name, *kind;
    unsigned types; /* bit per ChannelType */
    bool newer;     /* may be missing: older versions do not send it */
} ChannelField;

/* False behind the last one. */
bool channel_field(size_t i, ChannelField *ret);
