#include "commands/core/generic_args.h"

#include <string.h>

#include "bson/number.h"
#include "bson/uuid.h"

static ErrCode parse_arguments(CommandCtx *ctx, void **ret_request, Error *err);
static ErrCode tell_session_first(CommandCtx *ctx, ErrCode rc, Error *err);
static ErrCode parse_elem(CommandCtx *ctx, Elem elem, void *request, uint64_t *seen, Error *err);
static ErrCode parse_sequences(CommandCtx *ctx, void *request, uint64_t *seen, Error *err);
static ErrCode check_api(CommandCtx *ctx, Error *err);
static ErrCode check_session(CommandCtx *ctx, Error *err);
static ErrCode check_transaction(CommandCtx *ctx, Error *err);
static ErrCode check_txn_number(CommandCtx *ctx, Error *err);
static ErrCode check_read_concern(CommandCtx *ctx, Error *err);
static ErrCode parse_write_concern(CommandCtx *ctx, Error *err);
static ErrCode parse_w(const CommandCtx *ctx, Elem elem, WriteConcern *concern, Error *err);

static const RequestSpec *request_spec(const CommandSpec *spec) {
    static const RequestSpec NO_ARGUMENTS = {0};
    return spec->request != NULL ? spec->request : &NO_ARGUMENTS;
}

ErrCode command_parse(CommandCtx *ctx, void **ret_request, Error *err) {
    ErrCode rc = parse_arguments(ctx, ret_request, err);
    return LIKELY(rc == ERR_OK) ? ERR_OK : tell_session_first(ctx, rc, err);
}

static ErrCode parse_arguments(CommandCtx *ctx, void **ret_request, Error *err) {
    const CommandSpec *spec = ctx->spec;
    void *request = arena_zalloc(cmd_arena(ctx), request_spec(spec)->size);
    uint64_t seen = 0;
    DocIter iter = doc_iter(ctx->body);
    Elem elem;
    while (doc_iter_next(&iter, &elem))
        TRY(parse_elem(ctx, elem, request, &seen, err));
    if (ctx->message->sequence_count > 0)
        TRY(parse_sequences(ctx, request, &seen, err));
    TRY(fields_check_required(request_spec(spec)->fields, request_spec(spec)->field_count, seen,
                              spec->name, err));
    *ret_request = request;
    return ERR_OK;
}

/* What a session or a transaction does not allow is told before what is wrong with the arguments of
 * the command, which MongoDB reads later. */
static ErrCode tell_session_first(CommandCtx *ctx, ErrCode rc, Error *err) {
    DocIter iter = doc_iter(ctx->body);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        size_t index;
        const FieldSpec *field =
            field_find(GENERIC_ARGS.fields, GENERIC_ARGS.field_count, elem, &index);
        Error ignored = {0}; /* the first error was noted already */
        if (field != NULL && field_parse(field, ctx->spec->name, elem, cmd_arena(ctx), &ctx->args,
                                         &ignored) != ERR_OK)
            error_reset(&ignored);
    }
    Error of_session = {0};
    ErrCode session_rc = check_session(ctx, &of_session);
    if (session_rc == ERR_OK)
        return rc;
    error_reset(err);
    *err = of_session;
    return session_rc;
}

ErrCode generic_args_check(CommandCtx *ctx, Error *err) {
    if ((ctx->spec->flags & CMD_ADMIN_ONLY) != 0 && !str_is(ctx->args.db, "admin"))
        return error_set(err, ERR_UNAUTHORIZED, "%s may only be run against the admin database.",
                         ctx->spec->name);
    if (elem_is_present(ctx->args.max_time_ms)) {
        int64_t max_time_ms;
        if (!elem_is_number(ctx->args.max_time_ms))
            return error_set(
                err, ERR_TYPE_MISMATCH,
                "BSON field '%s.maxTimeMS' is the wrong type '%s', expected types '[int, "
                "decimal, double, long]'",
                ctx->spec->name, bson_type_name(elem_type(ctx->args.max_time_ms)));
        if (!number_is_exact_i64(number_from_elem(ctx->args.max_time_ms), &max_time_ms))
            return error_set(err, ERR_BAD_VALUE, "maxTimeMS has non-integral value");
        if (max_time_ms < 0 || max_time_ms > INT32_MAX)
            return error_set(err, ERR_BAD_VALUE, "%lld value for maxTimeMS is out of range [0, %d]",
                             (long long)max_time_ms, INT32_MAX);
        if (max_time_ms > 0)
            op_set_max_time(ctx->op, max_time_ms);
    }
    TRY(check_api(ctx, err));
    TRY(check_session(ctx, err));
    TRY(check_read_concern(ctx, err));
    return parse_write_concern(ctx, err);
}

