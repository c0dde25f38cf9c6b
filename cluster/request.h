/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - what became of a request.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

/* REQUEST_OPEN: nobody has answered yet. */
RequestOutcome request_outcome(const RequestRecord *request);
/* Reads the node's verdict from the answer to "check" or "clear", which begins with it: "healthy",
 * "suspect: ...". False when there is no verdict, or no answer yet. */
bool request_verdict(const RequestRecord *request, NodeVerdict *ret);
