/* SPDX-License-Identifier: Apache-2.0 */
/* journal-format.c - the lines of a journal other than events: its head, its settings and the words of a decision.
 * The same tables serve writing and reading. */
#include "base/json/field-table.h"
#include "cluster/keys.h"
#include "controller/journal/decision-log.h"
#include "controller/journal/journal.h"

#include <string.h>

#define WIDE(T, field)                                                                             \
    {                                                                                              \
#field, FIELD_INT64, JSON_OPTIONAL, offsetof(T, field), .max = INT64_MAX                   \
    }
#define NARROW(T, field, need, low, high)                                                          \
    {                                                                                              \
#field, FIELD_INT, need, offsetof(T, field), .min = low, .max = high                       \
    }

/* A setting that an older version did not write keeps its default. */
static const Field config_numbers[] = {
    WIDE(ClusterConfig, ttl_usec),
    WIDE(ClusterConfig, grace_usec),
    WIDE(ClusterConfig, start_deadline_usec),
    WIDE(ClusterConfig, leave_deadline_usec),
    WIDE(ClusterConfig, hang_wait_usec),
    WIDE(ClusterConfig, strike_window_usec),
    WIDE(ClusterConfig, quarantine_usec),
    WIDE(ClusterConfig, escalate_usec),
    WIDE(ClusterConfig, queue_patience_usec),
    NARROW(ClusterConfig, max_strikes, JSON_OPTIONAL, 0, 1000000),
    NARROW(ClusterConfig, incidents_kept, JSON_OPTIONAL, 1, 10000),
};

/* Each number takes eight bytes of a ClusterConfig, padding included; the two texts take the rest. */
_Static_assert(sizeof(ClusterConfig) == ELEMENTSOF(config_numbers) * sizeof(uint64_t) +
                                            sizeof(((ClusterConfig *)0)->admit) +
                                            sizeof(((ClusterConfig *)0)->prices),
               "a replay must know the new setting: name it above");

static const Field limits_numbers[] = {
    NARROW(ClusterLimits, nodes, JSON_REQUIRED, 1, 16384),
    NARROW(ClusterLimits, jobs, JSON_REQUIRED, 1, 1024),
    NARROW(ClusterLimits, reports, JSON_REQUIRED, 1, 65536),
    NARROW(ClusterLimits, incidents, JSON_REQUIRED, 2, 20002),
    NARROW(ClusterLimits, requests, JSON_REQUIRED, 1, 1 << 16),
};

static json_t *numbers_json(const Field *numbers, size_t n, const void *from)
{
    json_t *object = json_object();
    field_table_write(object, numbers, n, from);
    return object;
}

json_t *journal_config_json(const ClusterConfig *config)
{
    json_t *object = numbers_json(config_numbers, ELEMENTSOF(config_numbers), config);
    /* The two calls cannot fail: both texts came from JSON. */
    if (config->admit[0])
        (void)json_object_set_new(object, "admit", json_string(config->admit));
    if (config->prices[0])
        (void)json_object_set_new(object, "prices", json_string(config->prices));
    return object;
}

static void config_read(JsonReader *r, ClusterConfig *ret)
{
    field_table_read(r, config_numbers, ELEMENTSOF(config_numbers), ret);
    json_get_text(r, "admit", JSON_OPTIONAL, ret->admit, sizeof(ret->admit));
    json_get_text(r, "prices", JSON_OPTIONAL, ret->prices, sizeof(ret->prices));
}

int journal_config_read(const char *source, json_t *object, ClusterConfig *ret, Error *err)
{
    *ret = cluster_config_default;
    JsonReader r = json_open(source, object, JSON_ANY_KEYS, err);
    config_read(&r, ret);
    return json_close(&r);
}

json_t *journal_head_json(const JournalHead *head)
{
    json_t *limits = numbers_json(limits_numbers, ELEMENTSOF(limits_numbers), &head->limits);
    json_t *line = json_pack("{s:i, s:s, s:s, s:o, s:o, s:I, s:b}", "journal", JOURNAL_VERSION,
                             "version", head->version, "cluster", head->cluster, "config",
                             journal_config_json(&head->config), "limits", limits, "snapshot",
                             (json_int_t)head->n_snapshot, "calm", head->quiescent);
    if (line && (head->lost_events > 0 || head->lost_decisions > 0)) {
        /* A failure, out of memory, is ignored: the replay then reports no lost lines. */
        (void)json_object_set_new(line, "lost_events", json_integer(head->lost_events));
        (void)json_object_set_new(line, "lost_decisions", json_integer(head->lost_decisions));
    }
    return line;
}

int journal_head_read(const char *source, json_t *line, JournalHead *ret, Error *err)
{
    *ret = (JournalHead){.config = cluster_config_default};
    int64_t version;
    JsonReader r = json_open(source, line, JSON_ANY_KEYS, err);
    json_get_int(&r, "journal", JSON_REQUIRED, 1, JOURNAL_VERSION, &version);
    json_get_text(&r, "version", JSON_REQUIRED, ret->version, sizeof(ret->version));
    json_get_text(&r, "cluster", JSON_REQUIRED, ret->cluster, sizeof(ret->cluster));
    json_get_int(&r, "snapshot", JSON_REQUIRED, 0, INT32_MAX, &ret->n_snapshot);
    json_get_bool(&r, "calm", JSON_REQUIRED, &ret->quiescent);
    json_get_int(&r, "lost_events", JSON_OPTIONAL, 0, INT64_MAX, &ret->lost_events);
    json_get_int(&r, "lost_decisions", JSON_OPTIONAL, 0, INT64_MAX, &ret->lost_decisions);
    JsonReader config = json_get_object(&r, "config", JSON_REQUIRED);
    config_read(&config, &ret->config);
    json_close(&config); /* r also holds the error of `config` */
    JsonReader limits = json_get_object(&r, "limits", JSON_REQUIRED);
    field_table_read(&limits, limits_numbers, ELEMENTSOF(limits_numbers), &ret->limits);
    json_close(&limits); /* r also holds the error of `limits` */
    if (!name_is_valid(ret->cluster))
        json_refuse(&r, "cluster", "\"%s\" is not a name", ret->cluster);
    ret->config.incidents_kept = MIN(ret->config.incidents_kept, ret->limits.incidents - 1);
    return json_close(&r);
}

static void add_journal_line(const LogLine *line, void *userdata)
{
    json_t **lines = userdata;
    json_t *text = json_string(line->text);
    if (!text) /* the line was cut within a character */
        text = json_string("(a line that is not UTF-8)");
    if (*lines && json_array_append_new(*lines, text) < 0) {
        json_decref(*lines);
        *lines = NULL;
    }
}

json_t *journal_words(const Decision *decision)
{
    json_t *lines = json_array();
    decision_log_lines(decision, add_journal_line, &lines);
    return lines;
}
