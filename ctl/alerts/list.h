/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - the deliveries of an alert as JSON, for the verbs of `sdctl alerts`.
 *
 * Errors: none. Threads: the main thread.
 * Ownership: the caller gets a reference.
 * Units:     times in seconds since 1970.
 */
#pragma once

#include "cluster/records.h"

#include <jansson.h>

/* Makes [{sink, state, severity, attempts, at, text}]. */
json_t *deliveries_json(const Delivery *deliveries, size_t n);
