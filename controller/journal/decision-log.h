/* SPDX-License-Identifier: Apache-2.0 */
/* decision-log.h - a decision in words: the lines that the controller logs, one per transition, and that a replay
 * prints and compares.
 *
 * Ownership: a line is valid until the handler returns.
 * Units:     as the records; times in a line are seconds.
 * Errors:    none. A line that is too long is cut.
 * Threads:   any.
 */
#pragma once

#include "base/log.h"
#include "controller/core/cluster.h"

typedef struct LogLine {
    LogLevel level;
    const char *message_id;    /* from base/message-id.h; NULL: none */
    const char *format, *text; /* as the arguments of log_text() */
} LogLine;

typedef void (*LogLineHandler)(const LogLine *line, void *userdata);

/* Calls the handler for each line. If decision->world.runs is NULL, the line that names the nodes is left out. */
void decision_log_lines(const Decision *decision, LogLineHandler handler, void *userdata);
