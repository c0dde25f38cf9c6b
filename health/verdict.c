/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - see verdict.h. */
#include "health/verdict.h"

#include <string.h>

static uint64_t slots_mask(int n) { return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1; }

static bool loses_slot(const FaultRule *rule, const ProbeFinding *f, int n_slots)
{
    return rule->scope == SCOPE_SLOT && rule->level == HEALTH_ISOLATE && f->slot >= 0 &&
           f->slot < n_slots;
}

void verdict_weigh(const ProbeFinding *findings, size_t n, int n_slots, ProbeAnswer *answer)
{
    HealthLevel level = HEALTH_OK, worst = HEALTH_OK;
    answer->bad_slots = 0;
    answer->text[0] = '\0';
    answer->cure = CURE_ITSELF;
    answer->n_findings = (int)n;
    answer->hangs = answer->failures = 0;
    for (size_t i = 0; i < n; i++) {
        const FaultRule *rule = fault_rule(findings[i].fault);
        if (loses_slot(rule, &findings[i], n_slots)) {
            answer->bad_slots |= UINT64_C(1) << findings[i].slot;
            level = MAX(level, HEALTH_SUSPECT);
        } else {
            level = MAX(level, rule->level);
        }
        if (rule->level > worst) {
            worst = rule->level;
            answer->cure = rule->cure;
            memcpy(answer->text, findings[i].text, sizeof(answer->text));
        }
    }
    if (n_slots > 0 && answer->bad_slots == slots_mask(n_slots))
        level = HEALTH_ISOLATE;
    answer->level = answer->findings = level;
}

void verdict_note_hang(ProbeAnswer *answer)
{
    answer->hangs++;
    answer->cure = answer->findings == HEALTH_OK ? CURE_ITSELF : answer->cure;
    answer->level = answer->hangs >= VERDICT_HANGS_ISOLATE ? HEALTH_ISOLATE
                                                           : MAX(answer->findings, HEALTH_SUSPECT);
}

void verdict_note_failure(ProbeAnswer *answer)
{
    answer->hangs = 0;
    answer->failures++;
    answer->level = MAX(answer->findings, HEALTH_SUSPECT);
}

Verdict verdict_judge(const ProbeAnswer *answers, size_t n, int n_slots)
{
    Verdict verdict = {.worst = -1};
    for (size_t i = 0; i < n; i++) {
        assert(answers[i].level < HEALTH_LEVELS);
        verdict.bad_slots |= answers[i].bad_slots;
        bool loses = answers[i].bad_slots != 0 && verdict.level < HEALTH_DRAIN;
        if (answers[i].level > verdict.level ||
            (loses && verdict.worst >= 0 && answers[verdict.worst].bad_slots == 0))
            verdict.worst = (int)i;
        verdict.level = MAX(verdict.level, answers[i].level);
    }
    if (n_slots > 0 && verdict.bad_slots == slots_mask(n_slots))
        verdict.level = HEALTH_ISOLATE;
    return verdict;
}
