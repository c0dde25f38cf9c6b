/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - see log.h. */
#include "base/log.h"

#include "base/clock.h"
#include "base/text/printable.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FIELDS_MAX = 8, WORDS_MAX = 16, ENTRY_MAX = WORDS_MAX + FIELDS_MAX + 4 };
enum { LINE_MAX_BYTES = 2048, FIELD_BYTES = 128 };

typedef struct LogField {
    size_t n_key; /* length of the key with its '=' */
    char word[FIELD_BYTES];
} LogField;

static struct {
    char program[32];
    LogLevel level;
    bool journal;  /* whether standard error is the journal's stream */
    LogSend *send; /* NULL: messages go only to standard error, as lines */
    void (*lent_to)(LogLevel level, const char *text);
    LogField fields[FIELDS_MAX];
    size_t n_fields;
    pthread_mutex_t lock; /* guards fields */
} logger = {.program = "sdtrain", .level = LOG_LEVEL_INFO, .lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const level_name[] = {"error", "warning", "info", "debug"};
static const int level_priority[] = {3, 4, 6, 7};

/* Compares standard error with JOURNAL_STREAM, "<device>:<inode>" of the stream that the service manager opened. The
 * variable alone is not enough: child processes inherit it even if their standard error is another file. */
static bool is_journal_stream(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_open(const char *program)
{
    (void)snprintf(logger.program, sizeof(logger.program), "%s", program);
    logger.journal = is_journal_stream();

    const char *wanted = getenv("SDTRAIN_LOG");
    for (size_t i = 0; wanted && i < ELEMENTSOF(level_name); i++)
        if (strcmp(wanted, level_name[i]) == 0)
            logger.level = (LogLevel)i;
}

void log_use_journal(LogSend *send) { logger.send = send; }

void log_lend(void (*write)(LogLevel level, const char *text))
{
    logger.lent_to = write;
    logger.level = LOG_LEVEL_DEBUG;
}

void log_set_level(LogLevel level) { logger.level = level; }

void log_set_field(const char *key, const char *value)
{
    LogField field;
    (void)snprintf(field.word, sizeof(field.word), "%s=%s", key, value);
    field.n_key = strlen(key) + 1;
    pthread_mutex_lock(&logger.lock);
    size_t i = 0;
    while (i < logger.n_fields && strncmp(logger.fields[i].word, field.word, field.n_key) != 0)
        i++;
    assert(i < FIELDS_MAX && field.n_key < FIELD_BYTES);
    logger.fields[i] = field;
    logger.n_fields = MAX(logger.n_fields, i + 1);
    pthread_mutex_unlock(&logger.lock);
}

/* ---- the fields of a message ---- */

typedef struct Word {
    const char *text; /* "KEY=value", without a NUL at its end */
    size_t n;
} Word;

/* Returns the last word of text[0..n). The result's n is 0 if the word is not an upper-case key followed by '='. */
static Word last_field(const char *text, size_t n)
{
    size_t begin = n;
    while (begin > 0 && text[begin - 1] != ' ')
        begin--;
    size_t n_key = strspn(text + begin, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    bool is_field = n_key > 0 && begin + n_key < n && text[begin + n_key] == '=' &&
                    text[begin] >= 'A' && text[begin] <= 'Z';
    return (Word){text + begin, is_field ? n - begin : 0};
}

static size_t key_bytes(Word w) { return (size_t)((char *)memchr(w.text, '=', w.n) - w.text) + 1; }

static bool has_key(Word w, const char *key, size_t n_key)
{
    return w.n >= n_key && memcmp(w.text, key, n_key) == 0;
}

/* Finds the fields at the end of the text. Only keys that the format names count, so a text from outside that looks
 * like a field does not become one. */
static size_t split_fields(const char *format, const char *text, Word ret[WORDS_MAX])
{
    size_t n_format = strlen(format), n_text = strlen(text), n_words = 0;
    while (n_words < WORDS_MAX) {
        Word wanted = last_field(format, n_format), found = last_field(text, n_text);
        if (wanted.n == 0 || found.n == 0 || !has_key(found, wanted.text, key_bytes(wanted)))
            break;
        ret[n_words++] = found;
        n_format = (size_t)(wanted.text - format);
        n_text = (size_t)(found.text - text);
        n_format -= n_format > 0;
        n_text -= n_text > 0;
    }
    return n_words;
}

/* Tells whether the message itself has a field with this key. */
static bool is_logged(const LogField *field, const Word *words, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++)
        if (has_key(words[i], field->word, field->n_key))
            return true;
    return false;
}

/* ---- output ---- */

static struct iovec entry_of(char *text) { return (struct iovec){text, strlen(text)}; }

/* line begins with "MESSAGE=". */
static bool send_entry(LogLevel level, const char *message_id, char *line, const Word *words,
                       size_t n_words)
{
    char priority[16], program[64], id[64];
    struct iovec entry[ENTRY_MAX];
    int n = 0;
    (void)snprintf(priority, sizeof(priority), "PRIORITY=%d", level_priority[level]);
    (void)snprintf(program, sizeof(program), "SYSLOG_IDENTIFIER=%s", logger.program);
    entry[n++] = entry_of(line);
    entry[n++] = entry_of(priority);
    entry[n++] = entry_of(program);
    if (message_id) {
        (void)snprintf(id, sizeof(id), "MESSAGE_ID=%s", message_id);
        entry[n++] = entry_of(id);
    }
    for (size_t i = 0; i < n_words; i++)
        if (words[i].n > key_bytes(words[i])) /* an empty field is useless in the journal */
            entry[n++] = (struct iovec){(char *)words[i].text, words[i].n};

    LogField fields[FIELDS_MAX]; /* a copy, as sending may block and must not hold the lock */
    pthread_mutex_lock(&logger.lock);
    size_t n_fields = logger.n_fields;
    memcpy(fields, logger.fields, sizeof(fields));
    pthread_mutex_unlock(&logger.lock);
    for (size_t i = 0; i < n_fields; i++)
        if (!is_logged(&fields[i], words, n_words))
            entry[n++] = entry_of(fields[i].word);
    return logger.send(entry, n) >= 0;
}

static size_t append(char *line, size_t used, const char *format, ...) _printf_(3, 4);
static size_t append(char *line, size_t used, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line + used, LINE_MAX_BYTES - used, format, ap);
    va_end(ap);
    return MIN(used + (size_t)MAX(n, 0), (size_t)LINE_MAX_BYTES - 1);
}

static size_t append_prefix(char *line, LogLevel level)
{
    if (logger.journal)
        return append(line, 0, "<%d>", level_priority[level]);

    uint64_t now_usec = clock_realtime_usec();
    time_t seconds = (time_t)(now_usec / USEC_PER_SEC);
    struct tm tm;
    char stamp[32];
    (void)gmtime_r(&seconds, &tm);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
    return append(line, 0, "%s.%03uZ %s %s: ", stamp, (unsigned)(now_usec / USEC_PER_MSEC % 1000),
                  level_name[level], logger.program);
}

static void write_line(LogLevel level, const char *text, const Word *words, size_t n_words)
{
    char line[LINE_MAX_BYTES];
    size_t used = append_prefix(line, level);
    used = append(line, used, "%s", text);
    pthread_mutex_lock(&logger.lock);
    for (size_t i = 0; i < logger.n_fields; i++)
        if (!is_logged(&logger.fields[i], words, n_words))
            used = append(line, used, " %s", logger.fields[i].word);
    pthread_mutex_unlock(&logger.lock);

    used = MIN(used, (size_t)LINE_MAX_BYTES - 2);
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, used) < 0)
        return; /* a full or closed standard error must not stop training */
}

