/* log.c - see log.h. */
#include "base/log.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIELDS_MAX = 8, LINE_MAX_BYTES = 2048 };

typedef struct LogField {
    char key[24];
    char value[104];
} LogField;

static struct {
    char program[32];
    LogLevel level;
    bool journal;
    LogField fields[FIELDS_MAX];
    size_t n_fields;
    pthread_mutex_t lock; /* guards fields */
} logger = {.program = "sdtrain", .level = LOG_LEVEL_INFO, .lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const level_name[] = {"error", "warning", "info", "debug"};
static const int level_priority[] = {3, 4, 6, 7};

void log_open(const char *program)
{
    (void)snprintf(logger.program, sizeof(logger.program), "%s", program);
    logger.journal = getenv("JOURNAL_STREAM") != NULL;

    const char *wanted = getenv("SDTRAIN_LOG");
    for (size_t i = 0; wanted && i < ELEMENTSOF(level_name); i++)
        if (strcmp(wanted, level_name[i]) == 0)
            logger.level = (LogLevel)i;
}

void log_set_level(LogLevel level) { logger.level = level; }

void log_set_field(const char *key, const char *value)
{
    pthread_mutex_lock(&logger.lock);
    size_t i = 0;
    while (i < logger.n_fields && strcmp(logger.fields[i].key, key) != 0)
        i++;
    assert(i < FIELDS_MAX);
    (void)snprintf(logger.fields[i].key, sizeof(logger.fields[i].key), "%s", key);
    (void)snprintf(logger.fields[i].value, sizeof(logger.fields[i].value), "%s", value);
    logger.n_fields = MAX(logger.n_fields, i + 1);
    pthread_mutex_unlock(&logger.lock);
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

void log_write(LogLevel level, const char *format, ...)
{
    if (level > logger.level)
        return;

    char line[LINE_MAX_BYTES];
    size_t used = append_prefix(line, level);

    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line + used, LINE_MAX_BYTES - used, format, ap);
    va_end(ap);
    used = MIN(used + (size_t)MAX(n, 0), (size_t)LINE_MAX_BYTES - 1);

    pthread_mutex_lock(&logger.lock);
    for (size_t i = 0; i < logger.n_fields; i++)
        used = append(line, used, " %s=%s", logger.fields[i].key, logger.fields[i].value);
    pthread_mutex_unlock(&logger.lock);

    used = MIN(used, (size_t)LINE_MAX_BYTES - 2);
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, used) < 0)
        return; /* a full or closed stderr must not stop training */
}
