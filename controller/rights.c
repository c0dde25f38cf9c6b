/* rights.c - see rights.h. */
#include "controller/rights.h"

#include "base/log.h"
#include "cluster/keys.h"

enum { TICKS_A_LOOK = 15 }; /* half a minute */

static void on_answer(int r, const Error *err, _unused_ const EtcdTxnResult *result, void *userdata)
{
    Rights *rights = userdata;
    rights->call = NULL; /* it frees itself */
    if (r == -EACCES && !rights->said_secrets)
        log_warning("worlds get no secret, so that their ranks prove nothing to each other: this "
                    "controller may not "
                    "write secrets (%s); ops/etcd-roles gives the right",
                    err->text);
    if (r == 0 && rights->said_secrets)
        log_info("worlds get a secret from now on");
    if (r == 0 || r == -EACCES) { /* else nobody knows, and it is asked again */
        rights->may_secrets = r == 0;
        rights->said_secrets = r == -EACCES;
    }
}

static void ask(Rights *rights)
{
    char key[KEY_MAX];
    if (rights->call)
        return;
    (void)key_of(rights->cluster, KEY_SECRETS, ".rights", key); /* no job has that name */
    (void)etcd_ask_rights(rights->etcd, key, on_answer, rights,
                          &rights->call); /* else it is asked again */
}

void rights_open(Rights *rights, Etcd *etcd, const char *cluster)
{
    *rights = (Rights){.etcd = etcd, .cluster = cluster};
    ask(rights);
}

void rights_clear(Rights *rights) { rights->call = etcd_call_free(rights->call); }

void rights_tick(Rights *rights)
{
    if (!rights->may_secrets && ++rights->ticks % TICKS_A_LOOK == 0)
        ask(rights);
}

void rights_denied(Rights *rights)
{
    if (!rights->may_secrets)
        return;
    rights->may_secrets = false;
    ask(rights);
}
