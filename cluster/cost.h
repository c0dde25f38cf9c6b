/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - what a job's slots cost: the list of prices, the cost meter in the job's phase record, and the figures for
 * people.
 *
 * A price is for one slot for one hour. The setting `prices` lists classes of nodes, and a node's label `price` names
 * its class. A job pays for the slots of its world, in pauses too, from the time when the world is decided until the
 * job ends or waits for slots. The leader writes the meter into each phase record, so a change of leader loses no
 * costs. A new price applies from the time of its change.
 *
 * The controller's core uses the inline functions, which do no I/O, allocate nothing and call no C library. cost_look()
 * and cost_text() are in cost.c.
 *
 * Ownership: all texts are the caller's.
 * Units:     money is whole micro-dollars; *_rate is micro-dollars an hour; *_usec is CLOCK_REALTIME microseconds.
 * Errors:    none: a malformed word of a list matches no class. Sums stop at COST_MAX instead of overflowing.
 */
#pragma once

#include "cluster/admission.h"
#include "cluster/records.h"

enum { PRICES_MAX = 1023 }; /* the longest list of prices, in bytes */

#define COST_DOLLAR INT64_C(1000000)
#define COST_PRICE_MAX (1000 * COST_DOLLAR) /* the highest price of one slot for one hour */
#define COST_RATE_MAX (RECORD_RANKS_MAX * COST_PRICE_MAX)
#define COST_MAX (INT64_MAX / 2) /* the largest sum of money in a record */

/* ---- the list: PATTERN=DOLLARS with ',' or ' ' between; '*' in a pattern stands for any characters ---- */

/* Parses dollars with at most six decimals, such as "12.29". Returns micro-dollars, or -1 if the text is not a
 * price. */
static inline int64_t cost_parse_price(const char *text, size_t n)
{
    int64_t price = 0, place = COST_DOLLAR;
    size_t point = 0;
    while (point < n && text[point] != '.')
        point++;
    if (point == 0 || point + 1 == n || n > point + 7)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (i == point)
            continue;
        if (text[i] < '0' || text[i] > '9')
            return -1;
        if (i < point)
            price = price * 10 + (text[i] - '0') * COST_DOLLAR;
        else
            price += (place /= 10) * (text[i] - '0');
        if (price > COST_PRICE_MAX)
            return -1;
    }
    return price;
}

/* Splits a word at its '='. Returns false if the word is not PATTERN=DOLLARS. */
static inline bool cost_parse_word(const char *word, size_t n, size_t *ret_pattern,
                                   int64_t *ret_price)
{
    size_t n_pattern = 0;
    while (n_pattern < n && word[n_pattern] != '=')
        n_pattern++;
    if (n_pattern == 0 || n_pattern == n)
        return false;
    int64_t price = cost_parse_price(word + n_pattern + 1, n - n_pattern - 1);
    if (price < 0)
        return false;
    *ret_pattern = n_pattern;
    *ret_price = price;
    return true;
}

/* Returns the price in the first word whose pattern matches the class, or 0 when no pattern matches. */
static inline int64_t cost_find_price(const char *list, const char *price_class)
{
    while (*list) {
        size_t n = 0, n_pattern;
        int64_t price;
        while (list[n] && !admission_is_between(list[n]))
            n++;
        if (cost_parse_word(list, n, &n_pattern, &price) &&
            admission_pattern_fits(list, n_pattern, price_class))
            return price;
        list += n + (list[n] != '\0');
    }
    return 0;
}

/* ---- the meter ---- */

/* Returns the cost of `usec` microseconds at this rate, rounded down. */
static inline int64_t cost_of(int64_t rate, uint64_t usec)
{
    const uint64_t hour = 3600 * USEC_PER_SEC, rest = usec % hour;
    const uint64_t r =
        (uint64_t)CLAMP(rate, 0,
                        COST_RATE_MAX); /* a rate that was read from a record may be out of range */
    if (r > 0 && usec / hour >= (uint64_t)COST_MAX / r)
        return COST_MAX;
    /* This cannot overflow: r is at most COST_RATE_MAX, so r * 999999 is just below 2^64. */
    const uint64_t of_rest =
        (r * (rest / USEC_PER_SEC) + r * (rest % USEC_PER_SEC) / USEC_PER_SEC) / 3600;
    return MIN((int64_t)(r * (usec / hour) + of_rest), COST_MAX);
}

static inline int64_t cost_add(int64_t a, int64_t b) { return MIN(a + b, COST_MAX); }

/* Adds the cost since the meter was last read. is_lost: a failure caused this cost, so it counts as lost too. */
static inline void cost_meter_read(CostMeter *meter, uint64_t now_usec, bool is_lost)
{
    if (meter->since_usec == 0)
        return;
    int64_t amount =
        now_usec > meter->since_usec ? cost_of(meter->rate, now_usec - meter->since_usec) : 0;
    meter->spent = cost_add(meter->spent, amount);
    if (is_lost)
        meter->lost = cost_add(meter->lost, amount);
    meter->since_usec = now_usec;
}

/* Counts the cost of `usec` microseconds, which meter->spent already includes, as lost to a failure. */
static inline void cost_meter_lose(CostMeter *meter, uint64_t usec)
{
    meter->lost = MIN(cost_add(meter->lost, cost_of(meter->rate, usec)), meter->spent);
}

/* Sets the rate from now on; rate 0 stops the meter. */
static inline void cost_meter_run(CostMeter *meter, int64_t rate, uint64_t now_usec)
{
    meter->rate = rate;
    meter->since_usec = rate > 0 ? now_usec : 0;
}

/* ---- for people: job status, the live page, reports, metrics ---- */

typedef struct CostView {
    bool is_known;       /* false: no prices are set, so no costs are shown */
    int64_t spent, lost; /* lost: the part of spent that failures have caused */
    int64_t rate;        /* micro-dollars an hour; 0: the job holds no slots now */
    /* Estimates from the present rate and pace; -1: not known now. */
    int64_t per_1000_steps, per_billion_samples, to_end;
} CostView;

/* Fills *ret from the meter. progress is the record of the present world while it trains, else NULL. */
void cost_look(const PhaseRecord *phase, const ProgressRecord *progress, uint64_t now_usec,
               CostView *ret);

enum { COST_TEXT_BYTES = 32 };
/* Formats money as "$0.0042", "$12.30" or "$1,234,567", and negative money as "-". Returns text. */
const char *cost_text(int64_t money, char text[COST_TEXT_BYTES]);
