/* SPDX-License-Identifier: Apache-2.0 */
/* requester.h - the requester's name, such as "anna@laptop", for records that carry a request.
 *
 * The name is only information for people, because every user who may write the record can write any name. If sdctl
 * uses an etcd user, its name is appended: "anna@laptop, etcd user ops".
 *
 * Ownership: none.
 * Errors:    none; unknown parts are "?".
 */
#pragma once

#include "cluster/records.h"

/* Writes the requester's name into ret and returns ret. */
const char *requester_text(char ret[RECORD_BY_MAX + 1]);
