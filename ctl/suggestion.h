/* SPDX-License-Identifier: Apache-2.0 */
/* suggestion.h - suggests what the user probably meant by an unknown verb, or by a name of no job or node.
 *
 * Ownership: none.
 * Errors:    suggest_verb() returns CTL_USAGE, the others -ENOENT with a text.
 */
#pragma once

#include "ctl/model.h"

/* Prints up to three lines on standard error: the error, a suggestion, and the existing words. noun NULL: the unknown
 * word was the first word. */
int suggest_verb(const char *noun, const char *word);

/* Prints on standard error that a list is empty, and whether the cluster has any records at all. */
void suggest_nothing_there(const Model *model, const char *what);

int suggest_job(const Model *model, const char *name, Error *err);
int suggest_node(const Model *model, const char *name, Error *err);
/* Works as suggest_node(), but reads the nodes first. If this fails, the error has no suggestions. */
int suggest_node_of(CtlClient *client, const char *name, Error *err);
