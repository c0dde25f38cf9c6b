/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h - the weights of a checkpoint as one safetensors file.
 *
 * A checkpoint keeps them as one or several such files; the result holds their tensors in the same order, byte for
 * byte. Every file's hash is checked on the way, and the result appears only when all is well.
 *
 * Ownership: Store and Manifest are borrowed.
 * Units:     bytes.
 * Errors:    -ENOENT the checkpoint has no averaged weights; -EBADMSG a file does not verify; -EINTR (interrupt.h);
 *            those of the store and of the file.
 * Threads:   the main thread.
 * Source:    the safetensors format: 8 bytes length of the header, little-endian; a JSON header, name to {dtype, shape,
 *            data_offsets}; the data.
 */
#pragma once

#include "manifest/manifest.h"

/* Returns the bytes that the file will take. */
uint64_t weights_bytes(const Manifest *manifest, bool ema);
int weights_write(Store *store, const Manifest *manifest, bool ema, const char *path, Error *err);
