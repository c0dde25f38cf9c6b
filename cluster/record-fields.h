/* SPDX-License-Identifier: Apache-2.0 */
/* record-fields.h - one line per field for the tables of records.c; private to cluster.
 *
 * Ownership: none. Units: none. Errors: none. Threads: any.
 */
#pragma once

#include "base/json/field-table.h"
#include "base/macro.h"

/* A table has one line per field. The JSON key is usually the member's name. */
#define AT(T, member) .offset = offsetof(T, member)
#define SIZE_OF(T, member) sizeof(((T *)NULL)->member)
#define TEXT(T, key, member, how)                                                                  \
    {                                                                                              \
        .name = key, .type = FIELD_TEXT, .need = how, AT(T, member), .size = SIZE_OF(T, member)    \
    }
#define STRING(T, key, member, how)                                                                \
    {                                                                                              \
        .name = key, .type = FIELD_STRING, .need = how, AT(T, member)                              \
    }
#define INT(T, key, member, how, lo, hi)                                                           \
    {                                                                                              \
        .name = key, .type = FIELD_INT, .need = how, AT(T, member), .min = lo, .max = hi           \
    }
#define INT64(T, key, member, how)                                                                 \
    {                                                                                              \
        .name = key, .type = FIELD_INT64, .need = how, AT(T, member), .min = 0, .max = INT64_MAX   \
    }
/* The bound of numbers that programs add to. It leaves room, so that an addition cannot overflow. */
#define COUNT_MAX (INT64_MAX / 2)
#define COUNT(T, key, member, how)                                                                 \
    {                                                                                              \
        .name = key, .type = FIELD_INT64, .need = how, AT(T, member), .min = 0, .max = COUNT_MAX   \
    }
#define DOUBLE(T, key, member)                                                                     \
    {                                                                                              \
        .name = key, .type = FIELD_DOUBLE, .need = JSON_OPTIONAL, AT(T, member)                    \
    }
#define BOOL(T, key, member)                                                                       \
    {                                                                                              \
        .name = key, .type = FIELD_BOOL, .need = JSON_OPTIONAL, AT(T, member)                      \
    }
#define HASH(T, key, member)                                                                       \
    {                                                                                              \
        .name = key, .type = FIELD_HASH, .need = JSON_OPTIONAL, AT(T, member)                      \
    }
#define SLOTS(T, key, member, how)                                                                 \
    {                                                                                              \
        .name = key, .type = FIELD_SLOTS, .need = how, AT(T, member)                               \
    }
#define CHOICE(T, key, member, how, words)                                                         \
    {                                                                                              \
        .name = key, .type = FIELD_CHOICE, .need = how, AT(T, member), .names = words,             \
        .n_names = ELEMENTSOF(words)                                                               \
    }
#define OBJECT(T, key, member, how, table)                                                         \
    {                                                                                              \
        .name = key, .type = FIELD_OBJECT, .need = how, AT(T, member), .fields = table,            \
        .n_fields = ELEMENTSOF(table)                                                              \
    }
#define ELEMENTS(T, kind, key, member, count, how, E, table, most, id)                             \
    {                                                                                              \
        .name = key, .type = kind, .need = how, AT(T, member), .count_offset = offsetof(T, count), \
        .size = most, .fields = table, .n_fields = ELEMENTSOF(table), .element_bytes = sizeof(E),  \
        .identity = id                                                                             \
    }

#define NEEDED JSON_REQUIRED
#define MAYBE JSON_OPTIONAL
