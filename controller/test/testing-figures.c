/* SPDX-License-Identifier: Apache-2.0 */
/* testing-figures.c - see testing-figures.h. */
#include "controller/test/testing-figures.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void _noreturn_ give_up(pid_t pid)
{
    (void)fprintf(stderr, "the measured process %d is gone\n", (int)pid);
    exit(1);
}

double process_cpu_sec(pid_t pid)
{
    char path[64];
    unsigned long user = 0, system = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    _cleanup_file_ FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &system) != 2)
        give_up(pid);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

double process_memory_mib(pid_t pid, const char *field)
{
    char path[64], line[256];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    _cleanup_file_ FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, field, strlen(field)) == 0)
            return (double)strtol(line + strlen(field) + 1, NULL, 10) / 1024;
    give_up(pid);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void figure_print(const char *figure, const char *unit, double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare);
    printf("{\"figure\":\"%s\",\"unit\":\"%s\",\"value\":%.3f,\"min\":%.3f,\"max\":%.3f,"
           "\"runs\":%d}\n",
           figure, unit, values[n / 2], values[0], values[n - 1], n);
    (void)fflush(stdout);
}
