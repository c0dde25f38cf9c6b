/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - the outcome of a request.
 *
 * Ownership: none.
 */
#pragma once

#include "cluster/records.h"

/* Returns the outcome of the request, or REQUEST_OPEN when it has no answer yet. */
RequestOutcome request_outcome(const RequestRecord *request);
/* Reads the node's verdict, such as "healthy" or "suspect: ...", from the beginning of the answer to "check" or
 * "clear". Returns false when the answer is missing or has no verdict. */
bool request_verdict(const RequestRecord *request, NodeVerdict *ret);
