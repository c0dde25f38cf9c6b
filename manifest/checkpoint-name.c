/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint-name.c - see checkpoint-name.h. */
#include "manifest/checkpoint-name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void checkpoint_name_format(const CheckpointName *name, char folder[CHECKPOINT_FOLDER_MAX])
{
    (void)snprintf(folder, CHECKPOINT_FOLDER_MAX, "step-%010lld-o%lld-g%lld-%08x",
                   (long long)name->step, (long long)name->owner, (long long)name->generation,
                   name->attempt);
}

bool checkpoint_name_equal(const CheckpointName *a, const CheckpointName *b)
{
    return a->step == b->step && a->owner == b->owner && a->generation == b->generation &&
           a->attempt == b->attempt;
}

int checkpoint_name_parse(const char *folder, CheckpointName *ret)
{
    long long step, owner, generation;
    unsigned attempt;
    if (sscanf(folder, "step-%10lld-o%6lld-g%18lld-%8x", &step, &owner, &generation, &attempt) !=
            4 ||
        step < 0 || owner < 0 || generation < 0)
        return -EINVAL;
    CheckpointName name = {.step = step,
                           .owner = owner,
                           .generation = generation,
                           .attempt = attempt};
    char again[CHECKPOINT_FOLDER_MAX];
    checkpoint_name_format(&name, again);
    if (strcmp(again, folder) != 0)
        return -EINVAL;
    *ret = name;
    return 0;
}

void metrics_key_format(const CheckpointName *name, int64_t first, int64_t last,
                        char key[METRICS_KEY_MAX])
{
    (void)snprintf(key, METRICS_KEY_MAX, "metrics/metrics-%010lld-%010lld-o%lld-g%lld-%08x.jsonl",
                   (long long)first, (long long)last, (long long)name->owner,
                   (long long)name->generation, name->attempt);
}

int metrics_key_parse(const char *key, CheckpointName *ret_name, int64_t *ret_first)
{
    long long first, last, owner, generation;
    unsigned attempt;
    if (sscanf(key, "metrics/metrics-%10lld-%10lld-o%6lld-g%18lld-%8x", &first, &last, &owner,
               &generation, &attempt) != 5)
        return -EINVAL;
    CheckpointName name = {.step = last,
                           .owner = owner,
                           .generation = generation,
                           .attempt = attempt};
    char again[METRICS_KEY_MAX];
    metrics_key_format(&name, first, last, again);
    if (strcmp(again, key) != 0)
        return -EINVAL;
    *ret_name = name;
    *ret_first = first;
    return 0;
}