void log_text(LogLevel level, const char *message_id, const char *format, const char *formatted)
{
    static const char prefix[] = "MESSAGE=";
    char line[LINE_MAX_BYTES];
    if (level > logger.level)
        return;
    if (logger.lent_to) {
        logger.lent_to(level, formatted);
        return;
    }
    memcpy(line, prefix, sizeof(prefix));
    char *text = line + sizeof(prefix) - 1;
    (void)snprintf(text, sizeof(line) - sizeof(prefix), "%s", formatted); /* a long text is cut */
    printable_make(text); /* the text may quote file names, keys and peers' messages */

    Word words[WORDS_MAX];
    size_t n_words = split_fields(format, text, words);
    if (!logger.journal || !logger.send || !send_entry(level, message_id, line, words, n_words))
        write_line(level, text, words, n_words);
}

_printf_(3, 0) static void write_message(LogLevel level, const char *message_id, const char *format,
                                         va_list ap)
{
    char text[LINE_MAX_BYTES];
    if (level > logger.level)
        return;
    (void)vsnprintf(text, sizeof(text), format, ap); /* a long text is cut */
    log_text(level, message_id, format, text);
}

void log_write(LogLevel level, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    write_message(level, NULL, format, ap);
    va_end(ap);
}

void log_event(LogLevel level, const char *message_id, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    write_message(level, message_id, format, ap);
    va_end(ap);
}
