/* SPDX-License-Identifier: Apache-2.0 */
/* child-confine.h - what a decoder process takes away from itself before it looks at a picture.
 *
 * Limits: bytes of address space; no file is opened, none grows, no process begins, no core is left.
 * Filter: the process may request from the kernel memory that holds no code, its socket's packets, and its own end. Any
 *         other call ends it by SIGSYS. The filter is a BPF program for seccomp, only for x86_64.
 *
 * A build with a sanitizer has neither the bound of address space nor the filter: its runtime maps terabytes, and asks
 * for what no decoder does.
 *
 * Ownership: none.
 * Units:     bytes.
 * Errors:    -errno. child_filter(): -ENOTSUP this build has none; -EINVAL and others: the kernel has none.
 * Threads:   the only one of the process.
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
