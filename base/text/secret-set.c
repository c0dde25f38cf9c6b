/* SPDX-License-Identifier: Apache-2.0 */
/* secret-set.c - see secret-set.h.
 *
 * Base64 of a longer text has a secret's bytes at one of three alignments. The search compares only the characters
 * whose bits all belong to the secret. It then removes the whole base64 word, since the characters around the match
 * hold bits of the secret, too.
 */
#include "base/text/secret-set.h"

#include "base/memory.h"
#include "base/text/secret.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* The shortest part of a URL that counts as a secret: "v2" and "hooks" are not secrets. */
    PART_BYTES_MIN = 8,
    ALIGNMENTS = 3,
};

static const char instead[] = "***";

/* ---- the set ---- */

static void add_bytes(SecretSet *set, const char *text, size_t n)
{
    if (n < SECRET_BYTES_MIN)
        return;
    for (size_t i = 0; i < set->n; i++)
        if (strlen(set->texts[i]) == n && memcmp(set->texts[i], text, n) == 0)
            return;
    if (set->n == SECRETS_MAX) {
        secret_free(set->texts[0]);
        memmove(set->texts, set->texts + 1, (SECRETS_MAX - 1) * sizeof(set->texts[0]));
        set->n--;
    }
    set->texts[set->n++] = memory_bytes(text, n);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Returns the number that n hexadecimal digits form; -1 if one of the characters is not such a digit. */
static int hex_number(const char *text, size_t n)
{
    int number = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0) /* also true for the NUL at the end of the text */
            return -1;
        number = number * 16 + digit;
    }
    return number;
}

static void add_both(SecretSet *set, const char *text, size_t n)
{
    _cleanup_secret_ char *decoded = memory_bytes(text, n);
    size_t n_decoded = 0;
    add_bytes(set, text, n);
    for (size_t i = 0; i < n; n_decoded++) {
        int number = text[i] == '%' && i + 2 < n ? hex_number(text + i + 1, 2) : -1;
        decoded[n_decoded] = number > 0 ? (char)number : text[i];
        i += number > 0 ? 3 : 1;
    }
    if (n_decoded < n)
        add_bytes(set, decoded, n_decoded);
}

void secret_set_add(SecretSet *set, const char *secret)
{
    if (secret)
        add_both(set, secret, strlen(secret));
}

void secret_set_add_url_user(SecretSet *set, const char *url)
{
    const char *scheme = strstr(url, "://"), *begin = scheme ? scheme + 3 : url;
    const char *at = memrchr(begin, '@', strcspn(begin, "/?#"));
    at = at ? at : strrchr(begin, '@'); /* the password has a '/', '?' or '#' that is not escaped */
    const char *colon = at ? memchr(begin, ':', (size_t)(at - begin)) : NULL;
    if (!at)
        return;
    add_both(set, begin, (size_t)(at - begin));
    if (colon)
        add_both(set, colon + 1, (size_t)(at - colon - 1));
}

void secret_set_add_url(SecretSet *set, const char *url)
{
    const char *scheme = strstr(url, "://"), *begin = scheme ? scheme + 3 : url;
    const char *path = begin + strcspn(begin, "/?#");
    if (memchr(begin, '@', (size_t)(path - begin)))
        secret_set_add_url_user(set, url);
    path += *path != '\0';
    for (const char *part = path; *part;) {
        size_t n = strcspn(part, "/?#&=");
        if (n >= PART_BYTES_MIN)
            add_both(set, part, n);
        part += n + (part[n] != '\0');
    }
    add_both(set, path, strlen(path));
}

void secret_set_clear(SecretSet *set)
{
    for (size_t i = 0; i < set->n; i++)
        secret_free(set->texts[i]);
    *set = (SecretSet){0};
}

/* ---- matching one secret ---- */

/* Reads an escaped character of a URL, JSON or HTML into *ret. Returns the length of the escape; 0: p has no escape. */
static size_t escaped_at(const char *p, unsigned char *ret)
{
    static const struct {
        const char *text;
        char meant;
    } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    int number = -1;
    size_t n = 0;
    if (*p == '%') {
        number = hex_number(p + 1, 2);
        n = 3;
    } else if (*p == '+') {
        number = ' ';
        n = 1;
    } else if (*p == '\\' && p[1] == 'u') {
        number = hex_number(p + 2, 4);
        n = 6;
    } else if (*p == '\\') {
        number = (unsigned char)p[1];
        n = 2;
    } else if (p[0] == '&' && p[1] == '#') {
        bool hex = p[2] == 'x' || p[2] == 'X';
        char *end;
        number = (int)MIN(strtoul(p + 2 + hex, &end, hex ? 16 : 10), 256UL);
        n = (size_t)(end - p) + 1;
        number = *end == ';' ? number : -1;
    } else if (*p == '&') {
        for (size_t i = 0; i < ELEMENTSOF(names) && number < 0; i++)
            if (strncmp(p, names[i].text, strlen(names[i].text)) == 0) {
                number = names[i].meant;
                n = strlen(names[i].text);
            }
    }
    *ret = (unsigned char)number;
    return number > 0 && number < 256 ? n : 0;
}

