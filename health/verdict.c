/* verdict.c - see verdict.h. */
#include "health/verdict.h"

static HealthLevel judge_one(const ProbeAnswer *answer)
{
    if (answer->hangs >= VERDICT_HANGS_ISOLATE)
        return HEALTH_ISOLATE;
    if (answer->hangs > 0 || answer->failures > 0)
        return MAX(answer->level, HEALTH_SUSPECT);
    return answer->level;
}

HealthLevel verdict_judge(const ProbeAnswer *answers, size_t n, size_t *ret_worst)
{
    HealthLevel worst = HEALTH_OK;
    for (size_t i = 0; i < n; i++) {
        HealthLevel level = judge_one(&answers[i]);
        assert(level < HEALTH_LEVELS);
        if (level > worst) {
            worst = level;
            *ret_worst = i;
        }
    }
    return worst;
}
