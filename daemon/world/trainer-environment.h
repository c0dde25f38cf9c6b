/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-environment.h - the environments that sdtrainer and the runner of a program get from sdtraind.
 *
 * Units: none. Threads: any.
 * Ownership: both functions give the caller a list of texts, ended by NULL.
 */
#pragma once

#include "daemon/config/config.h"

/* Returns our environment without the variables about sdtraind itself, then what a trainer must have, then what the
 * configuration adds. slot -1: for a trainer that is not a rank. */
char **trainer_environment_new(char *const *ours, const DaemonConfig *config, int slot);
/* Returns the environment of the runner in that slot. Nothing of ours is in it but what the runner needs, and what the
 * configuration adds: libraries of others read variables of batch systems, and ours are not for programs. */
char **runner_environment_new(char *const *ours, const DaemonConfig *config, int slot);
void trainer_environment_freep(char ***list);
