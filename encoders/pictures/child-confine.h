/* SPDX-License-Identifier: Apache-2.0 */
/* child-confine.h - the restrictions that a decoder process sets on itself before it reads a picture.
 *
 * Limits: bytes of address space; the process can open no file, write no file, start no process, and leaves no core.
 * Filter: the only system calls allowed are those for memory that holds no code, for packets of its socket, and for its
 * own end. Any other call kills the process by SIGSYS. The filter is a BPF program for seccomp, only for x86_64.
 *
 * A build with a sanitizer has neither the limit of address space nor the filter: its runtime maps terabytes, and makes
 * calls that a decoder does not need.
 *
 * Ownership: none. Units: bytes.
 * Errors:    -errno. child_filter(): -ENOTSUP this build has no filter; -EINVAL and others: the kernel does not support
 *            it.
 * Threads:   the only thread of the process.
 */
#pragma once

#include "encoders/pictures/picture-decode.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHILD_IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHILD_IS_SANITIZED true
#endif
#endif
#ifndef CHILD_IS_SANITIZED
#define CHILD_IS_SANITIZED false
#endif

int child_limit(const PictureRecipe *recipe);
int child_filter(void);
