/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - one line per state transition, on standard error or in the journal.
 *
 * Format:    "2026-01-31T12:00:00.123Z info sdtraind: message JOB=x GENERATION=3". Fields are
 *            upper-case `KEY=value` words without spaces at the end of the format;
 *            log_set_field() adds a field (JOB, RANK, NODE, GENERATION) to every later line of this process, except
 *            lines whose format has that key already.
 *            Control characters become '?' or a blank (printable.h): a text from outside cannot forge a line.
 * Journal:   when standard error is the journal's stream (JOURNAL_STREAM), a line begins with a <N>
 *            priority instead of time and name. After log_use_journal() a line becomes a journal
 *            entry, and its fields become fields of the journal (journalctl JOB=x NODE=y); if the journal
 *            does not accept the entry, the line is written to standard error.
 * Ownership: log_open() keeps its own copy of the program's name.
 * Units:     none.
 * Errors:    logging never fails; a line that cannot be written is dropped. A line is at most 2
 *            KiB.
 * Threads:   any; a line is one write(2) or one send.
 */
#pragma once

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct iovec;

typedef enum LogLevel {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
} LogLevel;

typedef int LogSend(const struct iovec *fields, int n);

/* Reads the level from SDTRAIN_LOG (error, warning, info or debug; info by default). */
void log_open(const char *program);
/* Sends entries with `send` (sd_journal_sendv); has no effect unless standard error is the journal's stream. */
void log_use_journal(LogSend *send);
/* Passes each message to `write` instead of writing it. A shared object has its own copy of this file; the program uses
 * this call to receive the messages of that copy. Then only the program's own level counts. */
void log_lend(void (*write)(LogLevel level, const char *text));
void log_set_level(LogLevel level);
void log_set_field(const char *key, const char *value);

void log_write(LogLevel level, const char *format, ...) _printf_(2, 3);
/* Logs a transition that has a message id (base/message-id.h). */
void log_event(LogLevel level, const char *message_id, const char *format, ...) _printf_(3, 4);
/* Works like log_event(), for a text that is already formatted. The keys of the fields at the end of the text are read
 * from format. */
void log_text(LogLevel level, const char *message_id, const char *format, const char *text);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