/* The base64 alphabet for URLs has '-' and '_' in place of '+' and '/'. */
static unsigned char base64_fold(unsigned char c) { return c == '-' ? '+' : c == '_' ? '/' : c; }

static bool is_same(unsigned char a, unsigned char b, bool base64)
{
    return a == b || (base64 && base64_fold(a) == base64_fold(b));
}

/* Returns how many bytes at p match the secret, or the secret's beginning if the text ends within it; 0: no match. */
static size_t match(const char *p, const char *secret, size_t n_secret, bool escaped, bool base64)
{
    const char *at = p;
    for (size_t i = 0; i < n_secret; i++) {
        unsigned char c, wanted = (unsigned char)secret[i];
        size_t n = escaped ? escaped_at(at, &c) : 0;
        if (*at == '\0')
            return i >= SECRET_BYTES_MIN ? (size_t)(at - p) : 0;
        if (n > 0 && is_same(c, wanted, base64))
            at += n;
        else if (is_same((unsigned char)*at, wanted, base64))
            at++;
        else
            return 0;
    }
    return (size_t)(at - p);
}

static size_t match_both(const char *p, const char *secret, size_t n, bool base64)
{
    return MAX(match(p, secret, n, false, base64), match(p, secret, n, true, base64));
}

/* ---- base64 ---- */

/* Returns those base64 characters that depend only on the secret. The secret's first group of three bytes begins with
 * `alignment` bytes of other text. */
static char *base64_core(const char *secret, unsigned alignment, size_t *ret_n)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = strlen(secret) + alignment;
    size_t first = (8 * alignment + 5) / 6, end = 8 * n_bytes / 6, n = 0;
    char *core = memory_zeroed(end - first + 1, 1);
    for (size_t i = first; i < end; i++) {
        size_t bit = 6 * i - 8 * alignment;
        unsigned high = (unsigned char)secret[bit / 8], low = (unsigned char)secret[bit / 8 + 1];
        unsigned two =
            high << 8 | low; /* after the last byte comes the NUL; none of its bits is used */
        core[n++] = alphabet[two >> (10 - bit % 8) & 63];
    }
    *ret_n = n;
    return core;
}

static bool is_base64(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c && strchr("+/-_%", c)); /* '%' begins an escaped character */
}

/* ---- removing all secrets ---- */

typedef struct Form {
    char *text;
    size_t n;
    bool base64;
} Form;

/* Makes all forms to search for: each secret as it is, and in base64 at each alignment. */
static size_t make_forms(const SecretSet *set, Form forms[SECRETS_MAX * (1 + ALIGNMENTS)])
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        forms[n++] = (Form){memory_text(set->texts[i]), strlen(set->texts[i]), false};
        for (unsigned alignment = 0; alignment < ALIGNMENTS; alignment++) {
            forms[n].text = base64_core(set->texts[i], alignment, &forms[n].n);
            forms[n++].base64 = true;
        }
    }
    return n;
}

void secret_set_take_out(const SecretSet *set, char *text)
{
    Form forms[SECRETS_MAX * (1 + ALIGNMENTS)];
    size_t n_forms = make_forms(set, forms);
    char *to = text;
    const char *p = text;
    while (*p) {
        size_t most = 0;
        bool base64 = false;
        for (size_t i = 0; i < n_forms; i++) {
            size_t n = match_both(p, forms[i].text, forms[i].n, forms[i].base64);
            base64 = n > most ? forms[i].base64 : base64;
            most = MAX(most, n);
        }
        if (most == 0) {
            if (to < p) /* a text in which nothing is found is not written to */
                *to = *p;
            to++, p++;
            continue;
        }
        p += most;
        while (base64 && (is_base64(*p) || *p == '='))
            p++;
        while (base64 && to > text && is_base64(to[-1]))
            to--;
        /* If another secret ended right here, its asterisks stand for both secrets. */
        if (to - text < 3 || memcmp(to - 3, instead, 3) != 0) {
            memcpy(to, instead, 3);
            to += 3;
        }
    }
    if (to < p)
        *to = '\0';
    for (size_t i = 0; i < n_forms; i++)
        secret_free(forms[i].text);
}
