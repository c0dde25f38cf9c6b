/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-exec-report.c - packets of a program that report any bytes. */
#include "exec/words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error err = ERROR_INIT;
    ExecReport of;
    if (exec_report_parse((const char *)data, n, &of, &err) < 0)
        assert(*err.text);
    assert(of.step >= 0 && of.samples >= 0 && of.extend_sec >= 0);
    return 0;
}