/* Told before what else is wrong with the field. A router has checked what its client said, and
 * adds fields of its own: it says by which metadata it sends the command. */
static ErrCode check_unstable(const CommandCtx *ctx, Elem elem, Error *err) {
    Elem strict = doc_get_lit(ctx->body, "apiStrict");
    if (elem_type(strict) != BT_BOOL || !elem_bool(strict) ||
        elem_is_present(doc_get_lit(ctx->body, "shardVersion")) ||
        elem_is_present(doc_get_lit(ctx->body, "databaseVersion")))
        return ERR_OK;
    return error_set(err, ERR_API_STRICT_ERROR,
                     "BSON field '%s.%s' is not allowed with apiStrict:true.", ctx->spec->name,
                     elem_name(elem));
}

static ErrCode parse_elem(CommandCtx *ctx, Elem elem, void *request, uint64_t *seen, Error *err) {
    const CommandSpec *spec = ctx->spec;
    size_t index;
    const FieldSpec *field =
        field_find(request_spec(spec)->fields, request_spec(spec)->field_count, elem, &index);
    if (field != NULL) {
        if ((*seen >> index & 1) != 0)
            return field_duplicate(spec->name, elem, err);
        *seen |= (uint64_t)!field_is_absent(field, elem) << index;
        if (UNLIKELY((field->flags & FIELD_UNSTABLE) != 0))
            TRY(check_unstable(ctx, elem, err));
        return field_parse(field, spec->name, elem, cmd_arena(ctx), request, err);
    }
    field = field_find(GENERIC_ARGS.fields, GENERIC_ARGS.field_count, elem, &index);
    if (field != NULL)
        return field_parse(field, spec->name, elem, cmd_arena(ctx), &ctx->args, err);
    /* The command's own name, possibly through its alias, is the first field. */
    if (elem.data == ctx->body.data + 4 || (spec->flags & CMD_LOOSE) != 0)
        return ERR_OK;
    return field_unknown(spec->name, elem, err);
}

static ErrCode parse_sequences(CommandCtx *ctx, void *request, uint64_t *seen, Error *err) {
    const CommandSpec *spec = ctx->spec;
    const RequestSpec *fields = request_spec(spec);
    for (uint32_t s = 0; s < ctx->message->sequence_count; s++) {
        const WireSequence *sequence = &ctx->message->sequences[s];
        const FieldSpec *field = NULL;
        size_t index = 0;
        for (; index < fields->field_count && field == NULL; index++)
            if (fields->fields[index].type == FIELD_DOCS &&
                str_is(sequence->name, fields->fields[index].name))
                field = &fields->fields[index];
        if (field == NULL && spec->request == NULL && (spec->flags & CMD_LOOSE) != 0)
            continue; /* passed on as it came */
        if (field == NULL)
            return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                             "BSON field '%s.%.*s' is an unknown field.", spec->name,
                             (int)sequence->name.size, sequence->name.data);
        *seen |= UINT64_C(1) << (index - 1);
        Doc *docs = arena_alloc(cmd_arena(ctx), sizeof(Doc) * (sequence->count + 1));
        const uint8_t *at = sequence->docs;
        for (uint32_t i = 0; i < sequence->count; i++) {
            docs[i] = (Doc){at};
            at += doc_size(docs[i]);
        }
        *(DocList *)((char *)request + field->offset) = (DocList){docs, sequence->count};
    }
    return ERR_OK;
}

static ErrCode check_api_type(const CommandCtx *ctx, Elem given, BsonType wanted, Error *err) {
    if (!elem_is_present(given) || elem_type(given) == wanted)
        return ERR_OK;
    return error_set(err, ERR_TYPE_MISMATCH,
                     "BSON field '%s.%s' is the wrong type '%s', expected type '%s'",
                     ctx->spec->name, elem_name(given), bson_type_name(elem_type(given)),
                     bson_type_name(wanted));
}

