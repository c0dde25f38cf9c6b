/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h - exports the weights of a checkpoint as one safetensors file.
 *
 * A checkpoint stores its weights in one or more safetensors files. The output has their tensors in the same order,
 * byte for byte. The hash of every file is checked while copying, and the output file appears only after full success.
 *
 * Units: bytes. Threads: the main thread.
 * Ownership: Store and Manifest are borrowed.
 * Errors:    -ENOENT: the checkpoint has no averaged weights; -EBADMSG: a file's hash or header is wrong; -EINTR
 *            (interrupt.h); also the errors of the store and of writing the file.
 * Source:    the safetensors format: 8 bytes length of the header, little-endian; a JSON header, name to {dtype, shape,
 *            data_offsets}; the data.
 */
#pragma once

#include "manifest/manifest.h"

/* Returns the approximate size of the output file. */
uint64_t weights_bytes(const Manifest *manifest, bool ema);
int weights_write(Store *store, const Manifest *manifest, bool ema, const char *path, Error *err);
