/* SPDX-License-Identifier: Apache-2.0 */
/* channel-fields.h - lists the fields of the channel's messages, from the table in channel.c, for the program that
 * generates docs/reference/channel.md.
 *
 * Ownership: names are static. Units: none. Errors: none.
 */
#pragma once

#include "protocol/channel.h"

typedef struct ChannelField {
    const char *name, *kind;
    unsigned types; /* the message types with this field, one bit per ChannelType */
    bool newer;     /* may be missing: older versions do not send it */
} ChannelField;

/* For the documents: gets field number i. Returns false after the last field. */
bool channel_field(size_t i, ChannelField *ret);
