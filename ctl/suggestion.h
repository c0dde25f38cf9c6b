/* SPDX-License-Identifier: Apache-2.0 */
/* suggestion.h - words that are not a verb, and names that nobody has: what the person probably meant.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    suggest_verb() returns CTL_USAGE, the others -ENOENT with a text.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/model.h"

/* Says in three lines on standard error what is wrong and what there is. noun NULL: the word was the first one. */
int suggest_verb(const char *noun, const char *word);

/* Says on standard error that a list is empty, and whether anybody has that cluster's name at all. */
void suggest_nothing_there(const Model *model, const char *what);

int suggest_job(const Model *model, const char *name, Error *err);
int suggest_node(const Model *model, const char *name, Error *err);
/* Works as suggest_node(), and reads the nodes first; without them it says less. */
int suggest_node_of(CtlClient *client, const char *name, Error *err);
