/* SPDX-License-Identifier: Apache-2.0 */
/* weight-file.h - a checkpoint's weight files: their safetensors headers, and diffusers' index of several files.
 *
 * Units: bytes. Threads: any.
 * Ownership: the caller frees what a function returns.
 * Errors:    -ENOMEM; -EBADMSG: a header is not that of the parameters.
 */
#pragma once

#include "manifest/object.h"

/* Makes the safetensors header of the file that holds the record's flat range. */
int weight_file_header(const ParameterList *parameters, const ObjectRecord *record, char **ret,
                       size_t *ret_bytes, Error *err);
/* Returns -EBADMSG if the header is not that of the parameters in the record's range. n_bytes: size of the header; the
 * file has record->n_bytes. */
int weight_file_check(const char *source, const ParameterList *parameters,
                      const ObjectRecord *record, const void *header, size_t n_bytes, Error *err);
/* Makes the text of diffusion_pytorch_model.safetensors.index.json for one set of weight files. */
int weight_index_format(const ParameterList *parameters, const ObjectTable *table, char **ret);
