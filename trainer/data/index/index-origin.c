/* index-origin.c - see index-origin.h. */
#include "trainer/data/index/index-origin.h"

#include "base/json.h"

int index_origin_parse(const char *name, const char *text, size_t n_bytes, IndexOrigin *ret,
                       Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    IndexOrigin origin = {0};
    char hash[HASH_TEXT_BYTES] = "";
    int64_t v;
    int r = json_parse(name, text, n_bytes, &root, err);
    if (r < 0)
        return r;
    JsonReader j = json_open(name, root, JSON_ANY_KEYS, err);
    json_get_int(&j, "v", JSON_REQUIRED, 1, 1, &v);
    json_get_text(&j, "version", JSON_REQUIRED, origin.version, sizeof(origin.version));
    if (json_get_text(&j, "source", JSON_REQUIRED, hash, sizeof(hash)) &&
        hash_parse(hash, &origin.source) < 0)
        json_refuse(&j, "source", "\"%s\" is no hash", hash);
    r = json_close(&j);
    if (r == 0)
        *ret = origin;
    return r;
}

/* The URI is not in it: it may be any bytes, and the dataset may be copied elsewhere. */
int index_origin_format(const IndexOrigin *origin, char **ret, Error *err)
{
    char hash[HASH_TEXT_BYTES];
    _cleanup_json_ json_t *root = json_pack("{s:i,s:s,s:s}", "v", 1, "version", origin->version,
                                            "source", hash_format(origin->source, hash));
    if (!root)
        return error_set(err, -EINVAL, "the version of index.json, \"%s\", is no UTF-8",
                         origin->version);
    char *text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    *ret = text;
    return 0;
}
