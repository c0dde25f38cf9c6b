/* SPDX-License-Identifier: Apache-2.0 */
/* evals.c - `sdctl job evals`: lists the verdict about each checkpoint of the followed job, with the numbers and files
 * that the evaluation has reported. The verdicts come from phases/<job>, the results from evals/<job>/<step>. */
#include "base/json/json-build.h"
#include "ctl/arguments.h"
#include "ctl/job/results/eval-list.h"
#include "ctl/job/verbs.h"
#include "ctl/model-json.h"
#include "ctl/print.h"
#include "ctl/table.h"

#include <math.h>
#include <string.h>

enum { COLUMNS_MAX = 6 }; /* of numbers, in a table; -o json has all */

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void add_results(JsonBuild *b, const EvalRecord *eval)
{
    char hash[HASH_TEXT_BYTES];
    json_t *numbers = json_object(), *artifacts = json_object();
    for (size_t i = 0; i < eval->results.n_numbers; i++)
        (void)json_object_set_new(numbers, eval->results.numbers[i].name,
                                  number_or_null(eval->results.numbers[i].value));
    for (size_t i = 0; i < eval->results.n_artifacts; i++)
        (void)json_object_set_new(artifacts, eval->results.artifacts[i].name,
                                  json_string(eval->results.artifacts[i].uri));
    json_add(b, "numbers", numbers);
    json_add(b, "artifacts", artifacts);
    json_add_text(b, "text", eval->results.text);
    json_add_real(b, "seconds", eval->results.seconds);
    json_add_text(b, "node", eval->node);
    json_add_text(b, "checkpoint", eval->uri);
    json_add_text(b, "hash", hash_format(eval->hash, hash));
}

static json_t *list_json(const ReportEvals *evals)
{
    json_t *list = json_array();
    for (size_t i = 0; i < evals->n; i++) {
        const ReportEval *eval = &evals->list[i];
        JsonBuild b = json_build();
        json_add_int(&b, "step", eval->step);
        json_add_text(&b, "verdict", eval->verdict);
        json_add_real(&b, "at", (double)eval->at_usec * 1e-6);
        if (eval->record)
            add_results(&b, eval->record);
        json_array_append_new(list, json_build_end(&b));
    }
    return list;
}

/* Finds the names of the numbers, in the order in which they appear first. */
static size_t find_columns(json_t *list, const char *columns[COLUMNS_MAX])
{
    json_t *one, *value;
    const char *name;
    size_t i, n = 0;
    json_array_foreach (list, i, one) {
        json_object_foreach (json_object_get(one, "numbers"), name, value) {
            size_t k = 0;
            while (k < n && strcmp(columns[k], name) != 0)
                k++;
            if (k == n && n < COLUMNS_MAX)
                columns[n++] = name;
        }
    }
    return n;
}

static void add_numbers(Table *t, json_t *one, const char *const *columns, size_t n)
{
    json_t *numbers = json_object_get(one, "numbers");
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(numbers, columns[i]);
        if (json_is_number(value))
            table_add(t, PAINT_NONE, "%.6g", json_number_value(value));
        else
            table_add(t, PAINT_NONE, "%s", value ? "nan" : "");
    }
}

static void print_list(json_t *list)
{
    const char *heads[4 + COLUMNS_MAX + 1] = {"STEP", "VERDICT", "TIME", "TOOK"};
    json_t *one, *uri;
    const char *name;
    size_t i, n = find_columns(list, heads + 4);
    heads[4 + n] = "ARTIFACTS";
    Table *t = table_new(heads, 4 + n + 1);
    json_array_foreach (list, i, one) {
        char at[TIME_TEXT_BYTES], took[SPAN_TEXT_BYTES] = "", artifacts[1200] = "";
        size_t used = 0;
        if (json_has_number(one, "seconds"))
            (void)span_text(json_number(one, "seconds"), took);
        json_object_foreach (json_object_get(one, "artifacts"), name, uri) {
            if (used < sizeof(artifacts))
                used += (size_t)snprintf(artifacts + used, sizeof(artifacts) - used, "%s%s",
                                         used ? " " : "", json_string_value(uri));
        }
        table_add(t, PAINT_NONE, "%lld", json_count(one, "step"));
        table_add(t, paint_of(json_text(one, "verdict")), "%s", json_text(one, "verdict"));
        table_add(t, PAINT_NONE, "%s", date_text((uint64_t)(json_number(one, "at") * 1e6), at));
        table_add(t, PAINT_NONE, "%s", took);
        add_numbers(t, one, heads + 4, n);
        table_add(t, PAINT_NONE, "%s", artifacts);
    }
    table_print(t);
}

static int read_list(CtlClient *client, const char *name, json_t **ret, Error *err)
{
    ModelJob *job;
    _cleanup_(model_freep) Model *model = NULL;
    _cleanup_(report_evals_clear) ReportEvals list = {0};
    int r = model_read(client, &model, err);
    if (r == 0)
        r = model_find_job(model, name, &job, err);
    if (r < 0)
        return r;
    if (strcmp(model_kind(job), "eval") != 0)
        return error_set(err, -EINVAL, "job %s: kind: \"%s\": it evaluates no other job", name,
                         model_kind(job));
    r = eval_list_add(&list, client, job, err);
    if (r == 0)
        *ret = list_json(&list);
    return r;
}

int job_evals(const Arguments *a)
{
    Error err = ERROR_INIT;
    CtlClient client = {0};
    json_t *list = NULL;
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = read_list(&client, a->operand, &list, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);
    if (a->json) {
        print_json_exact(list);
        return CTL_DONE;
    }
    if (json_array_size(list) == 0)
        printf("no checkpoint has been evaluated yet\n");
    else
        print_list(list);
    json_decref(list);
    return CTL_DONE;
}
