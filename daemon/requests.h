/* requests.h - requests/<id> that this node answers: "checkpoint" for a job whose rank 0 is here,
 * "check" and "clear" for itself.
 *
 * Ownership: none; an answer under way frees itself.
 * Units:     none.
 * Errors:    logged. An answer that is lost leaves the request open; sdctl has a deadline.
 * Threads:   loop thread only.
 */
#pragma once

#include "etcd/etcd.h"

typedef struct Manager Manager;

void requests_on_event(Manager *m, const EtcdEvent *event);
/* Puts the answer, if the record is still the one that kv holds. */
void requests_answer(Manager *m, const EtcdKeyValue *kv, const char *text);