static ErrCode check_api(CommandCtx *ctx, Error *err) {
    const GenericArgs *args = &ctx->args;
    if (!elem_is_present(args->api_version)) {
        if (elem_is_present(args->api_strict) || elem_is_present(args->api_deprecation_errors))
            return error_set(
                err, (ErrCode)4886600,
                "Provided apiStrict or apiDeprecationErrors without passing apiVersion");
        return ERR_OK;
    }
    TRY(check_api_type(ctx, args->api_version, BT_STRING, err));
    TRY(check_api_type(ctx, args->api_strict, BT_BOOL, err));
    TRY(check_api_type(ctx, args->api_deprecation_errors, BT_BOOL, err));
    if (!str_is(elem_str(args->api_version), "1"))
        return error_set(err, ERR_API_VERSION_ERROR, "API version must be \"1\"");
    if (elem_is_truthy(args->api_strict) && (ctx->spec->flags & CMD_API_V1) == 0)
        return error_set(err, ERR_API_STRICT_ERROR,
                         "Provided apiStrict:true, but the command %s is not in API Version 1; see "
                         "https://dochub.mongodb.org/core/manual-versioned-api",
                         ctx->spec->name);
    if (elem_is_truthy(args->api_deprecation_errors) &&
        (ctx->spec->flags & CMD_API_V1_DEPRECATED) != 0)
        return error_set(err, ERR_API_DEPRECATION_ERROR,
                         "Provided apiDeprecationErrors:true, but the command %s is deprecated in "
                         "API Version 1",
                         ctx->spec->name);
    return ERR_OK;
}

/* Sessions are accepted on a standalone node; what needs a replica set is refused as MongoDB does.
 */
static ErrCode check_session(CommandCtx *ctx, Error *err) {
    const GenericArgs *args = &ctx->args;
    if (elem_is_present(args->lsid)) {
        Uuid id;
        if (elem_type(args->lsid) != BT_DOC ||
            !uuid_from_elem(doc_get_lit(elem_doc(args->lsid), "id"), &id))
            return error_set(
                err, ERR_TYPE_MISMATCH,
                "BSON field 'OperationSessionInfo.lsid' needs a document with a UUID 'id'");
    } else if (elem_is_present(args->txn_number)) {
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Transaction number requires a session ID to also be specified");
    }
    if (elem_is_present(args->autocommit) || elem_is_present(args->start_transaction))
        TRY(check_transaction(ctx, err));
    return elem_is_present(args->txn_number) ? check_txn_number(ctx, err) : ERR_OK;
}

static ErrCode check_flag(Elem flag, bool wanted, Error *err) {
    if (elem_type(flag) != BT_BOOL)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field 'OperationSessionInfo.%s' is the wrong type '%s', expected "
                         "type 'bool'",
                         elem_name(flag), bson_type_name(elem_type(flag)));
    if (elem_is_truthy(flag) != wanted)
        return error_set(err, ERR_INVALID_OPTIONS, "'%s' cannot be %s", elem_name(flag),
                         wanted ? "false" : "true");
    return ERR_OK;
}

/* {autocommit: false}, and with the first statement {startTransaction: true}. */
static ErrCode check_transaction(CommandCtx *ctx, Error *err) {
    const GenericArgs *args = &ctx->args;
    if (!elem_is_present(args->txn_number))
        return error_set(err, ERR_INVALID_OPTIONS, "'%s' needs a 'txnNumber'",
                         elem_is_present(args->autocommit) ? "autocommit" : "startTransaction");
    if (!elem_is_present(args->autocommit))
        return error_set(err, ERR_INVALID_OPTIONS, "'startTransaction' needs 'autocommit: false'");
    TRY(check_flag(args->autocommit, /* wanted= */ false, err));
    if (elem_is_present(args->start_transaction))
        TRY(check_flag(args->start_transaction, /* wanted= */ true, err));
    ctx->is_txn = true;
    return ERR_OK;
}

/* Who talks to a node of a cluster itself may read what it has in "config", but for the state of
 * transactions. */
static bool is_config_read(const CommandCtx *ctx) {
    NodeRole role = ctx->service->role;
    Elem coll = {ctx->body.data + 4, (uint32_t)strlen((const char *)ctx->body.data + 5)};
    return (role == ROLE_SHARD || role == ROLE_CONFIG_SERVER) && str_is(ctx->args.db, "config") &&
           (ctx->spec->flags & CMD_READS) != 0 && (ctx->spec->flags & CMD_WRITES) == 0 &&
           !(elem_type(coll) == BT_STRING && str_is(elem_str(coll), "transactions"));
}

