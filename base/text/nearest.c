/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c - see nearest.h. */
#include "base/text/nearest.h"

#include <stdio.h>
#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Returns the least number of slips that turn one word into the other: the optimal string alignment distance. The loop
 * keeps only the last three rows of its table. */
static int distance_of(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int rows[3][NEAREST_WORD_MAX + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= n_b; j++)
        last[j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = MIN(best, MIN(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = MIN(best, before[j - 2] + 1);
            row[j] = best;
        }
        int *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[n_b];
}

/* Words that differ only in digits, such as node7 and node9, name different things: the
 * difference is not a slip. */
static bool differ_in_digits_alone(const char *a, const char *b)
{
    while (*a && *b && (*a == *b || (is_digit(*a) && is_digit(*b)))) {
        a++;
        b++;
    }
    return !*a && !*b;
}

void nearest_offer(Nearest *x, const char *word)
{
    const size_t n_asked = strlen(x->asked), n_word = strlen(word);
    if (n_asked == 0 || n_asked > NEAREST_WORD_MAX || n_word == 0 || n_word > NEAREST_WORD_MAX ||
        differ_in_digits_alone(x->asked, word))
        return;
    int distance = distance_of(x->asked, n_asked, word, n_word);
    if (n_asked >= 2 && strncmp(x->asked, word, n_asked) == 0)
        distance = MIN(distance, 1);
    if (distance > 1 + (int)n_asked / 4 || (size_t)distance >= MIN(n_asked, n_word))
        return;
    int at = x->n;
    while (at > 0 && x->distances[at - 1] > distance)
        at--;
    for (int i = 0; i < x->n; i++)
        if (strcmp(x->words[i], word) == 0)
            return; /* this word was offered before */
    if (at == (int)ELEMENTSOF(x->words))
        return;
    x->words[1] = at == 0 ? x->words[0] : x->words[1];
    x->distances[1] = at == 0 ? x->distances[0] : x->distances[1];
    x->words[at] = word;
    x->distances[at] = distance;
    x->n = MIN(x->n + 1, (int)ELEMENTSOF(x->words));
}

const char *nearest_text(const Nearest *x, char ret[NEAREST_TEXT_BYTES])
{
    *ret = '\0';
    if (x->n == 1 || (x->n == 2 && x->distances[1] > x->distances[0]))
        (void)snprintf(ret, NEAREST_TEXT_BYTES, " (did you mean \"%s\"?)", x->words[0]);
    else if (x->n == 2)
        (void)snprintf(ret, NEAREST_TEXT_BYTES, " (did you mean \"%s\" or \"%s\"?)", x->words[0],
                       x->words[1]);
    return ret;
}
