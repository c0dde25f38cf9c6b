/* SPDX-License-Identifier: Apache-2.0 */
/* recording.h - opens the journal that this controller's settings ask for.
 *
 * Ownership: *ret is the caller's (journal_free()); NULL if nothing is recorded.
 * Units:     none.
 * Errors:    -errno with the path, if the settings name a journal.
 */
#pragma once

#include "controller/config/config.h"
#include "controller/journal/journal.h"

int recording_open(const ControllerConfig *config, const ClusterLimits *limits,
                   const ClusterConfig *core, Journal **ret, Error *err);
