/* SPDX-License-Identifier: Apache-2.0 */
/* manifests.c - reads the manifests of other versions, given as arguments, writes them again and
 * compares the result. */
#include "manifest/manifest-internal.h"

#include "base/file.h"
#include "tests/versions/fields.h"

#include <stdio.h>
#include <string.h>

static int again(const char *path)
{
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = NULL, *written = NULL;
    size_t n = 0;
    Manifest *m = NULL;
    if (file_read(path, MANIFEST_BYTES_MAX, &text, &n, &err) < 0 ||
        manifest_parse(path, text, n, &m, &err) < 0) {
        printf("%s\n", err.text);
        return 1;
    }
    int r = manifest_format(m, &written);
    manifest_free(m);
    assert(r == 0);
    _cleanup_json_ json_t *then = json_loads(text, 0, NULL), *now = json_loads(written, 0, NULL);
    (void)json_object_del(
        then, "hash"); /* the hash changes when fields are added; reading has checked the hash */
    return fields_holds(path, "", then, now);
}

int main(int argc, char **argv)
{
    int bad = argc < 2;
    for (int i = 1; i < argc; i++)
        bad += again(argv[i]);
    printf("%d manifests, %d fields lost or refused\n", argc - 1, bad);
    return bad > 0;
}
