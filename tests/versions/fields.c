/* fields.c - writes every field that this version knows, and reads what another version wrote.
 *
 *   version-fields write        a line for each kind of record and each message of the channel
 *   version-fields read FILE    such lines of an older version or of this one; exits 1 if a field is lost or refused
 *   version-fields read-newer FILE   of a newer one, whose fields need not be known: in records they are kept
 */
#include "tests/versions/fields.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

void fields_line(const char *kind, const char *text) { printf("%s\t%s\n", kind, text); }

void fields_text(const char *name, int i, char *ret, size_t size)
{
    if (strcmp(name, "secret") == 0) { /* the one text that has a form */
        memset(ret, 'a' + i, 64);
        ret[64] = '\0';
        return;
    }
    (void)snprintf(ret, MIN(size, (size_t)32), "%s-%d", name,
                   i); /* names of nodes are texts, too */
    for (char *p = ret; *p; p++)
        if (*p == '_')
            *p = '-';
    if (ret[strlen(ret) - 1] == '-')
        ret[strlen(ret) - 1] = '\0';
}

int fields_holds(const char *kind, const char *path, const json_t *then, const json_t *now)
{
    int n = 0;
    char inner[512];
    const char *key;
    json_t *value;
    if (json_is_object(then) && json_is_object(now)) {
        json_object_foreach ((json_t *)(uintptr_t)then, key, value) { /* it only reads */
            (void)snprintf(inner, sizeof(inner), "%s.%s", path, key);
            n += fields_holds(kind, inner, value, json_object_get(now, key));
        }
        return n;
    }
    if (json_is_array(then) && json_is_array(now) &&
        json_array_size(then) == json_array_size(now)) {
        for (size_t i = 0; i < json_array_size(then); i++) {
            (void)snprintf(inner, sizeof(inner), "%s[%zu]", path, i);
            n += fields_holds(kind, inner, json_array_get(then, i), json_array_get(now, i));
        }
        return n;
    }
    if (json_equal(then, now))
        return 0;
    _cleanup_free_ char *a = json_dumps(then, JSON_COMPACT | JSON_ENCODE_ANY);
    _cleanup_free_ char *b = now ? json_dumps(now, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    printf("%s: %s: %.200s was written, %.200s comes back\n", kind, path, a, b ?: "nothing");
    return 1;
}

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
