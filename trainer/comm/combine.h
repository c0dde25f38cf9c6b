/* SPDX-License-Identifier: Apache-2.0 */
/* combine.h - the arithmetic of reductions on host memory: into[i] = into[i] op from[i].
 *
 * Ownership: borrows both ranges, which do not overlap.
 * Units:     elements.
 * Errors:    none. Integer sums wrap.
 */
#pragma once

#include "trainer/comm/comm.h"

void combine(CommType type, CommOp op, void *into, const void *from, size_t n);
