/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-environment.h - the environment that sdtrainer gets from sdtraind.
 *
 * Ownership: trainer_environment_new() gives the caller a list of texts, ended by NULL.
 * Units:     none.
 * Threads:   any.
 */
#pragma once

#include "daemon/config/config.h"

/* Returns our environment without the variables about sdtraind itself, then what a trainer must have, then what the
 * configuration adds. slot -1: for a trainer that is not a rank. */
char **trainer_environment_new(char *const *ours, const DaemonConfig *config, int slot);
void trainer_environment_freep(char ***list);
