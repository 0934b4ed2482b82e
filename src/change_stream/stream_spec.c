#include "change_stream/stream_spec.h"

#include <stddef.h>

enum {
    LOCATION_NOT_A_DOCUMENT = 50808,
    LOCATION_UNKNOWN_OPTION = 40415,
    LOCATION_TIME_AND_TOKEN = 40674,
    LOCATION_TWO_TOKENS = 50865,
};

typedef struct Choice {
    const char *name;
    int value;
} Choice;

static const Choice FULL_DOCUMENT_CHOICES[] = {
    {"default", FULL_DOCUMENT_DEFAULT},
    {"updateLookup", FULL_DOCUMENT_UPDATE_LOOKUP},
    {"whenAvailable", FULL_DOCUMENT_WHEN_AVAILABLE},
    {"required", FULL_DOCUMENT_REQUIRED},
    {NULL, 0},
};
static const Choice BEFORE_CHANGE_CHOICES[] = {
    {"off", BEFORE_CHANGE_OFF},
    {"whenAvailable", BEFORE_CHANGE_WHEN_AVAILABLE},
    {"required", BEFORE_CHANGE_REQUIRED},
    {NULL, 0},
};

typedef struct OptionRow {
    Str name;
    BsonType type;
    size_t at;             /* of a bool or an enum in StreamSpec */
    const Choice *choices; /* of an enum */
} OptionRow;

static const OptionRow OPTIONS[] = {
    {STR("fullDocument"), BT_STRING, offsetof(StreamSpec, full_document), FULL_DOCUMENT_CHOICES},
    {STR("fullDocumentBeforeChange"), BT_STRING, offsetof(StreamSpec, before_change),
     BEFORE_CHANGE_CHOICES},
    {STR("allChangesForCluster"), BT_BOOL, offsetof(StreamSpec, is_for_cluster), NULL},
    {STR("showExpandedEvents"), BT_BOOL, offsetof(StreamSpec, shows_expanded), NULL},
    {STR("showSystemEvents"), BT_BOOL, offsetof(StreamSpec, shows_system), NULL},
    {STR("showRawUpdateDescription"), BT_BOOL, offsetof(StreamSpec, shows_raw_update), NULL},
    {STR("resumeAfter"), BT_DOC, 0, NULL},
    {STR("startAfter"), BT_DOC, 0, NULL},
    {STR("startAtOperationTime"), BT_TIMESTAMP, 0, NULL},
};

/* Of MongoDB's own components: exist there, and have no use here. */
static const char *const INTERNAL_OPTIONS[] = {"showMigrationEvents", "allowToRunOnConfigDB",
                                               "allowToRunOnSystemNS"};

static ErrCode unknown_option(Elem option, Error *err) {
    for (size_t i = 0; i < ARRAY_LEN(INTERNAL_OPTIONS); i++)
        if (str_is(elem_name_str(option), INTERNAL_OPTIONS[i]))
            return error_set(err, ERR_NOT_IMPLEMENTED,
                             "option '%s' of $changeStream is not supported", elem_name(option));
    return error_set(err, (ErrCode)LOCATION_UNKNOWN_OPTION,
                     "BSON field '$changeStream.%s' is an unknown field.", elem_name(option));
}

static ErrCode set_option(const OptionRow *row, Elem option, StreamSpec *spec, Error *err) {
    char *at = (char *)spec + row->at;
    if (row->type == BT_BOOL) {
        *(bool *)at = elem_bool(option);
        return ERR_OK;
    }
    for (const Choice *choice = row->choices; choice->name != NULL; choice++) {
        if (!str_is(elem_str(option), choice->name))
            continue;
        memcpy(at, &choice->value, sizeof(choice->value));
        return ERR_OK;
    }
    return error_set(err, ERR_BAD_VALUE,
                     "Enumeration value '%s' for field '$changeStream.%s' is not a valid value.",
                     elem_str(option).data, elem_name(option));
}

static ErrCode take_token(Elem option, Arena *arena, StreamSpec *spec, Error *err) {
    if (spec->has_token)
        return error_set(err, (ErrCode)LOCATION_TWO_TOKENS,
                         "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream "
                         "stage");
    TRY(token_decode(elem_doc(option), arena, &spec->token, err));
    spec->has_token = true;
    if (spec->token.is_from_invalidate && elem_name_is(option, STR("resumeAfter")))
        return error_set(err, ERR_INVALID_RESUME_TOKEN,
                         "Attempting to resume a change stream using 'resumeAfter' is not allowed "
                         "from an invalidate notification.");
    return ERR_OK;
}

ErrCode stream_spec_parse(Elem given, Arena *arena, StreamSpec *ret_spec, Error *err) {
    if (elem_type(given) != BT_DOC)
        return error_set(err, (ErrCode)LOCATION_NOT_A_DOCUMENT,
                         "$changeStream stage expects a document as argument");
    *ret_spec = (StreamSpec){0};
    DocIter iter = doc_iter(elem_doc(given));
    Elem option;
    while (doc_iter_next(&iter, &option)) {
        const OptionRow *row = NULL;
        for (size_t i = 0; i < ARRAY_LEN(OPTIONS); i++)
            if (elem_name_is(option, OPTIONS[i].name))
                row = &OPTIONS[i];
        if (row == NULL)
            return unknown_option(option, err);
        if (elem_type(option) != row->type)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field '$changeStream.%s' is the wrong type '%s', expected type "
                             "'%s'",
                             elem_name(option), bson_type_name(elem_type(option)),
                             bson_type_name(row->type));
        if (row->type == BT_DOC)
            TRY(take_token(option, arena, ret_spec, err));
        else if (row->type == BT_TIMESTAMP)
            ret_spec->start_ts = (uint64_t)elem_i64(option);
        else
            TRY(set_option(row, option, ret_spec, err));
    }
    if (ret_spec->has_token && ret_spec->start_ts != 0)
        return error_set(err, (ErrCode)LOCATION_TIME_AND_TOKEN,
                         "Only one type of resume option is allowed, but multiple were found.");
    return ERR_OK;
}

ErrCode stream_spec_check_ns(const StreamSpec *spec, const Ns *ns, bool is_collectionless,
                             StreamScope *ret_scope, Error *err) {
    Str db = ns_db(ns);
    bool is_admin = str_is(db, "admin");
    if (spec->is_for_cluster) {
        if (!is_admin || !is_collectionless)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "A $changeStream with 'allChangesForCluster:true' may only be opened "
                             "on the 'admin' database, and with no collection name; found %s",
                             ns->text);
        *ret_scope = SCOPE_CLUSTER;
        return ERR_OK;
    }
    if (is_admin || str_is(db, "config") || str_is(db, "local"))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "$changeStream may not be opened on the internal %.*s database",
                         (int)db.size, db.data);
    if (!is_collectionless && ns_is_system(ns))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "$changeStream may not be opened on the internal %s collection", ns->text);
    *ret_scope = is_collectionless ? SCOPE_DATABASE : SCOPE_COLLECTION;
    return ERR_OK;
}
