/* SPDX-License-Identifier: Apache-2.0 */
/* reference-metrics.c - prints the metrics of one program as Markdown, or with the argument
 * "process" the metrics that every program has. The program is built once for each daemon, because
 * one program cannot link both daemons. */
#ifdef OF_SDTRAIND
#include "daemon/metrics.h"
#define FAMILIES daemon_metrics_families
#else
#include "controller/metrics.h"
#define FAMILIES controller_metrics_families
#endif
#include "metrics/exporter.h"

#include <string.h>

int main(int argc, char *argv[])
{
    static const char *const kinds[] = {
        [METRIC_GAUGE] = "gauge",
        [METRIC_COUNTER] = "counter",
        [METRIC_SUMMARY] = "summary",
        [METRIC_HISTOGRAM] = "histogram",
    };
    size_t n;
    const MetricFamily *families =
        argc == 2 && strcmp(argv[1], "process") == 0 ? exporter_families(&n) : FAMILIES(&n);
    printf("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        const MetricFamily *f = &families[i];
        printf("| `%s` | %s | ", f->name, kinds[f->kind]);
        for (int l = 0; l < METRIC_LABELS_MAX && f->labels[l]; l++)
            printf("%s`%s`", l ? ", " : "", f->labels[l]);
        printf(" | %s |\n", f->help);
    }
    return 0;
}
