/* SPDX-License-Identifier: Apache-2.0 */
/* fields-records.c - writes and reads every kind of record, by the tables of fields that the
 * record's source keeps private. */
#include "tests/versions/fields.h"

#include "cluster/eval-record.h"
#include "cluster/records.c" /* the tables in records.c are private */

#include <stdio.h>

enum { ELEMENTS = 2, WORDS_MAX = 16 };

typedef struct Kind {
    const char *name;
    const Field *fields;
    size_t n_fields, n_bytes;
    int (*decode)(const char *source, const char *text, size_t n, void *ret, Error *err);
    char *(*encode)(const void *record, const char *old_text);
    void (*clear)(void *record);
} Kind;

#define KIND_FUNCTIONS(Type, prefix)                                                               \
    static int prefix##_read(const char *source, const char *text, size_t n, void *ret,            \
                             Error *err)                                                           \
    {                                                                                              \
        return prefix##_decode(source, text, n, (Type *)ret, err);                                 \
    }                                                                                              \
    static char *prefix##_write(const void *record, const char *old_text)                          \
    {                                                                                              \
        return prefix##_encode((const Type *)record, old_text);                                    \
    }                                                                                              \
    static void prefix##_empty(void *record) { prefix##_clear((Type *)record); }

/* clang-format off */
#define KINDS(X)                                                  \
    X("leader", LeaderRecord, leader_record, leader_fields)       \
    X("nodes", NodeRecord, node_record, node_fields)              \
    X("history", HistoryRecord, history_record, history_fields)   \
    X("health", HealthRecord, health_record, health_fields)       \
    X("cordons", CordonRecord, cordon_record, cordon_fields)      \
    X("specs", SpecRecord, spec_record, spec_fields)              \
    X("desired", DesiredRecord, desired_record, desired_fields)   \
    X("programs", ProgramRecord, program_record, program_fields)  \
    X("worlds", WorldRecord, world_record, world_fields)          \
    X("secrets", SecretRecord, secret_record, secret_fields)      \
    X("phases", PhaseRecord, phase_record, phase_fields)          \
    X("ranks", RanksRecord, ranks_record, ranks_fields)           \
    X("rendezvous", RendezvousRecord, rendezvous_record, rendezvous_fields)      \
    X("checkpoints", CheckpointsRecord, checkpoints_record, checkpoints_fields)  \
    X("progress", ProgressRecord, progress_record, progress_fields)              \
    X("evals", EvalRecord, eval_record, eval_fields)              \
    X("incidents", IncidentRecord, incident_record, incident_fields)             \
    X("alerts", AlertRecord, alert_record, alert_fields)          \
    X("requests", RequestRecord, request_record, request_fields)  \
    X("asks", LogRequestRecord, log_request_record, log_request_fields)       \
    X("lines", LogLinesRecord, log_lines_record, log_lines_fields)
/* clang-format on */

