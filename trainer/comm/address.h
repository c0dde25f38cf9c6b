/* SPDX-License-Identifier: Apache-2.0 */
/* address.h - listens at a free port, resolves "host:port" and connects to it.
 *
 * Ownership: *ret_fd is the caller's; the caller frees a list with freeaddrinfo().
 * Units:     none.
 * Errors:    -EINVAL: the text is not an address; -errno of the system. The error's text names the address.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <netdb.h>

enum { ADDRESS_MAX = 128 };

/* Opens a non-blocking listening socket, and writes its "host:port" or "[host]:port" to ret. */
int address_listen(const char *host, int backlog, int *ret_fd, char ret[ADDRESS_MAX], Error *err);
/* Resolves an address. numeric: refuses names, so that no name server is asked. */
int address_resolve(const char *address, bool numeric, struct addrinfo **ret, Error *err);
/* Begins to connect. *ret_fd becomes writable when the connection is established or has failed. */
int address_dial(const struct addrinfo *to, int *ret_fd);
