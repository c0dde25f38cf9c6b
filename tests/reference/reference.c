/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - prints the tables of docs/reference from the tables in the code, as Markdown. The
 * test `docs` compares its output with the pages. usage: reference
 * job|exec-job|eval-job|records|channel|causes|exit-codes|xids */
#include "cluster/record-tables.h"
#include "controller/core/state/causes.h"
#include "health/xid-table.h"
#include "protocol/exit-code.h"
#include "tests/reference/protocol-texts.h"
#include "tests/reference/record-texts.h"

#include <stdlib.h>
#include <string.h>

static bool is_complete = true;

static const char *described(const char *help, const char *what, const char *name)
{
    if (help)
        return help;
    fprintf(stderr, "reference: %s %s has no description\n", what, name);
    is_complete = false;
    return "";
}

/* ---- the job file ---- */

static void print_keys(const JobKey *keys, size_t n)
{
    printf("| key | default | meaning |\n|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        const JobKey *k = &keys[i];
        printf("| `%s` | ", k->key);
        if (k->required)
            printf("required");
        else if (k->shown)
            printf("%s", k->shown);
        else
            printf("`%s`", k->value);
        printf(" | %s |\n", k->help);
    }
}

static void print_job(void) { print_keys(job_keys, n_job_keys); }

static void print_exec_job(void) { print_keys(exec_job_keys, n_exec_job_keys); }
static void print_eval_job(void) { print_keys(eval_job_keys, n_eval_job_keys); }
static void print_loss_job(void) { print_keys(loss_job_keys, n_loss_job_keys); }
static void print_grid_job(void) { print_keys(grid_job_keys, n_grid_job_keys); }

/* ---- records ---- */

static bool is_described[1024];

static void note_described(const char *path)
{
    const char *one;
    for (size_t i = 0; (one = record_described_field(i)); i++)
        if (strcmp(one, path) == 0)
            is_described[i] = true;
}

static void print_type(const Field *f)
{
    static const char *const words[] = {
        [FIELD_TEXT] = "text",     [FIELD_STRING] = "text",           [FIELD_INT] = "integer",
        [FIELD_INT64] = "integer", [FIELD_DOUBLE] = "number",         [FIELD_BOOL] = "true, false",
        [FIELD_HASH] = "hash",     [FIELD_SLOTS] = "slots",           [FIELD_OBJECT] = "object",
        [FIELD_LIST] = "list",     [FIELD_ARRAY] = "list of at most",
    };
    if (f->type == FIELD_CHOICE) {
        for (size_t i = 0; i < f->n_names; i++)
            printf("%s`%s`", i ? ", " : "", f->names[i]);
        return;
    }
    printf("%s", words[f->type]);
    if (f->type == FIELD_ARRAY)
        printf(" %zu", f->size);
    if (f->type == FIELD_INT && f->max < INT32_MAX)
        printf(" %lld to %lld", (long long)f->min, (long long)f->max);
}

static void print_fields(const char *kind, const char *parent, const Field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const Field *f = &fields[i];
        char path[96], full[128];
        (void)snprintf(path, sizeof(path), "%s%s", parent, f->name);
        (void)snprintf(full, sizeof(full), "%s.%s", kind, path);
        printf("| `%s` | ", path);
        print_type(f);
        printf(" | %s | %s |\n", f->need == JSON_REQUIRED ? "yes" : "",
               described(record_field_reference(kind, path), "field", full));
        note_described(full);
        note_described(path);
        if (f->n_fields == 0)
            continue;
        (void)snprintf(full, sizeof(full), "%s%s.", path, f->type == FIELD_OBJECT ? "" : "[]");
        print_fields(kind, full, f->fields, f->n_fields);
    }
}

static void print_kinds(void)
{
    printf("| kind | key | written by |\n|---|---|---|\n");
    for (size_t i = 0; i < n_record_tables; i++) {
        const RecordReference *r = record_reference(record_tables[i].kind);
        if (r)
            printf("| [%s](#%s) | `%s` | %s |\n", r->kind, r->kind, r->key, r->writer);
        else
            (void)described(NULL, "record", record_tables[i].kind);
    }
}

static void print_records(void)
{
    print_kinds();
    for (size_t i = 0; i < n_record_tables; i++) {
        const RecordTable *t = &record_tables[i];
        const RecordReference *r = record_reference(t->kind);
        if (!r)
            continue; /* print_kinds() has reported the record without a description */
        printf("\n### %s\n\n%s\n\n| field | type | required | meaning |\n|---|---|---|---|\n",
               t->kind, r->help);
        print_fields(t->kind, "", t->fields, t->n_fields);
    }
    const char *one;
    for (size_t i = 0; (one = record_described_field(i)); i++)
        if (!is_described[i]) {
            fprintf(stderr, "reference: no record has the field %s\n", one);
            is_complete = false;
        }
}

/* ---- the channel ---- */

static void print_channel(void)
{
    printf("| message | from | meaning |\n|---|---|---|\n");
    for (int t = 0; t < CHANNEL_TYPES; t++)
        printf("| `%s` | %s | %s |\n", channel_type_name((ChannelType)t),
               channel_is_of_daemon((ChannelType)t) ? "daemon" : "trainer",
               described(channel_type_help((ChannelType)t), "message",
                         channel_type_name((ChannelType)t)));
    printf("\n| field | type | messages | required | meaning |\n|---|---|---|---|---|\n");
    ChannelField f;
    for (size_t i = 0; channel_field(i, &f); i++) {
        printf("| `%s` | %s | ", f.name, f.kind);
        if ((f.types | 1u << CHANNEL_HELLO) == ~0u) {
            printf("all but `hello`");
        } else {
            const char *comma = "";
            for (int t = 0; t < CHANNEL_TYPES; t++)
                if (f.types >> t & 1) {
                    printf("%s`%s`", comma, channel_type_name((ChannelType)t));
                    comma = ", ";
                }
        }
        printf(" | %s | %s |\n", f.newer ? "" : "yes",
               described(channel_field_help(f.name), "field", f.name));
    }
    printf("\nStages of a step, in order:");
    for (int s = 0; s < STAGE_COUNT; s++)
        printf("%s `%s`", s ? "," : "", train_stage_name((TrainStage)s));
    printf(".\n");
}

