/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - see request.h. */
#include "cluster/request.h"

#include <string.h>

/* Derives the outcome from the answer's words. Nodes and leaders of older versions write only the answer and leave the
 * outcome open. Versions up to 1.4 also refused with the second text below. */
static RequestOutcome outcome_in_words(const char *answer)
{
    static const char refused[] = "refused", not_training[] = "the job is not training now";
    if (!*answer)
        return REQUEST_OPEN;
    return strncmp(answer, refused, sizeof(refused) - 1) == 0 || strcmp(answer, not_training) == 0
               ? REQUEST_REFUSED
               : REQUEST_DONE;
}

RequestOutcome request_outcome(const RequestRecord *request)
{
    return request->outcome == REQUEST_OPEN ? outcome_in_words(request->answer) : request->outcome;
}

bool request_verdict(const RequestRecord *request, NodeVerdict *ret)
{
    size_t n = strcspn(request->answer, ":");
    for (size_t i = 0; i < ELEMENTSOF(node_verdict_names); i++)
        if (strlen(node_verdict_names[i]) == n &&
            strncmp(request->answer, node_verdict_names[i], n) == 0) {
            *ret = (NodeVerdict)i;
            return true;
        }
    return false;
}
