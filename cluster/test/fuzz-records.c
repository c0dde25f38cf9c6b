/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-records.c - any bytes as any kind of record: decoding refuses them with an error text, or the record can be
 * encoded and decoded again. */
#include "cluster/eval-record.h"
#include "cluster/keys.h"
#include "cluster/log-records.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TRY(Type, prefix)                                                                          \
    do {                                                                                           \
        Type record, again;                                                                        \
        Error err = ERROR_INIT;                                                                    \
        if (prefix##_decode("key", text, n, &record, &err) < 0) {                                  \
            assert(err.text[0]);                                                                   \
            break;                                                                                 \
        }                                                                                          \
        _cleanup_free_ char *written = prefix##_encode(&record, NULL);                             \
        assert(prefix##_decode("key", written, strlen(written), &again, &err) == 0);               \
        prefix##_clear(&again);                                                                    \
        prefix##_clear(&record);                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size_t n = size - 1;
    switch (data[0] == 17 || data[0] == 18 ? data[0] : data[0] % 17) {
    case 0:
        TRY(NodeRecord, node_record);
        break;
    case 1:
        TRY(CordonRecord, cordon_record);
        break;
    case 2:
        TRY(SpecRecord, spec_record);
        break;
    case 3:
        TRY(DesiredRecord, desired_record);
        break;
    case 4:
        TRY(WorldRecord, world_record);
        break;
    case 5:
        TRY(PhaseRecord, phase_record);
        break;
    case 6:
        TRY(RanksRecord, ranks_record);
        break;
    case 7:
        TRY(RendezvousRecord, rendezvous_record);
        break;
    case 8:
        TRY(CheckpointsRecord, checkpoints_record);
        break;
    case 9:
        TRY(ProgressRecord, progress_record);
        break;
    case 10:
        TRY(IncidentRecord, incident_record);
        break;
    case 11:
        TRY(AlertRecord, alert_record);
        break;
    case 12:
        TRY(HealthRecord, health_record);
        break;
    case 13:
        TRY(LeaderRecord, leader_record);
        break;
    case 15:
        TRY(LogRequestRecord, log_request_record);
        break;
    case 16:
        TRY(LogLinesRecord, log_lines_record);
        break;
    case 17:
        TRY(ProgramRecord, program_record);
        break;
    case 18:
        TRY(EvalRecord, eval_record);
        break;
    default:
        TRY(RequestRecord, request_record);
        break;
    }
    return 0;
}