/* What the command may be, and say, inside of a transaction. */
static ErrCode check_in_txn(CommandCtx *ctx, Error *err) {
    static const char *const CLOSED_DBS[] = {"admin", "config", "local"};
    uint32_t flags = ctx->spec->flags;
    bool is_everywhere = (flags & CMD_ENDS_TXN) != 0 || is_config_read(ctx);
    bool is_start = elem_is_present(ctx->args.start_transaction);
    if ((flags & (CMD_IN_TXN | CMD_ENDS_TXN)) == 0)
        return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                         "Cannot run '%s' in a multi-document transaction.", ctx->spec->name);
    for (size_t i = 0; i < ARRAY_LEN(CLOSED_DBS) && !is_everywhere; i++)
        if (str_is(ctx->args.db, CLOSED_DBS[i]))
            return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                             "collections of the database '%s' cannot be used in a transaction",
                             CLOSED_DBS[i]);
    if (is_start && ((flags & CMD_ENDS_TXN) != 0 || ctx->spec->is_never_first_in_txn))
        return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                         "Cannot run %s as the first operation in a multi-document transaction.",
                         ctx->spec->name);
    if (elem_is_present(ctx->args.write_concern) && (flags & CMD_ENDS_TXN) == 0)
        return error_set(
            err, ERR_INVALID_OPTIONS,
            "'writeConcern' belongs to the commit or abort of a transaction, not to its "
            "statements");
    bool has_concern = elem_is_present(ctx->args.read_concern) &&
                       !(elem_type(ctx->args.read_concern) == BT_DOC &&
                         doc_is_empty(elem_doc(ctx->args.read_concern)));
    if (has_concern && !is_start)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'readConcern' belongs to the first statement of a transaction");
    return ERR_OK;
}

/* A number means a retryable write, or with autocommit: false a transaction. */
static ErrCode check_txn_number(CommandCtx *ctx, Error *err) {
    Elem number = ctx->args.txn_number;
    if (elem_type(number) != BT_INT64)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field 'OperationSessionInfo.txnNumber' is the wrong type '%s', "
                         "expected type 'long'",
                         bson_type_name(elem_type(number)));
    if (service_is_standalone(ctx->service))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "Transaction numbers are only allowed on a replica set member or mongos");
    if (elem_i64(number) < 0)
        return error_set(err, ERR_INVALID_OPTIONS, "Transaction number cannot be negative");
    if (ctx->is_txn)
        return check_in_txn(ctx, err);
    if ((ctx->spec->flags & CMD_RETRYABLE) == 0)
        return error_set(err, ERR_NOT_A_RETRYABLE_WRITE_COMMAND,
                         "txnNumber may only be provided for multi-document transactions and "
                         "retryable write commands. autocommit:false was not provided, and %s is "
                         "not a retryable write command.",
                         ctx->spec->name);
    return ERR_OK;
}

static ErrCode parse_level(CommandCtx *ctx, Elem elem, Error *err) {
    static const struct {
        const char *name;
        ReadConcernLevel level;
        bool is_replica_only;
    } LEVELS[] = {
        {"local", READ_CONCERN_LOCAL, false},
        {"available", READ_CONCERN_AVAILABLE, false},
        {"majority", READ_CONCERN_MAJORITY, false},
        {"linearizable", READ_CONCERN_LINEARIZABLE, true},
        {"snapshot", READ_CONCERN_SNAPSHOT, true},
    };
    if (elem_type(elem) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "\"level\" had the wrong type. Expected string, found %s",
                         bson_type_name(elem_type(elem)));
    for (size_t i = 0; i < ARRAY_LEN(LEVELS); i++) {
        if (!str_is(elem_str(elem), LEVELS[i].name))
            continue;
        if (LEVELS[i].is_replica_only && service_is_standalone(ctx->service))
            return error_set(err, ERR_NOT_A_REPLICA_SET,
                             "node needs to be a replica set member to use read concern");
        ctx->read_concern.level = LEVELS[i].level;
        ctx->read_concern.is_given = true;
        return ERR_OK;
    }
    return error_set(err, ERR_FAILED_TO_PARSE,
                     "readConcern.level must be either 'local', 'majority', 'linearizable', "
                     "'available', or 'snapshot'");
}

static ErrCode parse_concern_time(CommandCtx *ctx, Elem elem, uint64_t *ret_ts, Error *err) {
    if (service_is_standalone(ctx->service))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "Cannot specify %s readConcern without replication enabled",
                         elem_name(elem));
    if (elem_type(elem) != BT_TIMESTAMP)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "\"%s\" had the wrong type. Expected timestamp, found %s", elem_name(elem),
                         bson_type_name(elem_type(elem)));
    *ret_ts = (uint64_t)elem_i64(elem);
    if (*ret_ts == 0)
        return error_set(err, ERR_INVALID_OPTIONS, "%s cannot be a null timestamp",
                         elem_name(elem));
    return ERR_OK;
}

