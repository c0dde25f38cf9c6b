/* SPDX-License-Identifier: Apache-2.0 */
/* check-history.c - the program `check-history`: reads etcdctl's watch, and prints which changes break an invariant.
 *
 *     check-history [--cluster NAME] [--settled] FILE...
 *
 * --settled: nothing was in progress at the end, so that open incidents and leftover records are breaches. Exit
 * status: 0: no invariant is broken, 1: an invariant is broken, 2: a file cannot be read, 3: a history is not
 * complete. */
#include "tests/history/history-file.h"

#include <stdlib.h>
#include <string.h>

enum { TOLD_MAX = 50 }; /* the largest number of breaches that are printed for one file */

typedef struct Told {
    const char *file;
    uint64_t n;
} Told;

static void tell(int64_t revision, const char *key, const Breach *breach, void *userdata)
{
    Told *told = userdata;
    if (told->n++ < TOLD_MAX)
        printf("%s: revision %lld: %s: %s: %s\n", told->file, (long long)revision, key,
               breach->invariant, breach->text);
}

static int check(const char *path, const char *cluster, bool settled)
{
    Told told = {.file = path};
    Error err = ERROR_INIT;
    HistoryEnd end = HISTORY_OPEN;
    _cleanup_(history_checker_freep) HistoryChecker *checker = NULL;
    _cleanup_file_ FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "check-history: %s: %s\n", path, strerror(errno));
        return 2;
    }
    int r = history_file_check(file, path, cluster, tell, &told, &checker, &end, &err);
    if (r == 0 && settled && checker)
        history_checker_end(checker);
    HistoryCounts n = checker ? history_checker_counts(checker) : (HistoryCounts){0};
    if (told.n > TOLD_MAX)
        printf("%s: and %llu more\n", path, (unsigned long long)(told.n - TOLD_MAX));
    printf("%s: revision %lld, %llu revisions, %llu changes, %llu worlds, %llu commits, %llu "
           "incidents; "
           "%llu broken%s\n",
           path, (long long)n.revision, (unsigned long long)n.n_revisions,
           (unsigned long long)n.n_changes, (unsigned long long)n.n_worlds,
           (unsigned long long)n.n_commits, (unsigned long long)n.n_incidents,
           (unsigned long long)told.n,
           end == HISTORY_COMPLETE ? "" : "; nothing says that this is all");
    if (r < 0)
        fprintf(stderr, "check-history: %s\n", err.text);
    return told.n ? 1 : r == -ESTALE ? 3 : r < 0 ? 2 : 0;
}

int main(int argc, char *argv[])
{
    const char *cluster = NULL;
    bool settled = false;
    int worst = 0, n_files = 0;
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* so that output and errors appear in order */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--settled") == 0) {
            settled = true;
        } else if (strcmp(argv[i], "--cluster") == 0 && i + 1 < argc) {
            cluster = argv[++i];
        } else if (argv[i][0] == '-') {
            n_files = 0;
            break;
        } else {
            int code = check(argv[i], cluster, settled);
            worst = worst == 0 || (code != 0 && code < worst) ? code : worst;
            n_files++;
        }
    }
    if (n_files == 0) {
        fprintf(stderr, "usage: check-history [--cluster NAME] [--settled] FILE...\n");
        return 2;
    }
    return worst;
}
