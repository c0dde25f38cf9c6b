/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-picture-answer.c - arbitrary packets as answers of a decoder process. */
#include "encoders/pictures/child-message.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    ChildAnswer answer;
    memset(&answer, 0xA5, sizeof(answer));
    for (uint32_t place = 0; place < 2; place++) {
        if (child_answer_check(data, n_bytes, place, &answer) < 0)
            continue;
        assert(n_bytes == sizeof(answer) && answer.place == place);
        assert(answer.r == -12 || (answer.r >= 0 && answer.r < PICTURE_N_VERDICTS));
        assert(memchr(answer.err.text, 0, sizeof(answer.err.text)));
        for (const char *p = answer.err.text; *p; p++)
            assert((unsigned char)*p >= ' ' || *p == '\t');
        assert((answer.r == 0) == (answer.err.code == 0));
    }
    return 0;
}
