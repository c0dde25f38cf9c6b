/* SPDX-License-Identifier: Apache-2.0 */
/* version-fields.c - writes every field that this version knows, and reads the fields that another version wrote.
 *
 *   version-fields write        a line for each kind of record and each message of the channel
 *   version-fields read FILE    such lines of an older version or of this one; exits 1 if a field is lost or refused
 *   version-fields read-newer FILE   lines of a newer version: unknown fields are allowed, and kept in records
 */
#include "tests/versions/fields.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

static int read_lines(const char *path, bool newer)
{
    _cleanup_file_ FILE *file = fopen(path, "re");
    _cleanup_free_ char *line = NULL;
    size_t room = 0;
    int bad = 0, lines = 0;
    if (!file) {
        fprintf(stderr, "cannot open %s: %m\n", path);
        return 2;
    }
    for (ssize_t n; (n = getline(&line, &room, file)) > 0; lines++) {
        line[strcspn(line, "\n")] = '\0';
        char *tab = strchr(line, '\t');
        if (!tab) {
            fprintf(stderr, "%s: line %d has no tab\n", path, lines + 1);
            return 2;
        }
        *tab = '\0';
        int wrong = records_read(line, tab + 1, newer);
        if (wrong < 0)
            wrong = channel_read(line, tab + 1, newer);
        if (wrong < 0) {
            printf("%s: this version does not know the kind\n", line);
            wrong = 1;
        }
        bad += wrong;
    }
    if (lines == 0) {
        fprintf(stderr, "%s is empty\n", path);
        return 2;
    }
    printf("%d lines, %d fields lost or refused\n", lines, bad);
    return bad > 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "write") == 0) {
        records_write();
        channel_write();
        return fflush(stdout) == 0 ? 0 : 1;
    }
    if (argc == 3 && (strcmp(argv[1], "read") == 0 || strcmp(argv[1], "read-newer") == 0))
        return read_lines(argv[2], strcmp(argv[1], "read-newer") == 0);
    fprintf(stderr, "usage: version-fields write | read FILE | read-newer FILE\n");
    return 2;
}
