/* words.h - a decision in words: the lines that the controller logs, one a transition, and that a
 * replay prints and compares.
 *
 * Ownership: a line is the handler's until it returns.
 * Units:     as the records; times in a line are seconds.
 * Errors:    none. A line that is too long is cut.
 * Threads:   any.
 */
#pragma once

#include "base/log.h"
#include "controller/core/cluster.h"

typedef void (*WordsHandler)(LogLevel level, const char *line, void *userdata);

/* decision->world.runs may be NULL: then the line with its nodes is left out. */
void words_of_decision(const Decision *decision, WordsHandler handler, void *userdata);
