/* SPDX-License-Identifier: Apache-2.0 */
/* tar-header.h - the header block before each member of a tar.
 *
 * Ownership: plain data. Errors: none. Threads: any.
 * Units:     numbers are octal digits as text; tar-read.c also accepts binary numbers.
 * Source:    POSIX.1-2017, pax, "ustar Interchange Format".
 */
#pragma once

#include "base/macro.h"

enum { TAR_BLOCK = 512 };

typedef struct TarHeader {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
} TarHeader;

static_assert(sizeof(TarHeader) == TAR_BLOCK, "a header is one block");
