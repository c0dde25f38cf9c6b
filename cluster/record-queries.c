/* SPDX-License-Identifier: Apache-2.0 */
/* record-queries.c - the functions of records.h that look up or change parts of a record. */
#include "cluster/records.h"

#include "base/cleanup.h"
#include "cluster/keys.h"
#include "cluster/record-tables.h"

#include <errno.h>
#include <string.h>

int record_check_world(const char *source, const WorldRecord *world, Error *err)
{
    int size = 0;
    for (size_t i = 0; i < world->n_runs; i++) {
        if (!name_is_valid(world->runs[i].node))
            return error_set(err, -EINVAL, "%s: runs[%zu].node: \"%s\" is not a node's name",
                             source, i, world->runs[i].node);
        size += __builtin_popcountll(world->runs[i].slots);
    }
    if (size != world->size)
        return error_set(err, -EINVAL, "%s: size: %d, but the runs hold %d slots", source,
                         world->size, size);
    return 0;
}

int world_rank_place(const WorldRecord *world, int rank, size_t *ret_run, int *ret_slot)
{
    int first = 0;
    for (size_t i = 0; rank >= 0 && i < world->n_runs; i++) {
        uint64_t slots = world->runs[i].slots;
        int n = __builtin_popcountll(slots);
        if (rank >= first + n) {
            first += n;
            continue;
        }
        for (; first < rank; first++)
            slots &= slots - 1;
        *ret_run = i;
        *ret_slot = __builtin_ctzll(slots);
        return 0;
    }
    return -ENOENT;
}

const CheckpointCommit *checkpoints_latest(const CheckpointsRecord *record)
{
    for (size_t i = record->n_commits; i-- > 0;)
        if (!record->commits[i].struck_out)
            return &record->commits[i];
    return NULL;
}

void checkpoints_append(CheckpointsRecord *record, const CheckpointCommit *commit)
{
    assert(record->n_commits <= RECORD_COMMITS_MAX);
    if (record->n_commits == RECORD_COMMITS_MAX) {
        memmove(&record->commits[0], &record->commits[1],
                sizeof(record->commits[0]) * (RECORD_COMMITS_MAX - 1));
        record->n_commits--;
    }
    record->commits[record->n_commits++] = *commit;
}

bool words_have(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = words; *p; p += strspn(p, " ")) {
        const size_t length = strcspn(p, " ");
        if (length == n && strncmp(p, word, n) == 0)
            return true;
        p += length;
    }
    return false;
}

bool node_knows(const NodeRecord *node, const char *feature)
{
    return words_have(node->features, feature);
}

const char *severity_name(Severity s)
{
    assert((size_t)s < ELEMENTSOF(severity_names));
    return severity_names[s];
}
