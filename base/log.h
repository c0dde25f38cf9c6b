/* log.h - one line per state transition, on standard error or in the journal.
 *
 * Format:    "2026-01-31T12:00:00.123Z info sdtraind: message JOB=x GENERATION=3". Fields are
 *            upper-case `KEY=value` words without spaces and stand last in the format;
 *            log_set_field() adds fields that every later line of this process carries (JOB, RANK,
 *            NODE, GENERATION) unless it says them itself.
 * Journal:   where standard error is the journal's stream (JOURNAL_STREAM), lines begin with a <N>
 *            priority instead of time and name. After log_use_journal() they are entries instead,
 *            their fields the journal's own (journalctl JOB=x NODE=y); a line still comes where
 *            that fails.
 * Ownership: log_open() keeps its own copy of the program's name.
 * Units:     none.
 * Errors:    logging never fails; a line that cannot be written is dropped. A line is at most 2
 *            KiB.
 * Threads:   any; a line is one write(2) or one send.
 */
#pragma once

#include "base/error.h"

struct iovec;

typedef enum LogLevel {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
} LogLevel;

typedef int LogSend(const struct iovec *fields, int n);

/* SDTRAIN_LOG=error|warning|info|debug sets the level; info by default. */
void log_open(const char *program);
/* sd_journal_sendv; only where standard error is the journal's. */
void log_use_journal(LogSend *send);
void log_set_level(LogLevel level);
void log_set_field(const char *key, const char *value);

void log_write(LogLevel level, const char *format, ...) _printf_(2, 3);
/* A transition with a name of its own, of base/message-id.h. */
void log_event(LogLevel level, const char *message_id, const char *format, ...) _printf_(3, 4);
/* The same, of a text that was made with that format; it says which fields the text ends with. */
void log_text(LogLevel level, const char *message_id, const char *format, const char *text);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
