/* SPDX-License-Identifier: Apache-2.0 */
/* node-report.c - see node-report.h. */
#include "ctl/doctor/node-report.h"

#include "base/json/json.h"
#include "base/text/printable.h"

#include <string.h>

enum { ERRNO_MAX = 4095 };

static void read_stores(JsonReader *r, NodeReport *ret)
{
    json_t *list = NULL;
    if (!json_get_array(r, "stores", JSON_REQUIRED, RECORD_URIS_MAX, &list))
        return;
    for (size_t i = 0; i < json_array_size(list); i++) {
        JsonReader one = json_get_element(r, "stores", list, i);
        StoreReport *s = &ret->stores[ret->n_stores++];
        json_get_int(&one, "r", JSON_REQUIRED, -ERRNO_MAX, 0, &s->r);
        json_get_text(&one, "error", JSON_REQUIRED, s->error, sizeof(s->error));
        json_get_bool(&one, "lacks_marker", JSON_OPTIONAL, &s->lacks_marker);
        (void)json_close(&one); /* the error is recorded in r */
    }
}

static void read_peers(JsonReader *r, NodeReport *ret)
{
    json_t *list = NULL, *one;
    size_t i;
    if (!json_get_array(r, "peers", JSON_OPTIONAL, RECORD_PEERS_MAX, &list))
        return;
    json_array_foreach (list, i, one)
        if (json_is_integer(one) && json_integer_value(one) >= -ERRNO_MAX)
            ret->peers[ret->n_peers++] = json_integer_value(one);
        else
            json_refuse(r, "peers", "element %zu is neither a time nor an error", i);
}

static void read_programs(JsonReader *r, ProgramsReport *ret)
{
    enum { DEVICES_MAX = 256 };
    json_t *any = NULL, *list = NULL;
    if (!json_get_any(r, "programs", JSON_OPTIONAL, &any))
        return;
    JsonReader j = json_get_object(r, "programs", JSON_REQUIRED);
    ret->has = true;
    json_get_text(&j, "error", JSON_OPTIONAL, ret->error, sizeof(ret->error));
    if (!*ret->error) {
        json_get_text(&j, "user", JSON_REQUIRED, ret->user, sizeof(ret->user));
        json_get_text(&j, "closed_secrets", JSON_OPTIONAL, ret->closed_secrets,
                      sizeof(ret->closed_secrets));
        json_get_int(&j, "uid", JSON_REQUIRED, 0, UINT32_MAX, &ret->uid);
        json_get_int(&j, "memlock_bytes", JSON_REQUIRED, -1, INT64_MAX, &ret->memlock_bytes);
        json_get_int(&j, "nofile", JSON_REQUIRED, -1, INT64_MAX, &ret->nofile);
        if (json_get_array(&j, "closed_devices", JSON_REQUIRED, DEVICES_MAX, &list))
            ret->n_closed_devices = (int64_t)json_array_size(list);
        const char *first = json_string_value(json_array_get(list, 0));
        (void)snprintf(ret->closed_device, sizeof(ret->closed_device), "%.60s", first ? first : "");
        printable_end(ret->closed_device);
    }
    (void)json_close(&j); /* the error is recorded in r */
}

void node_report_read(const char *text, NodeReport *ret)
{
    _cleanup_json_ json_t *root = NULL;
    Error err = ERROR_INIT;
    *ret = (NodeReport){0};
    int r = json_parse("its report", text, strlen(text), &root, &err);
    if (r == 0) {
        JsonReader j = json_open("its report", root, JSON_ANY_KEYS, &err);
        if (json_get_text(&j, "error", JSON_OPTIONAL, ret->error, sizeof(ret->error)) &&
            *ret->error)
            return; /* only a report with an error may lack the other keys */
        json_get_text(&j, "version", JSON_REQUIRED, ret->version, sizeof(ret->version));
        json_get_text(&j, "user", JSON_REQUIRED, ret->user, sizeof(ret->user));
        json_get_text(&j, "cgroup", JSON_REQUIRED, ret->cgroup, sizeof(ret->cgroup));
        json_get_int(&j, "uid", JSON_REQUIRED, 0, UINT32_MAX, &ret->uid);
        json_get_int(&j, "at_usec", JSON_REQUIRED, 0, INT64_MAX, &ret->at_usec);
        json_get_int(&j, "shm_bytes", JSON_REQUIRED, 0, INT64_MAX, &ret->shm_bytes);
        json_get_int(&j, "memlock_bytes", JSON_REQUIRED, -1, INT64_MAX, &ret->memlock_bytes);
        json_get_int(&j, "nofile", JSON_REQUIRED, -1, INT64_MAX, &ret->nofile);
        json_get_bool(&j, "synchronised", JSON_REQUIRED, &ret->synchronised);
        read_stores(&j, ret);
        read_peers(&j, ret);
        read_programs(&j, &ret->programs);
        r = json_close(&j);
    }
    if (r < 0) {
        (void)snprintf(ret->error, sizeof(ret->error), "%.190s", err.text);
        printable_end(ret->error);
    }
}
