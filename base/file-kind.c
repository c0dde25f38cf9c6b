/* SPDX-License-Identifier: Apache-2.0 */
/* file-kind.c - see file-kind.h. */
#include "base/file-kind.h"

#include "base/json/json.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *begins, *kind;
} magics[] = {
    {"\x1f\x8b", "gzip"},
    {"\x28\xb5\x2f\xfd", "zstd"},
    {"PK\x03\x04", "a zip archive"},
    {"PK\x05\x06", "a zip archive"},
    {"BZh", "bzip2"},
    {"\xfd"
     "7zXZ",
     "xz"},
    {"7z\xbc\xaf", "a 7z archive"},
    {"PAR1", "Parquet"},
    {"version https://git-lfs", "a pointer of Git LFS, whose file was not fetched (git lfs pull)"},
    {"\x80\x02", "a pickle"},
    {"\x80\x03", "a pickle"},
    {"\x80\x04", "a pickle"},
    {"\x80\x05", "a pickle"},
    {"\x93NUMPY", "a NumPy array"},
    {"\x89HDF\r\n", "HDF5"},
    {"GGUF", "GGUF"},
};

/* A text may begin with a byte order mark and blanks; upper and lower case are equal. */
static const struct {
    const char *begins, *kind;
} texts[] = {
    {"<?xml", "an XML text, as a store's error is"},
    {"<error", "an XML text, as a store's error is"},
    {"<!doctype html", "an HTML page"},
    {"<html", "an HTML page"},
    {"{", "a JSON text"},
};

static size_t blank_bytes(const char *p, size_t n)
{
    size_t at = json_mark_bytes(p, n);
    while (at < n && strchr(" \t\r\n", p[at]) && p[at])
        at++;
    return at;
}

const char *file_kind_of(const void *bytes, size_t n_bytes)
{
    const char *p = bytes;
    for (size_t i = 0; i < ELEMENTSOF(magics); i++) {
        const size_t n = strlen(magics[i].begins);
        if (n <= n_bytes && memcmp(p, magics[i].begins, n) == 0)
            return magics[i].kind;
    }
    const size_t blank = blank_bytes(p, n_bytes);
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        const size_t n = strlen(texts[i].begins);
        if (n <= n_bytes - blank && strncasecmp(p + blank, texts[i].begins, n) == 0)
            return texts[i].kind;
    }
    return NULL;
}

const char *file_kind_words(const void *bytes, size_t n_bytes, char *ret, size_t size)
{
    const char *kind = file_kind_of(bytes, n_bytes);
    (void)snprintf(ret, size, "%s%s", kind ? "; it is " : "", kind ? kind : "");
    return ret;
}
