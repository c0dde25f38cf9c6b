/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test/testing.h"
#include "report/report.h"
int main(void) { return 0; }
