/* SPDX-License-Identifier: Apache-2.0 */
/* gpus.c - see gpus.h. */
#include "health/gpus.h"

#include "health/sysfs.h"

#include <limits.h>
#include <string.h>

enum { VENDOR_NVIDIA = 0x10de, CLASS_DISPLAY = 0x03, DEVICES_MAX = 2048 };

size_t gpus_list_pci(const char *sysfs, char ret[PROBE_SLOTS_MAX][PCI_ADDRESS_MAX])
{
    static SysfsName names[DEVICES_MAX];
    char folder[PATH_MAX];
    size_t n = 0;
    (void)snprintf(folder, sizeof(folder), "%s/bus/pci/devices", sysfs);
    size_t n_names = sysfs_list(folder, names, DEVICES_MAX);
    for (size_t i = 0; i < n_names && n < PROBE_SLOTS_MAX; i++) {
        uint64_t vendor, class;
        if (sysfs_read_number(&vendor, "%s/%s/vendor", folder, names[i]) == 0 &&
            vendor == VENDOR_NVIDIA &&
            sysfs_read_number(&class, "%s/%s/class", folder, names[i]) == 0 &&
            class >> 16 == CLASS_DISPLAY &&
            pci_address_parse(names[i], strlen(names[i]), ret[n]) == 0)
            n++;
    }
    return n;
}

int gpus_find(const Gpus *gpus, const char *pci)
{
    for (size_t i = 0; i < gpus->n; i++)
        if (strcmp(gpus->gpus[i].pci, pci) == 0)
            return (int)i;
    return -1;
}

int gpus_place(Gpus *gpus, const char *pci)
{
    size_t at = 0;
    while (at < gpus->n && strcmp(gpus->gpus[at].pci, pci) < 0)
        at++;
    if (at < gpus->n && strcmp(gpus->gpus[at].pci, pci) == 0)
        return (int)at;
    if (gpus->n == PROBE_SLOTS_MAX)
        return -1;
    memmove(&gpus->gpus[at + 1], &gpus->gpus[at], sizeof(Gpu) * (gpus->n - at));
    gpus->n++;
    gpus->gpus[at] = (Gpu){0};
    (void)snprintf(gpus->gpus[at].pci, sizeof(gpus->gpus[at].pci), "%s", pci);
    return (int)at;
}

json_t *gpus_format(const Gpus *gpus)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gpus->n; i++) {
        const Gpu *g = &gpus->gpus[i];
        json_t *one = json_pack("{ss,ss,ss}", "pci", g->pci, "uuid", g->uuid, "serial", g->serial);
        if (!one || json_array_append_new(list, one) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static void copy(char *to, size_t size, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    (void)snprintf(to, size, "%s", text ? text : "");
}

void gpus_parse(const json_t *list, Gpus *ret)
{
    *ret = (Gpus){0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        char pci[PCI_ADDRESS_MAX];
        const char *text = json_string_value(json_object_get(one, "pci"));
        int at =
            text && pci_address_parse(text, strlen(text), pci) == 0 ? gpus_place(ret, pci) : -1;
        if (at < 0)
            continue;
        copy(ret->gpus[at].uuid, sizeof(ret->gpus[at].uuid), one, "uuid");
        copy(ret->gpus[at].serial, sizeof(ret->gpus[at].serial), one, "serial");
    }
}
