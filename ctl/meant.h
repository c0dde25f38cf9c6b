/* SPDX-License-Identifier: Apache-2.0 */
/* meant.h - words that are not a verb, and names that nobody has: what the person probably meant.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    meant_refuse_verb() returns CTL_USAGE, the others -ENOENT with a text.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/model.h"

/* Says in three lines on standard error what is wrong and what there is. noun NULL: the word was the first one. */
int meant_refuse_verb(const char *noun, const char *word);

/* Says on standard error that a list is empty, and whether anybody has that cluster's name at all. */
void meant_nothing_there(const Model *model, const char *what);

int meant_no_job(const Model *model, const char *name, Error *err);
int meant_no_node(const Model *model, const char *name, Error *err);
/* Works as meant_no_node(), and reads the nodes first; without them it says less. */
int meant_no_node_of(CtlClient *client, const char *name, Error *err);