static ErrCode parse_concern_optime(Elem elem, OpTime *ret_optime, Error *err) {
    if (!optime_from_elem(elem, ret_optime))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "readConcern afterOpTime is a document {ts: <timestamp>, t: <term>}");
    return ERR_OK;
}

static ErrCode check_optime(const CommandCtx *ctx, const ReadConcern *concern, Error *err) {
    if (LIKELY(optime_is_none(concern->after_optime)))
        return ERR_OK;
    if (concern->after_cluster_ts != 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "readConcern takes afterOpTime or afterClusterTime, not both");
    if (ctx->is_txn ||
        (concern->level != READ_CONCERN_LOCAL && concern->level != READ_CONCERN_MAJORITY))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "readConcern afterOpTime needs the level local or majority, and no "
                         "transaction");
    return ERR_OK;
}

static ErrCode check_read_concern(CommandCtx *ctx, Error *err) {
    Elem concern = ctx->args.read_concern;
    if (!elem_is_present(concern))
        return ERR_OK;
    if (elem_type(concern) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "\"readConcern\" had the wrong type. Expected object, found %s",
                         bson_type_name(elem_type(concern)));
    ReadConcern *parsed = &ctx->read_concern;
    DocIter iter = doc_iter(elem_doc(concern));
    Elem member;
    while (doc_iter_next(&iter, &member)) {
        if (elem_name_is(member, STR("provenance")))
            continue;
        if (elem_name_is(member, STR("level")))
            TRY(parse_level(ctx, member, err));
        else if (elem_name_is(member, STR("afterClusterTime")))
            TRY(parse_concern_time(ctx, member, &parsed->after_cluster_ts, err));
        else if (elem_name_is(member, STR("atClusterTime")))
            TRY(parse_concern_time(ctx, member, &parsed->at_cluster_ts, err));
        else if (elem_name_is(member, STR("afterOpTime")) && service_is_standalone(ctx->service))
            return error_set(err, ERR_NOT_A_REPLICA_SET,
                             "node needs to be a replica set member to use read concern");
        else if (elem_name_is(member, STR("afterOpTime")))
            TRY(parse_concern_optime(member, &parsed->after_optime, err));
        else
            return error_set(err, ERR_INVALID_OPTIONS, "Unrecognized option in readConcern: %s",
                             elem_name(member));
    }
    if (ctx->is_txn && (parsed->level == READ_CONCERN_LINEARIZABLE ||
                        (parsed->level == READ_CONCERN_AVAILABLE && parsed->is_given)))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "the level of 'readConcern' in a transaction is 'local', 'majority' or "
                         "'snapshot'");
    bool is_taken =
        ctx->is_txn || parsed->level == READ_CONCERN_LOCAL ||
        (parsed->level == READ_CONCERN_SNAPSHOT ? (ctx->spec->flags & CMD_TAKES_SNAPSHOT) != 0
                                                : (ctx->spec->flags & CMD_TAKES_READ_CONCERN) != 0);
    if (!is_taken)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Command %s does not support this readConcern: read concern not supported",
                         ctx->spec->name);
    if (parsed->at_cluster_ts != 0 && parsed->level != READ_CONCERN_SNAPSHOT)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "atClusterTime field can be set only if level is equal to snapshot");
    if (parsed->at_cluster_ts != 0 && parsed->after_cluster_ts != 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Specifying both atClusterTime and afterClusterTime is not allowed");
    if (parsed->after_cluster_ts != 0 && parsed->level == READ_CONCERN_LINEARIZABLE)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "afterClusterTime field can be set only if level is equal to local, "
                         "majority, or snapshot");
    TRY(check_optime(ctx, parsed, err));
    /* Drivers send that of a snapshot session with every command; a cursor has its own. */
    if ((ctx->spec->flags & CMD_CONTINUES_READ) != 0)
        *parsed = (ReadConcern){0};
    return ERR_OK;
}

