/* SPDX-License-Identifier: Apache-2.0 */
/* numa.c - see numa.h. */
#include "kernels/cuda/module/numa.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"

#include <limits.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

enum { BITS = 8192, FILE_MAX = 64 * 1024 }; /* the most CPUs or nodes; the most bytes of a file */

typedef struct Set { /* a set of processors or of NUMA nodes */
    unsigned long words[BITS / (8 * sizeof(unsigned long))];
} Set;

static int set_count(const Set *set) { return CPU_COUNT_S(sizeof(*set), (cpu_set_t *)set->words); }

/* Reads "0-3,8,10-11\n"; an empty list is an empty set. */
static int set_parse(const char *text, Set *ret)
{
    *ret = (Set){{0}};
    while (*text && *text != '\n') {
        unsigned first = 0, last = 0;
        int used = 0, more = 0;
        if (sscanf(text, "%5u%n", &first, &used) != 1)
            return -EINVAL;
        last = first;
        text += used;
        if (*text == '-') {
            if (sscanf(text, "-%5u%n", &last, &more) != 1)
                return -EINVAL;
            text += more;
        }
        if (last < first || last >= BITS || (*text && !strchr(",\n", *text)))
            return -EINVAL;
        for (unsigned i = first; i <= last; i++)
            CPU_SET_S(i, sizeof(*ret), (cpu_set_t *)ret->words);
        text += *text == ',';
    }
    return 0;
}

static int read_text(const char *sysfs, const char *name, char **ret, Error *err)
{
    char path[PATH_MAX];
    size_t n = 0;
    if (snprintf(path, sizeof(path), "%s/%s", sysfs, name) >= (int)sizeof(path))
        return error_set(err, -ENAMETOOLONG, "%.100s: the path is too long", sysfs);
    return file_read(path, FILE_MAX, ret, &n, err);
}

static int read_set(const char *sysfs, const char *name, Set *ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = read_text(sysfs, name, &text, err);
    if (r < 0)
        return r;
    if (set_parse(text, ret) < 0)
        return error_set(err, -EINVAL, "%s/%s holds \"%.100s\"", sysfs, name, text);
    return 0;
}

/* Reads the GPU's NUMA node; -1 if the GPU has none. */
static int read_node(const char *sysfs, const char *pci_address, int *ret, Error *err)
{
    unsigned domain, bus, device, function = 0;
    char name[64], after;
    _cleanup_free_ char *text = NULL;
    int n = sscanf(pci_address, "%8x:%2x:%2x.%1x%c", &domain, &bus, &device, &function, &after);
    if (n != 3 && n != 4)
        return error_set(err, -EINVAL, "\"%.40s\" is not a PCI address", pci_address);
    (void)snprintf(name, sizeof(name), "bus/pci/devices/%04x:%02x:%02x.%x/numa_node", domain, bus,
                   device, function);
    int r = read_text(sysfs, name, &text, err);
    if (r < 0)
        return r;
    if (sscanf(text, "%6d %c", ret, &after) != 1 || *ret < -1 || *ret >= BITS)
        return error_set(err, -EINVAL, "%s/%s holds \"%.100s\"", sysfs, name, text);
    return 0;
}

/* Lets memory come from the node as long as the node has free memory, and returns 1. If the process already has a
 * memory policy, changes nothing and returns 0. */
static int prefer_memory(int node, Error *err)
{
    int policy = MPOL_DEFAULT;
    Set nodes = {{0}};
    if (syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0) == 0 && policy != MPOL_DEFAULT)
        return 0;
    CPU_SET_S((size_t)node, sizeof(nodes), (cpu_set_t *)nodes.words);
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.words, (unsigned long)node + 2) < 0)
        return error_errno(err, -errno, "set_mempolicy() to node %d", node);
    return 1;
}

static int bind_to(const char *sysfs, const char *pci_address, int node, Error *err)
{
    char name[64];
    Set present = {{0}}, near, chosen;
    (void)snprintf(name, sizeof(name), "devices/system/node/node%d/cpulist", node);
    int r = read_set(sysfs, name, &near, err);
    if (r < 0)
        return r;
    if (sched_getaffinity(0, sizeof(present), (cpu_set_t *)present.words) < 0)
        return error_errno(err, -errno, "sched_getaffinity()");
    for (size_t i = 0; i < ELEMENTSOF(present.words); i++)
        chosen.words[i] = present.words[i] & near.words[i];
    const int n = set_count(&chosen), n_present = set_count(&present);
    if (n == 0)
        return error_set(err, -EXDEV, "none of the %d processors that it may use is there",
                         n_present);
    if (sched_setaffinity(0, sizeof(chosen), (cpu_set_t *)chosen.words) < 0)
        return error_errno(err, -errno, "sched_setaffinity()");
    Error said = ERROR_INIT;
    r = prefer_memory(node, &said);
    log_info("GPU %s is at NUMA node %d: %d of %d processors, memory %s", pci_address, node, n,
             n_present,
             r > 0    ? "preferred there"
             : r == 0 ? "by the policy that the process has"
                      : said.text);
    return 0;
}

int cuda_numa_bind(const char *sysfs, const char *pci_address)
{
    Error err = ERROR_INIT;
    Set nodes;
    int node = -1;
    int r = read_set(sysfs, "devices/system/node/online", &nodes, &err);
    if (r == -ENOENT || (r == 0 && set_count(&nodes) < 2))
        return -1;
    if (r == 0)
        r = read_node(sysfs, pci_address, &node, &err);
    if (r == 0 && node < 0)
        return -1;
    if (r == 0)
        r = bind_to(sysfs, pci_address, node, &err);
    if (r == 0)
        return node;
    log_warning("not bound to the NUMA node of GPU %.40s: %s", pci_address, err.text);
    return -1;
}
