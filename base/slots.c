/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - see slots.h. */
#include "base/slots.h"

#include "base/macro.h"

#include <errno.h>
#include <stdio.h>

const char *slots_format(uint64_t slots, char ret[SLOTS_TEXT_MAX])
{
    size_t used = 0;
    ret[0] = '\0';
    for (int i = 0; i < 64; i++) {
        if (!(slots >> i & 1))
            continue;
        int last = i;
        while (last < 63 && slots >> (last + 1) & 1)
            last++;
        const char *comma = used ? "," : "";
        int n = last > i ? snprintf(ret + used, SLOTS_TEXT_MAX - used, "%s%d-%d", comma, i, last)
                         : snprintf(ret + used, SLOTS_TEXT_MAX - used, "%s%d", comma, i);
        used += (size_t)n;
        /* The longest text ("0-1,3-4,6-7,...") has 121 bytes. */
        assert(used < SLOTS_TEXT_MAX);
        i = last;
    }
    return ret;
}

static const char *take_slot(const char *p, int *ret)
{
    int value = 0, n = 0;
    for (; *p >= '0' && *p <= '9' && n < 2; p++, n++)
        value = value * 10 + (*p - '0');
    *ret = value;
    return n > 0 && value < SLOTS_MAX ? p : NULL;
}

int slots_parse(const char *text, uint64_t *ret)
{
    uint64_t slots = 0;
    for (const char *p = text; *p;) {
        int first, last;
        p = take_slot(p, &first);
        if (!p)
            return -EINVAL;
        last = first;
        if (*p == '-')
            p = take_slot(p + 1, &last);
        if (!p || last < first || (*p && *p != ',') || (*p == ',' && !p[1]))
            return -EINVAL;
        if (*p == ',')
            p++;
        for (int i = first; i <= last; i++)
            slots |= UINT64_C(1) << i;
    }
    *ret = slots;
    return 0;
}
