/* address.h - listening at a free port, and who is meant by "host:port".
 *
 * Ownership: *ret_fd is the caller's; a list goes with freeaddrinfo().
 * Units:     none.
 * Errors:    -EINVAL the text is no address; -errno of the system. The text names the address.
 * Threads:   any.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <netdb.h>

enum { ADDRESS_MAX = 128 };

/* A listening socket that does not block, and where: "host:port" or "[host]:port". */
int address_listen(const char *host, int backlog, int *ret_fd, char ret[ADDRESS_MAX], Error *err);
/* numeric: names are refused, and nobody is asked about them. */
int address_resolve(const char *address, bool numeric, struct addrinfo **ret, Error *err);
/* Begins to connect: *ret_fd is writable when that has ended. */
int address_dial(const struct addrinfo *to, int *ret_fd);
