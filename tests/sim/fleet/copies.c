/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c - see copies.h. */
#include "tests/sim/fleet/copies.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct Shelf { /* the copies of a key */
    struct Shelf *next;
    char *key;
    Copy copies[COPIES_MAX];
    size_t n_ever;
} Shelf;

static const char *cluster;
static Shelf *shelves;

static bool is_kept(KeyKind kind)
{
    return kind == KEY_SPECS || kind == KEY_DESIRED || kind == KEY_WORLDS || kind == KEY_PHASES ||
           kind == KEY_CHECKPOINTS || kind == KEY_CORDONS || kind == KEY_NODES;
}

static Shelf *find(const char *key)
{
    Shelf *shelf = shelves;
    while (shelf && strcmp(shelf->key, key) != 0)
        shelf = shelf->next;
    return shelf;
}

static void note(int64_t revision, const ServerChange *change)
{
    Shelf *shelf = find(change->key);
    if (!shelf) {
        shelf = memory_new(Shelf);
        shelf->key = memory_text(change->key);
        shelf->next = shelves;
        shelves = shelf;
    }
    Copy *copy = &shelf->copies[shelf->n_ever++ % COPIES_MAX];
    free(copy->value);
    *copy = (Copy){.revision = revision, .n = change->n_value};
    if (change->value)
        copy->value = memory_bytes(change->value, change->n_value);
}

void copies_note(int64_t revision, const ServerChange *changes, size_t n)
{
    KeyKind kind;
    const char *name;
    for (size_t i = 0; i < n; i++)
        if (key_parse(cluster, changes[i].key, &kind, &name) == 0 && is_kept(kind))
            note(revision, &changes[i]);
}

const Copy *copies_get(KeyKind kind, const char *name, size_t age)
{
    char key[KEY_MAX];
    const Shelf *shelf = find(key_of(cluster, kind, name, key));
    if (!shelf || age >= MIN(shelf->n_ever, (size_t)COPIES_MAX))
        return NULL;
    return &shelf->copies[(shelf->n_ever - 1 - age) % COPIES_MAX];
}

const Copy *copies_now(KeyKind kind, const char *name)
{
    const Copy *copy = copies_get(kind, name, 0);
    return copy && copy->value ? copy : NULL;
}

#define READ(Type, prefix)                                                                         \
    do {                                                                                           \
        Type record;                                                                               \
        is_readable = prefix##_decode("copy", copy->value, copy->n, &record, NULL) == 0;           \
        if (is_readable && ret)                                                                    \
            memcpy(ret, record.submission, SUBMISSION_BYTES);                                      \
        if (is_readable)                                                                           \
            prefix##_clear(&record);                                                               \
    } while (0)

static bool read_copy(KeyKind kind, const Copy *copy, char *ret)
{
    bool is_readable = false;
    DesiredRecord desired;
    CordonRecord cordon;
    if (!copy || !copy->value)
        return false;
    if (kind == KEY_SPECS)
        READ(SpecRecord, spec_record);
    else if (kind == KEY_WORLDS)
        READ(WorldRecord, world_record);
    else if (kind == KEY_PHASES)
        READ(PhaseRecord, phase_record);
    else if (kind == KEY_CHECKPOINTS)
        READ(CheckpointsRecord, checkpoints_record);
    else if (kind == KEY_DESIRED)
        is_readable = desired_record_decode("copy", copy->value, copy->n, &desired, NULL) == 0;
    else
        is_readable = cordon_record_decode("copy", copy->value, copy->n, &cordon, NULL) == 0;
    return is_readable;
}

const char *copy_submission(KeyKind kind, const Copy *copy, char ret[SUBMISSION_BYTES])
{
    *ret = '\0';
    (void)read_copy(kind, copy, ret); /* on failure ret stays empty */
    return ret;
}

bool copy_is_readable(KeyKind kind, const Copy *copy) { return read_copy(kind, copy, NULL); }

void copies_open(const char *its_cluster) { cluster = its_cluster; }

void copies_close(void)
{
    for (Shelf *shelf = shelves, *next; shelf; shelf = next) {
        next = shelf->next;
        for (size_t i = 0; i < COPIES_MAX; i++)
            free(shelf->copies[i].value);
        free(shelf->key);
        free(shelf);
    }
    shelves = NULL;
}
