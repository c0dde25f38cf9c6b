/* SPDX-License-Identifier: Apache-2.0 */
/* compaction.c - checks whether etcd compacts old revisions; see checks.h. */
#include "ctl/doctor/checks.h"

static const char size_check[] = "etcd size";

void check_compaction(Etcd *etcd, const char *key, int64_t revision, int64_t kept, Findings *f)
{
    Error err = ERROR_INIT;
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    if (revision <= kept) {
        findings_add(f, FINDING_OK, size_check, NULL, NULL,
                     "less than %lld revisions: whether it compacts cannot be told yet",
                     (long long)kept);
        return;
    }
    int r = etcd_get_at_wait(etcd, key, revision - kept, &answer, &err);
    if (r == -ESTALE)
        findings_add(f, FINDING_OK, size_check, NULL, NULL, "it compacts old revisions");
    else if (r == 0)
        findings_add(f, FINDING_WRONG, size_check, NULL,
                     "--auto-compaction-mode=revision --auto-compaction-retention=20000",
                     "it keeps more than %lld old revisions: its database grows to its quota",
                     (long long)kept);
    else
        findings_add(f, FINDING_WRONG, size_check, NULL, NULL,
                     "whether it compacts cannot be told: %s", err.text);
}