ErrCode generic_args_check_explained(const CommandCtx *ctx, Doc command, Error *err) {
    Elem concern = doc_get_lit(command, "readConcern");
    Elem level =
        elem_type(concern) == BT_DOC ? doc_get_lit(elem_doc(concern), "level") : ELEM_MISSING;
    bool has_other = elem_type(level) == BT_STRING && !str_is(elem_str(level), "local");
    bool is_other = ctx->read_concern.is_given && ctx->read_concern.level != READ_CONCERN_LOCAL;
    if (!has_other && !is_other)
        return ERR_OK;
    return error_set(err, ERR_INVALID_OPTIONS,
                     "an explained aggregate takes no readConcern but 'local': read concern not "
                     "supported");
}

static ErrCode parse_write_concern(CommandCtx *ctx, Error *err) {
    WriteConcern *concern = &ctx->write_concern;
    concern->w = 1;
    Elem elem = ctx->args.write_concern;
    if (!elem_is_present(elem))
        return ERR_OK;
    if ((ctx->spec->flags & (CMD_WRITES | CMD_TAKES_WRITE_CONCERN)) == 0)
        return error_set(err, ERR_INVALID_OPTIONS, "Command %s does not support writeConcern",
                         ctx->spec->name);
    if (elem_type(elem) != BT_DOC)
        return error_set(
            err, ERR_TYPE_MISMATCH,
            "BSON field '%s.writeConcern' is the wrong type '%s', expected type 'object'",
            ctx->spec->name, bson_type_name(elem_type(elem)));
    concern->is_given = true;
    return generic_args_parse_write_concern(ctx, elem_doc(elem), concern, err);
}

ErrCode generic_args_parse_write_concern(const CommandCtx *ctx, Doc doc, WriteConcern *concern,
                                         Error *err) {
    DocIter iter = doc_iter(doc);
    for (Elem member; doc_iter_next(&iter, &member);) {
        if (elem_name_is(member, STR("w"))) {
            TRY(parse_w(ctx, member, concern, err));
        } else if (elem_name_is(member, STR("j")) || elem_name_is(member, STR("fsync"))) {
            if (elem_type(member) != BT_BOOL && !elem_is_number(member))
                return error_set(err, ERR_FAILED_TO_PARSE, "%s must be numeric or a boolean value",
                                 elem_name(member));
            concern->is_j_given = true;
            concern->is_journaled |= elem_is_truthy(member);
        } else if (elem_name_is(member, STR("wtimeout"))) {
            concern->wtimeout_ms = elem_is_number(member) ? elem_as_i64(member) : 0;
            if (concern->wtimeout_ms < INT32_MIN || concern->wtimeout_ms > INT32_MAX)
                return error_set(err, ERR_FAILED_TO_PARSE,
                                 "wtimeout has to be a number of 32 bits, not %lld",
                                 (long long)concern->wtimeout_ms);
        } else if (!elem_name_is(member, STR("provenance")) &&
                   !elem_name_is(member, STR("getLastError"))) {
            return error_set(err, ERR_FAILED_TO_PARSE, "unrecognized write concern field: %s",
                             elem_name(member));
        }
    }
    return ERR_OK;
}

static ErrCode parse_w(const CommandCtx *ctx, Elem elem, WriteConcern *concern, Error *err) {
    concern->is_w_given = true;
    if (elem_is_number(elem)) {
        concern->w = elem_as_i64(elem);
        if (concern->w < 0 || concern->w > 50)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "w has to be a non-negative number and not greater than 50");
        if (concern->w > 1 && service_is_standalone(ctx->service))
            return error_set(err, ERR_BAD_VALUE,
                             "cannot use 'w' > 1 when a host is not replicated");
        return ERR_OK;
    }
    if (elem_type(elem) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE, "w has to be a number, string, or object");
    concern->is_majority = str_is(elem_str(elem), "majority");
    if (!concern->is_majority)
        concern->w_tag = elem_str(elem);
    if (!concern->is_majority && service_is_standalone(ctx->service))
        return error_set(err, ERR_BAD_VALUE,
                         "cannot use non-majority 'w' mode %s when a host is not a member of a "
                         "replica set",
                         elem_str(elem).data);
    return ERR_OK;
}

ErrCode request_ns(const CommandCtx *ctx, Str coll, Ns *ret_ns, Error *err) {
    bool is_command_ns = coll.size > 5 && memcmp(coll.data, "$cmd.", 5) == 0;
    if (coll.size > 0 && coll.data[0] == '$' && !is_command_ns)
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "Invalid collection name specified '%.*s.%.*s'", (int)ctx->args.db.size,
                         ctx->args.db.data, (int)coll.size, coll.data);
    return ns_make(ctx->args.db, coll, ret_ns, err);
}