/* ---- causes of failures, and exit codes by their cause ---- */

static void print_budget(const CauseRule *r)
{
    static const char *const words[] = {
        [BUDGET_NO_WORLD] = "ends no generation",
        [BUDGET_ONE] = "yes",
        [BUDGET_FREE] = "no",
        [BUDGET_FREE_PATIENCE] = "no, until the patience is over",
        [BUDGET_FREE_WHILE_OLDER] = "no, while an older commit is left",
    };
    printf("%s", r->is_final ? "the job is over" : words[r->budget]);
}

static void print_bounds(const CauseRule *r)
{
    printf("%s", r->is_final                    ? "its end"
                 : r->bounds                    ? r->bounds
                 : r->budget == BUDGET_NO_WORLD ? ""
                                                : "nothing");
}

static void print_blame(const CauseRule *r)
{
    static const char *const blames[] = {
        [BLAME_NONE] = "",
        [BLAME_STRIKE] = "a strike",
        [BLAME_STRIKE_OUT] = "a strike",
        [BLAME_LATE] = "left out of the next world",
        [BLAME_QUARANTINE] = "quarantine until it is uncordoned",
        [BLAME_REFUSAL] = "quarantine only for this job",
    };
    static const char *const owns[] = {
        [OWN_NEVER] = "",
        [OWN_BEFORE_STEP] = "; before the first step a spare takes its place",
        [OWN_IF_ALONE] = "a strike if only this node reports it, and a spare takes its place",
        [OWN_IF_OTHERS_RESTORE] =
            "a strike if all others have restored and a spare takes its place",
        [OWN_AFTER_PAUSE] = "a strike if only this node reports it",
    };
    printf("%s%s", blames[r->blame], owns[r->own]);
}

static void print_causes(void)
{
    printf("| cause | costs | one of K | bounded otherwise by | the node to blame |\n"
           "|---|---|---|---|---|\n");
    for (int i = CAUSE_NONE + 1; i < CAUSES; i++) {
        const CauseRule *r = cause_rule((Cause)i);
        printf("| %s | %s | ", r->name, described(r->costs, "cause", r->name));
        print_budget(r);
        printf(" | ");
        print_bounds(r);
        printf(" | ");
        print_blame(r);
        printf(" |\n");
    }
}

static void print_answer(Cause cause)
{
    const CauseRule *r = cause_rule(cause);
    printf("| `%s` | %s | ", r->name, r->costs);
    print_budget(r);
    printf(" | ");
    print_blame(r);
    printf(" |\n");
}

static void print_exit_codes(void)
{
    printf("| code | name | meaning | cause | costs | one of K | the node |\n"
           "|---|---|---|---|---|---|---|\n");
    for (int code = 0; code < 256; code++) {
        const char *class = exit_code_class(code);
        const char *help = exit_code_help(code);
        if (strcmp(class, "exit") == 0 && !help)
            continue;
        printf("| %d | `%s` | %s ", code, class, described(help, "exit code", class));
        if (code == EXIT_DONE) {
            printf("| | nothing | | |\n");
            continue;
        }
        print_answer(cause_of_code(code));
        if (code != EXIT_DATA_CORRUPT)
            continue;
        printf("| %d | | likewise, of a checkpoint ", code);
        print_answer(CAUSE_CHECKPOINT_CORRUPT);
    }
    printf("| | | a signal, or any other code ");
    print_answer(cause_of_code(-1));
    printf("| | | no progress: its node kills it ");
    print_answer(CAUSE_HANG);
}

/* ---- errors of the drivers ---- */

static void print_xids(void)
{
    size_t n;
    const XidRow *table = xid_table(&n);
    char name[XID_ROW_NAME_MAX];
    printf("| row | action | sources |\n|---|---|---|\n");
    for (size_t i = 0; i < n; i++)
        printf("| `%s` | %s | %s |\n", xid_row_name(&table[i], name),
               xid_action_name(table[i].action), table[i].sources);
}

int main(int argc, char *argv[])
{
    static const struct {
        const char *name;
        void (*print)(void);
    } parts[] = {{"job", print_job},
                 {"exec-job", print_exec_job},
                 {"eval-job", print_eval_job},
                 {"loss-job", print_loss_job},
                 {"grid-job", print_grid_job},
                 {"records", print_records},
                 {"channel", print_channel},
                 {"causes", print_causes},
                 {"exit-codes", print_exit_codes},
                 {"xids", print_xids}};
    const char *name = argc == 2 ? argv[1] : "";
    bool is_known = false;
    for (size_t i = 0; i < ELEMENTSOF(parts); i++)
        if (strcmp(parts[i].name, name) == 0) {
            parts[i].print();
            is_known = true;
        }
    if (!is_known)
        fprintf(stderr, "reference: \"%s\" is not a part of the reference\n", name);
    return is_known && is_complete ? EXIT_SUCCESS : EXIT_FAILURE;
}
