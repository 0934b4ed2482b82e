/*
 * current_op_request.h - the arguments of currentOp. Fields other than its options are a filter of
 * the operations it tells of.
 */
#pragma once

#include "request/request.h"

typedef struct CurrentOpRequest {
    bool all;
    bool own_ops;
    bool truncate_ops;
} CurrentOpRequest;

extern const RequestSpec CURRENT_OP_REQUEST;

/* What is neither an option nor an argument of any command. */
Doc current_op_filter(Doc body, Arena *arena);
