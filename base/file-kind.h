/* SPDX-License-Identifier: Apache-2.0 */
/* file-kind.h - recognizes, by its first bytes, the format of a file that does not have the expected format.
 *
 * Ownership: texts are constant. Units: bytes.
 * Source:    the formats' own magic numbers: RFC 1952 (gzip), RFC 8878 (zstd), APPNOTE.TXT (zip), the xz and bzip2 file
 *            formats, Parquet's format.md, Git LFS's pointer specification, NumPy's format.py, HDF5's file format
 *            specification, GGUF's specification, Python's pickletools (a pickle of protocol 2 to 5 begins with PROTO).
 */
#pragma once

#include "base/macro.h"

enum { FILE_KIND_BYTES = 64 }; /* the number of first bytes that suffice to recognize a file */

/* Names the format ("gzip", "an XML text"); NULL if the format is unknown. Fewer than FILE_KIND_BYTES bytes are
 * allowed. */
const char *file_kind_of(const void *bytes, size_t n_bytes);
/* Writes the format's name as the end of an error text, "; it is gzip", or "" if the format is unknown. Returns ret. */
const char *file_kind_words(const void *bytes, size_t n_bytes, char *ret, size_t size);