#define AS_FUNCTIONS(name, Type, prefix, table) KIND_FUNCTIONS(Type, prefix)
KINDS(AS_FUNCTIONS)
#define AS_ROW(name, Type, prefix, table)                                                          \
    {name, table, ELEMENTSOF(table), sizeof(Type), prefix##_read, prefix##_write, prefix##_empty},
static const Kind kinds[] = {KINDS(AS_ROW)};
/* etcd has all of these kinds except the node's own file. */
_Static_assert(ELEMENTSOF(kinds) == KEY_KINDS + 1, "a kind of record is missing here");

/* ---- writing ---- */

static size_t words_of(const Field *fields, size_t n_fields)
{
    size_t n = 1;
    for (size_t i = 0; i < n_fields; i++) {
        if (fields[i].type == FIELD_CHOICE)
            n = MAX(n, fields[i].n_names);
        if (fields[i].fields)
            n = MAX(n, words_of(fields[i].fields, fields[i].n_fields));
    }
    return n;
}

static int64_t within(const Field *f, int64_t wanted) { return MIN(MAX(wanted, f->min), f->max); }

static void fill(const Field *fields, size_t n_fields, char *record, size_t word, int element,
                 int *number);

static void fill_field(const Field *f, char *record, size_t word, int element, int *number)
{
    char *at = record + f->offset;
    const int n = ++*number;
    switch (f->type) {
    case FIELD_TEXT:
    case FIELD_VERBATIM:
        fields_text(f->name, element, at, f->size);
        break;
    case FIELD_STRING:
        *(char **)at = calloc(1, 64);
        assert(*(char **)at);
        fields_text(f->name, element, *(char **)at, 64);
        break;
    case FIELD_INT:
        *(int *)at = (int)within(f, n);
        break;
    case FIELD_INT64:
        *(int64_t *)at = within(f, 1000 + n);
        break;
    case FIELD_DOUBLE:
    case FIELD_LOSS:
        *(double *)at = n + 0.5;
        break;
    case FIELD_BOOL:
        *(bool *)at = true;
        break;
    case FIELD_CHOICE:
        *(int *)at = (int)(word % f->n_names);
        break;
    case FIELD_HASH:
        *(Hash *)at = (Hash){(uint64_t)n, ~(uint64_t)n};
        break;
    case FIELD_SLOTS:
        *(uint64_t *)at = 0x16;
        break;
    case FIELD_OBJECT:
        fill(f->fields, f->n_fields, at, word, element, number);
        break;
    case FIELD_LIST:
        *(char **)at = calloc(ELEMENTS, f->element_bytes);
        assert(*(char **)at);
        at = *(char **)at;
        __attribute__((fallthrough));
    case FIELD_ARRAY:
        *(size_t *)(record + f->count_offset) = ELEMENTS;
        for (int i = 0; i < ELEMENTS; i++)
            fill(f->fields, f->n_fields, at + (size_t)i * f->element_bytes, word, i, number);
        break;
    }
}

static void fill(const Field *fields, size_t n_fields, char *record, size_t word, int element,
                 int *number)
{
    for (size_t i = 0; i < n_fields; i++)
        fill_field(&fields[i], record, word, element, number);
}

/* Removes all fields without which a reader must accept the record. */
static void leave_least(json_t *object, const Field *fields, size_t n_fields)
{
    for (size_t i = 0; i < n_fields; i++) {
        const Field *f = &fields[i];
        json_t *value = json_object_get(object, f->name), *element;
        size_t k;
        if (f->need == MAYBE)
            (void)json_object_del(object, f->name);
        else if (f->type == FIELD_OBJECT)
            leave_least(value, f->fields, f->n_fields);
        else if (f->fields)
            json_array_foreach (value, k, element)
                leave_least(element, f->fields, f->n_fields);
    }
}

static void write_kind(const Kind *kind)
{
    _cleanup_free_ char *record = calloc(1, kind->n_bytes);
    assert(record);
    const size_t n_words = words_of(kind->fields, kind->n_fields);
    assert(n_words <= WORDS_MAX);
    for (size_t word = 0; word < n_words; word++) {
        int number = 0;
        fill(kind->fields, kind->n_fields, record, word, 0, &number);
        /* a world must have as many ranks as its runs have slots */
        if (kind->fields == world_fields) {
            WorldRecord *world = (WorldRecord *)(void *)record;
            world->size = 0;
            for (size_t i = 0; i < world->n_runs; i++)
                world->size += __builtin_popcountll(world->runs[i].slots);
        }
        if (kind->fields == log_lines_fields) { /* the parts' lengths must add up to the text */
            LogLinesRecord *lines = (LogLinesRecord *)(void *)record;
            for (size_t i = 0; i < lines->n_parts; i++)
                lines->parts[i].bytes = i == 0 ? (int64_t)strlen(lines->text) : 0;
        }
        _cleanup_free_ char *text = kind->encode(record, NULL);
        kind->clear(record);
        fields_line(kind->name, text);
        if (word > 0)
            continue;
        _cleanup_json_ json_t *json = json_loads(text, 0, NULL);
        leave_least(json, kind->fields, kind->n_fields);
        _cleanup_free_ char *least = json_dumps(json, JSON_COMPACT);
        fields_line(kind->name, least);
    }
}

void records_write(void)
{
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        write_kind(&kinds[i]);
}

/* ---- reading ---- */

/* Adds an unknown member, as a later version may, at each place where a writer that overwrites this
 * text keeps unknown members. */
static void plant(json_t *object, const Field *fields, size_t n_fields)
{
    int r = json_object_set_new(object, "of_a_later_version", json_pack("{s:[i]}", "is", 1));
    assert(r == 0);
    for (size_t i = 0; i < n_fields; i++) {
        const Field *f = &fields[i];
        json_t *value = json_object_get(object, f->name), *element;
        size_t k;
        if (f->type == FIELD_OBJECT && value)
            plant(value, f->fields, f->n_fields);
        /* a list whose elements have no identity is not merged, and its unknown members are lost */
        else if (f->identity)
            json_array_foreach (value, k, element)
                plant(element, f->fields, f->n_fields);
    }
}

/* Reads a text, writes the record again, and compares the result with the text. */
static int try(const Kind *kind, const char *text, const char *old_text)
{
    _cleanup_free_ char *record = calloc(1, kind->n_bytes), *written = NULL;
    assert(record);
    Error err = ERROR_INIT;
    if (kind->decode(kind->name, text, strlen(text), record, &err) < 0) {
        printf("%s\n", err.text);
        return 1;
    }
    written = kind->encode(record, old_text);
    kind->clear(record);
    _cleanup_json_ json_t *then = json_loads(text, 0, NULL);
    _cleanup_json_ json_t *now = json_loads(written, 0, NULL);
    return fields_holds(kind->name, "", then, now);
}

int records_read(const char *name, const char *text, bool newer)
{
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        const Kind *kind = &kinds[i];
        if (strcmp(kind->name, name) != 0)
            continue;
        _cleanup_json_ json_t *json = json_loads(text, 0, NULL);
        if (!json_is_object(json)) {
            printf("%s: not a JSON object\n", name);
            return 1;
        }
        int bad = try(kind, text, newer ? text : NULL);
        plant(json, kind->fields, kind->n_fields);
        _cleanup_free_ char *planted = json_dumps(json, JSON_COMPACT);
        return bad + try(kind, planted, planted);
    }
    return -1;
}
