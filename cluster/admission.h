/* SPDX-License-Identifier: Apache-2.0 */
/* admission.h - which nodes a cluster admits: a list of name patterns, optionally bound to machines.
 *
 * The core and the programs share this file, so it does no I/O, allocates nothing and calls no C library.
 *
 * Ownership: all texts are the caller's.
 * Errors:    none: a malformed word of the list matches no node.
 */
#pragma once

#include "base/macro.h"

enum { ADMISSION_MAX = 4095 }; /* the longest list, in bytes */

/* A list is a sequence of words, separated by ',' or ' '. A word is PATTERN or PATTERN@MACHINE-ID. In a pattern '*'
 * matches any characters. */
static inline bool admission_is_between(char c) { return c == ',' || c == ' '; }

/* Matches name against the pattern of n bytes. On a mismatch the last '*' is extended by one character, so the function
 * makes at most n times strlen(name) comparisons. */
static inline bool admission_pattern_fits(const char *pattern, size_t n, const char *name)
{
    size_t at = 0, star = SIZE_MAX;
    const char *rest = name;
    while (*name) {
        if (at < n && pattern[at] == '*') {
            star = at++;
            rest = name;
        } else if (at < n && pattern[at] == *name) {
            at++;
            name++;
        } else if (star != SIZE_MAX) {
            at = star + 1;
            name = ++rest;
        } else {
            return false;
        }
    }
    while (at < n && pattern[at] == '*')
        at++;
    return at == n;
}

static inline bool admission_word_fits(const char *word, size_t n, const char *name,
                                       const char *machine_id)
{
    size_t n_pattern = 0;
    while (n_pattern < n && word[n_pattern] != '@')
        n_pattern++;
    if (!admission_pattern_fits(word, n_pattern, name))
        return false;
    for (size_t i = n_pattern + 1; i < n; i++, machine_id++)
        if (*machine_id != word[i])
            return false;
    return n_pattern == n || *machine_id == '\0';
}

/* An empty list allows every node. */
static inline bool admission_allows(const char *list, const char *name, const char *machine_id)
{
    bool allowed = *list == '\0';
    while (*list && !allowed) {
        size_t n = 0;
        while (list[n] && !admission_is_between(list[n]))
            n++;
        allowed = n > 0 && admission_word_fits(list, n, name, machine_id);
        list += n + (list[n] != '\0');
    }
    return allowed;
}
