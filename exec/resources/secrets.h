/* SPDX-License-Identifier: Apache-2.0 */
/* secrets.h - the values of exec.secrets, from a file of the node: lines NAME=VALUE. Empty lines and lines that begin
 * with # are passed over.
 *
 * Ownership: exec_secrets_read() makes a list that ends with NULL; exec_secrets_free() wipes and frees it.
 * Units:     none.
 * Errors:    -EACCES: others may read the file. -ENOENT: the file, or a name in it, is missing. -EINVAL: a bad line.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

/* Reads the values of `names` (a list that ends with NULL; NULL: none), as "NAME=VALUE". */
int exec_secrets_read(const char *path, char *const *names, char ***ret, Error *err);
void exec_secrets_free(char **list);
