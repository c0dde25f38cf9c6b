/* SPDX-License-Identifier: Apache-2.0 */
/* requester.h - who changes what is wanted: "anna@laptop", for the record that carries the wish.
 *
 * It is what this side says, for people: anybody who may write the record may write another name. Where a user of etcd
 * is named, which etcd has checked, it follows: "anna@laptop, etcd user ops".
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none; what cannot be known is "?".
 * Threads:   the main thread.
 */
#pragma once

#include "cluster/records.h"

/* Returns ret. */
const char *requester_text(char ret[RECORD_BY_MAX + 1]);
