/*
 * control.h - commands to the parts of a cluster, and the states they are in.
 *
 * Threading: one thread; control_interrupt from any.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "concurrency/op_ctx.h"
#include "transport/client.h"
#include "up/layout.h"

typedef enum PartState {
    PART_DOWN,          /* does not answer */
    PART_STARTING,      /* answers, but is of no use yet */
    PART_NOT_INITIATED, /* waits for the configuration of its set */
    PART_SECONDARY,
    PART_PRIMARY,
    PART_ROUTES, /* a router that is ready */
} PartState;

typedef struct Control {
    OpRegistry *ops;
    OpCtx *op;
    ClientPool *pool;
} Control;

void control_open(Control *control);
void control_close(Control *control);
/* Ends the call that runs, and makes all further ones fail. */
void control_interrupt(Control *control);

/* Runs a command on "admin" of the process on that port; the reply is there as client_run says. */
ErrCode control_run(Control *control, uint16_t port, Doc command, int64_t ms_max,
                    ClientReply *reply, Error *err) MUST_CHECK;

PartState control_state(Control *control, const Part *part);
const char *part_state_name(PartState state);
