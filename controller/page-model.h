/* SPDX-License-Identifier: Apache-2.0 */
/* page-model.h - the core's state in the form that the pages of report/ need.
 *
 * Ownership: the caller clears the Page. The Cluster and the Seen are borrowed for the call.
 * Units:     as report/report.h.
 * Errors:    false: there is no such job.
 */
#pragma once

#include "controller/core/cluster.h"
#include "controller/progress-curves.h"
#include "report/report.h"

typedef struct PageSource {
    const char *cluster_name, *leader;
    const Cluster *cluster;
    int64_t term;
    const Seen *seen;
    uint64_t seen_usec; /* when this controller began to keep `seen` */
    uint64_t now_usec;
} PageSource;

bool page_model_has_job(const Cluster *cluster, const char *job);
bool page_model_job(const PageSource *source, const char *job, Page *ret);
void page_model_cluster(const PageSource *source, Page *ret);
