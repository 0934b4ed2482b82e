/*
 * event.c - the fields of events, in the order of MongoDB 7.0:
 *
 *     _id, operationType, clusterTime, collectionUUID*, wallTime, lsid, txnNumber, fullDocument,
 *     ns, to, documentKey, updateDescription, operationDescription*, fullDocumentBeforeChange
 *
 * Those with a star are of streams with showExpandedEvents.
 */
#include "change_stream/event.h"

#include "change_stream/description.h"
#include "query/update/update_delta.h"

static void build_ns(DocBuilder *b, const char *name, Str db, Str coll) {
    size_t opened = build_open_doc(b, name);
    build_str(b, "db", db);
    if (coll.size > 0)
        build_str(b, "coll", coll);
    build_close(b, opened);
}

/* All fields of `o` behind the first one, which names the command. */
static void build_rest(DocBuilder *b, Doc o) {
    DocIter iter = doc_iter(o);
    Elem elem;
    bool is_first = true;
    while (doc_iter_next(&iter, &elem)) {
        if (!is_first)
            build_elem(b, elem);
        is_first = false;
    }
}

static void describe_create(DocBuilder *b, const StreamChange *change) {
    if (!change->is_view) {
        build_rest(b, elem_doc(change->o));
        return;
    }
    DocIter iter = doc_iter(elem_doc(change->o));
    Elem elem;
    while (doc_iter_next(&iter, &elem))
        if (!elem_name_is(elem, STR("_id")))
            build_elem(b, elem);
}

static void describe_create_indexes(DocBuilder *b, const StreamChange *change) {
    Elem indexes = doc_get_lit(elem_doc(change->o), "indexes");
    if (change->is_commit_build && elem_type(indexes) == BT_ARRAY) {
        build_elem(b, indexes);
        return;
    }
    size_t array = build_open_array(b, "indexes");
    size_t only = build_open_doc(b, "0");
    build_rest(b, elem_doc(change->o));
    build_close(b, only);
    build_close(b, array);
}

static void describe_drop_indexes(DocBuilder *b, const StreamChange *change) {
    size_t array = build_open_array(b, "indexes");
    if (elem_is_present(change->o2))
        build_doc(b, "0", elem_doc(change->o2));
    build_close(b, array);
}

static void describe_modify(DocBuilder *b, const StreamChange *change) {
    if (change->is_view) {
        describe_create(b, change);
        return;
    }
    build_rest(b, elem_doc(change->o));
    if (!elem_is_present(change->o2))
        return;
    static const struct {
        const char *from;
        const char *to;
    } NAMES[] = {{"collectionOptions_old", "collectionOptions"},
                 {"indexOptions_old", "indexOptions"}};
    size_t opened = build_open_doc(b, "stateBeforeChange");
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        Elem old = doc_get(elem_doc(change->o2), str_from(NAMES[i].from));
        if (elem_is_present(old))
            build_elem_as(b, str_from(NAMES[i].to), old);
    }
    build_close(b, opened);
}

static void describe_rename(DocBuilder *b, const StreamChange *change) {
    Uuid target;
    Elem drop = doc_get_lit(elem_doc(change->o), "dropTarget");
    build_ns(b, "to", change->to_db, change->to_coll);
    if (uuid_from_elem(drop, &target))
        build_uuid(b, "dropTarget", &target);
}

typedef void (*DescribeFn)(DocBuilder *b, const StreamChange *change);

static const DescribeFn DESCRIBE[CHANGE_KIND_COUNT] = {
    [CHANGE_RENAME] = describe_rename,
    [CHANGE_CREATE] = describe_create,
    [CHANGE_CREATE_INDEXES] = describe_create_indexes,
    [CHANGE_DROP_INDEXES] = describe_drop_indexes,
    [CHANGE_MODIFY] = describe_modify,
};

static void build_description(DocBuilder *b, const StreamChange *change) {
    DescribeFn describe = DESCRIBE[change->kind];
    if (describe == NULL)
        return;
    size_t opened = build_open_doc(b, "operationDescription");
    describe(b, change);
    build_close(b, opened);
}

StreamToken event_token(const StreamChange *change, const ChangePlace *place, Arena *arena) {
    StreamToken token = {
        .ts = place->ts,
        .type = TOKEN_EVENT,
        .op_index = place->op_index,
        .fragment = TOKEN_FRAGMENT_NONE,
    };
    token.has_uuid = uuid_from_elem(change->uuid, &token.uuid);
    DocBuilder b = doc_builder_in_arena_sized(arena, 128);
    build_cstr(&b, "operationType", change_kind_name(change->kind));
    if (change_is_of_document(change->kind))
        build_doc(&b, "documentKey", elem_doc(change_document_key(change)));
    else
        build_description(&b, change);
    token.event = doc_builder_end(&b);
    return token;
}

StreamToken event_token_of_invalidate(const StreamToken *token) {
    StreamToken after = *token;
    after.is_from_invalidate = true;
    return after;
}

static void build_head(DocBuilder *b, ChangeKind kind, const ChangePlace *place, Doc token,
                       Elem uuid) {
    build_doc(b, "_id", token);
    build_cstr(b, "operationType", change_kind_name(kind));
    build_timestamp(b, "clusterTime", place->ts);
    if (elem_is_present(uuid))
        build_elem_as(b, STR("collectionUUID"), uuid);
    build_date(b, "wallTime", place->wall_ms);
}

static void build_image(DocBuilder *b, const char *name, Doc image) {
    if (doc_is_present(image))
        build_doc(b, name, image);
    else
        build_null(b, name);
}

ErrCode event_build(const StreamChange *change, const ChangePlace *place, Doc token,
                    const EventOptions *options, const EventImages *images, Arena *arena,
                    Doc *ret_event, Error *err) {
    size_t size = 512 + doc_size(elem_doc(change->o)) + doc_size(token);
    DocBuilder b = doc_builder_in_arena_sized(arena, size);
    build_head(&b, change->kind, place, token, options->is_expanded ? change->uuid : ELEM_MISSING);
    if (elem_is_present(place->lsid) && elem_is_present(place->txn_number)) {
        build_elem_as(&b, STR("lsid"), place->lsid);
        build_elem_as(&b, STR("txnNumber"), place->txn_number);
    }
    if (change->kind == CHANGE_INSERT || change->kind == CHANGE_REPLACE)
        build_doc(&b, "fullDocument", elem_doc(change->o));
    else if (images->has_document)
        build_image(&b, "fullDocument", images->document);
    build_ns(&b, "ns", change->db, change->coll);
    if (change->kind == CHANGE_RENAME)
        build_ns(&b, "to", change->to_db, change->to_coll);
    if (change_is_of_document(change->kind))
        build_doc(&b, "documentKey", elem_doc(change_document_key(change)));
    if (change->kind == CHANGE_UPDATE) {
        Doc delta = update_delta_of_entry(elem_doc(change->o));
        if (options->is_raw_update)
            build_doc(&b, "rawUpdateDescription", elem_doc(change->o));
        else
            TRY(description_build(&b, delta, options->is_expanded, arena, err));
    }
    if (options->is_expanded)
        build_description(&b, change);
    if (images->has_before)
        build_image(&b, "fullDocumentBeforeChange", images->before);
    *ret_event = doc_builder_end(&b);
    return ERR_OK;
}

Doc event_build_invalidate(const ChangePlace *place, Doc token, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(arena, 256 + doc_size(token));
    build_head(&b, CHANGE_INVALIDATE, place, token, ELEM_MISSING);
    return doc_builder_end(&b);
}
