/* SPDX-License-Identifier: Apache-2.0 */
/* file-kind.h - what a file is that should be something else, by the bytes that it begins with.
 *
 * Ownership: texts are constant.
 * Units:     bytes.
 * Errors:    none.
 * Threads:   any.
 * Source:    the formats' own magic numbers: RFC 1952 (gzip), RFC 8878 (zstd), APPNOTE.TXT (zip), the xz and bzip2 file
 *            formats, Parquet's format.md, Git LFS's pointer specification, NumPy's format.py, HDF5's file format
 *            specification, GGUF's specification, Python's pickletools (a pickle of protocol 2 to 5 begins with PROTO).
 */
#pragma once

#include "base/macro.h"

enum { FILE_KIND_BYTES = 64 }; /* as many as are looked at */

/* "gzip", "an XML text"; NULL: none that is known. The bytes may be fewer. */
const char *file_kind_of(const void *bytes, size_t n_bytes);
/* The same, as the end of an error's text: "; it is gzip"; "" for none. */
const char *file_kind_words(const void *bytes, size_t n_bytes, char *ret, size_t size);
