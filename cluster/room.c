/* SPDX-License-Identifier: Apache-2.0 */
/* room.c - see room.h. */
#include "cluster/room.h"

/* Converts bytes to GB, or to MB below 10 GB, for texts such as "34.1 GB" or "0.3 MB". */
static double in_unit(int64_t n_bytes, const char **ret_unit)
{
    const bool is_large = n_bytes >= INT64_C(10000000000);
    *ret_unit = is_large ? "GB" : "MB";
    return (double)n_bytes / (is_large ? 1e9 : 1e6);
}

bool room_describe(const ProgressRecord *p, char ret[ROOM_TEXT_BYTES], const char **ret_advice)
{
    const char *units[3];
    ret[0] = '\0';
    *ret_advice = NULL;
    if (p->save_next_bytes <= 0)
        return false;
    const int64_t missing = p->save_next_bytes - p->save_free_bytes;
    const double has = in_unit(p->save_free_bytes, &units[0]),
                 needs = in_unit(p->save_next_bytes, &units[1]);
    if (missing <= 0) {
        (void)snprintf(ret, ROOM_TEXT_BYTES, "%.1f %s free, the next checkpoint has %.1f %s", has,
                       units[0], needs, units[1]);
        return false;
    }
    const double lacks = in_unit(missing, &units[2]);
    (void)snprintf(ret, ROOM_TEXT_BYTES,
                   "%.1f %s are missing: %.1f %s free, the next checkpoint has %.1f %s", lacks,
                   units[2], has, units[0], needs, units[1]);
    *ret_advice = "free that much in checkpoint.uri, or start the job again with a lower "
                  "checkpoint.keep_last";
    return true;
}
