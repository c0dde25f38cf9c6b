/* SPDX-License-Identifier: Apache-2.0 */
/* eval-results.c - see eval-results.h. */
#include "protocol/eval-results.h"

#include "base/macro.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Names become columns of tables and labels of curves: letters, digits and _ . / - @, the first a letter or digit. */
static bool name_is_good(const char *name)
{
    const size_t n = strlen(name);
    bool good = n > 0 && n <= EVAL_NAME_MAX && isalnum((unsigned char)*name);
    for (size_t i = 0; i < n; i++)
        good = good && (isalnum((unsigned char)name[i]) || strchr("_./-@", name[i]));
    return good;
}

int eval_results_add_number(EvalResults *results, const char *name, double value)
{
    size_t i = 0;
    if (!name_is_good(name))
        return -EINVAL;
    while (i < results->n_numbers && strcmp(results->numbers[i].name, name) != 0)
        i++;
    if (i == EVAL_NUMBERS_MAX)
        return -ENOSPC;
    (void)snprintf(results->numbers[i].name, sizeof(results->numbers[i].name), "%s", name);
    results->numbers[i].value = value;
    results->n_numbers = MAX(results->n_numbers, i + 1);
    return 0;
}

int eval_results_add_artifact(EvalResults *results, const char *name, const char *uri)
{
    size_t i = 0;
    if (!name_is_good(name) || !*uri || strlen(uri) > EVAL_URI_MAX)
        return -EINVAL;
    while (i < results->n_artifacts && strcmp(results->artifacts[i].name, name) != 0)
        i++;
    if (i == EVAL_ARTIFACTS_MAX)
        return -ENOSPC;
    (void)snprintf(results->artifacts[i].name, sizeof(results->artifacts[i].name), "%s", name);
    (void)snprintf(results->artifacts[i].uri, sizeof(results->artifacts[i].uri), "%s", uri);
    results->n_artifacts = MAX(results->n_artifacts, i + 1);
    return 0;
}
