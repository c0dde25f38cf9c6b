/* SPDX-License-Identifier: Apache-2.0 */
/* port.h - holds the port of MASTER_PORT for the program of rank 0.
 *
 * A socket that is bound with SO_REUSEADDR and does not listen keeps the kernel from giving its port to anybody who
 * asks for any port, while another socket with SO_REUSEADDR, as torch's TCPStore has it, can bind it and listen.
 *
 * Ownership: the caller closes the descriptor when the program has ended.
 * Units:     none. Errors: -errno of socket() or bind().
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

int exec_hold_port(int *ret_fd, int *ret_port, Error *err);
/* Splits "host:port" or "[host]:port". Returns -EINVAL for another text. */
int exec_split_address(const char *address, char *ret_host, size_t size, int *ret_port);
