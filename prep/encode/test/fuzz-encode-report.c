/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-encode-report.c - the parsers of reports of parts and units, and of the list of units, with arbitrary bytes;
 * what they accept is written and accepted again. */
#include "prep/encode/input.h"
#include "prep/encode/report.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error err = ERROR_INIT;
    PartReport part = {0}, part_again = {0};
    UnitReport unit = {0}, unit_again = {0};
    if (part_report_parse("fuzz", (const char *)data, n, &part, &err) == 0) {
        char *text = part_report_format(&part);
        int r = part_report_parse("again", text, strlen(text), &part_again, &err);
        assert(r == 0);
        unit_report_add(&unit_again, &part);
        free(text);
    }
    unit_report_clear(&unit_again);
    if (unit_report_parse("fuzz", (const char *)data, n, &unit, &err) == 0) {
        char *text = unit_report_format(&unit);
        int r = unit_report_parse("again", text, strlen(text), &unit_again, &err);
        assert(r == 0);
        free(text);
    }
    InputList list = {0}, list_again = {0};
    if (input_list_parse("fuzz", (const char *)data, n, &list, &err) == 0) {
        char *text = input_list_format(&list);
        int r = input_list_parse("again", text, strlen(text), &list_again, &err);
        assert(r == 0 && input_list_compare(&list, &list_again, "fuzz", &err) == 0);
        free(text);
    }
    input_list_clear(&list);
    input_list_clear(&list_again);
    part_report_clear(&part);
    part_report_clear(&part_again);
    unit_report_clear(&unit);
    unit_report_clear(&unit_again);
    return 0;
}
