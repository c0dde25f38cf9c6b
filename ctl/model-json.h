/* SPDX-License-Identifier: Apache-2.0 */
/* model-json.h - jobs and incidents as `sdctl ... -o json` prints them.
 *
 * Ownership: the caller gets a reference.
 * Units:     see docs/reference/json-output.md.
 */
#pragma once

#include "ctl/model.h"

/* Makes the object that `job status -o json` prints; `job list -o json` prints an array of such objects. */
json_t *model_job_json(const Model *model, const ModelJob *job);
json_t *model_incident_json(const IncidentRecord *incident);
