/* SPDX-License-Identifier: Apache-2.0 */
/* raw-kind.h - what a file is that should be something else, by the bytes that it begins with.
 *
 * Ownership: texts are constant.
 * Units:     bytes.
 * Errors:    none.
 * Threads:   any.
 * Source:    the formats' own magic numbers: RFC 1952 (gzip), RFC 8878 (zstd), APPNOTE.TXT (zip), the xz and bzip2 file
 *            formats, Parquet's format.md, Git LFS's pointer specification.
 */
#pragma once

#include "base/macro.h"

enum { RAW_KIND_BYTES = 64 }; /* as many as are looked at */

/* "gzip", "an XML text"; NULL: none that is known. */
const char *raw_kind_of(const void *bytes, size_t n_bytes);
