/* log.h - one line per state transition, on standard error.
 *
 * Format:    "2026-01-31T12:00:00.123Z info sdtraind: message JOB=x GENERATION=3". Under systemd
 *            (JOURNAL_STREAM set) the time and the program's name are left out and a <N>
 *            priority is put in front. Fields are upper-case `KEY=value` words and stand last in
 *            the message; log_set_field() adds fields that every later line of this process
 *            carries (JOB, RANK, NODE, GENERATION).
 * Ownership: log_open() keeps its own copy of the program's name.
 * Units:     none.
 * Errors:    logging never fails; a line that cannot be written is dropped. A line is at most 2
 *            KiB.
 * Threads:   any; a line is one write(2).
 */
#pragma once

#include "base/error.h"

typedef enum LogLevel {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
} LogLevel;

/* SDTRAIN_LOG=error|warning|info|debug sets the level; info by default. */
void log_open(const char *program);
void log_set_level(LogLevel level);
void log_set_field(const char *key, const char *value);

void log_write(LogLevel level, const char *format, ...) _printf_(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
