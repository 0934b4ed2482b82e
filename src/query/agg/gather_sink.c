#include "query/agg/gather_sink.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "bson/uuid.h"

enum {
    BATCH_DOCS_MAX = 1000,
    BATCH_BYTES_MAX = 4 * 1024 * 1024,
};

#define TEMPORARY_PREFIX "tmp.agg_out."

typedef struct GatherSink {
    GatherSinkOptions options;
    Arena arena; /* as long as the sink */
    Ns temporary;
    bool is_made;  /* perhaps: it was asked for */
    Uuid uuid;     /* of the temporary collection, once it is made */
    Arena scratch; /* of one batch */
    DocBuilder batch;
    uint32_t batch_count;
} GatherSink;

static ErrCode run(GatherSink *sink, DocBuilder *b, Doc *ret_reply, Error *err) {
    GatherRequest request = {.ns = &sink->temporary, .command = doc_builder_end(b)};
    return sink->options.run(sink->options.arg, &request, &sink->scratch, ret_reply, err);
}

static ErrCode find_uuid(GatherSink *sink, Error *err) {
    DocBuilder b = doc_builder_in_arena(&sink->scratch);
    build_i32(&b, "listCollections", 1);
    size_t filter = build_open_doc(&b, "filter");
    build_str(&b, "name", ns_coll(&sink->temporary));
    build_close(&b, filter);
    Doc reply;
    TRY(run(sink, &b, &reply, err));
    Elem batch = doc_get_path(reply, "cursor.firstBatch");
    Elem uuid =
        elem_type(batch) == BT_ARRAY ? doc_get_path(elem_doc(batch), "0.info.uuid") : ELEM_MISSING;
    if (!uuid_from_elem(uuid, &sink->uuid))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND,
                         "temporary collection \"%s\" was dropped meanwhile", sink->temporary.text);
    return ERR_OK;
}

static ErrCode make_temporary(GatherSink *sink, Error *err) {
    DocBuilder b = doc_builder_in_arena(&sink->scratch);
    build_str(&b, "create", ns_coll(&sink->temporary));
    build_bool(&b, "temp", true);
    sink->is_made = true;
    Doc reply;
    TRY(run(sink, &b, &reply, err));
    return find_uuid(sink, err);
}

static void begin_batch(GatherSink *sink) {
    arena_reset(&sink->scratch);
    sink->batch = doc_builder_in_arena(&sink->scratch);
    sink->batch_count = 0;
}

static ErrCode flush(GatherSink *sink, Error *err) {
    if (sink->batch_count == 0)
        return ERR_OK;
    Doc docs = doc_builder_end(&sink->batch), reply;
    if (!sink->is_made)
        TRY(make_temporary(sink, err));
    DocBuilder b = doc_builder_in_arena(&sink->scratch);
    build_str(&b, "insert", ns_coll(&sink->temporary));
    build_array(&b, "documents", docs);
    build_uuid(&b, "collectionUUID", &sink->uuid);
    ErrCode rc = run(sink, &b, &reply, err);
    begin_batch(sink);
    return rc;
}

/* Within a document of its own: there may be several with one _id. */
static ErrCode gather_add(void *arg, Doc doc, Doc let_values, Error *err) {
    (void)let_values; /* the node that writes evaluates them */
    GatherSink *sink = arg;
    if (sink->batch_count == BATCH_DOCS_MAX ||
        (sink->batch_count > 0 && sink->batch.buf->size + doc_size(doc) > BATCH_BYTES_MAX))
        TRY(flush(sink, err));
    char name[INDEX_NAME_SIZE];
    size_t opened = build_open_doc_str(&sink->batch, index_name(sink->batch_count++, name));
    build_doc(&sink->batch, "d", doc);
    build_close(&sink->batch, opened);
    return ERR_OK;
}

static ErrCode gather_finish(void *arg, Error *err) {
    GatherSink *sink = arg;
    TRY(flush(sink, err));
    DocBuilder b = doc_builder_in_arena(&sink->scratch);
    build_str(&b, "aggregate", ns_coll(&sink->temporary));
    size_t stages = build_open_array(&b, "pipeline");
    size_t stage = build_open_doc(&b, "0");
    build_cstr(&b, "$replaceWith", "$d");
    build_close(&b, stage);
    stage = build_open_doc(&b, "1");
    build_elem(&b, sink->options.written);
    build_close(&b, stage);
    build_close(&b, stages);
    size_t cursor = build_open_doc(&b, "cursor");
    build_close(&b, cursor);
    if (sink->is_made)
        build_uuid(&b, "collectionUUID", &sink->uuid);
    build_all(&b, sink->options.fields);
    Doc reply;
    return run(sink, &b, &reply, err);
}

static void gather_free(void *arg) {
    GatherSink *sink = arg;
    if (sink->is_made) {
        arena_reset(&sink->scratch);
        DocBuilder b = doc_builder_in_arena(&sink->scratch);
        build_str(&b, "drop", ns_coll(&sink->temporary));
        GatherRequest request = {&sink->temporary, doc_builder_end(&b), .is_clean_up = true};
        CLEANUP(error_reset) Error ignored = {0};
        Doc reply;
        (void)!sink->options.run(sink->options.arg, &request, &sink->scratch, &reply, &ignored);
    }
    if (sink->options.free != NULL)
        sink->options.free(sink->options.arg);
    arena_done(&sink->arena);
    arena_done(&sink->scratch);
    xfree(sink);
}

static ErrCode name_temporary(GatherSink *sink, Error *err) {
    Uuid uuid = uuid_new();
    char text[UUID_TEXT_SIZE], name[sizeof(TEMPORARY_PREFIX) + UUID_TEXT_SIZE];
    uuid_to_text(&uuid, text);
    int size = snprintf(name, sizeof(name), TEMPORARY_PREFIX "%s", text);
    return ns_make(ns_db(&sink->options.ns), (Str){name, (size_t)size}, &sink->temporary, err);
}

ErrCode gather_sink_open(const GatherSinkOptions *options, AggSink *ret_sink, Error *err) {
    GatherSink *sink = NEW(GatherSink);
    sink->options = *options;
    arena_init(&sink->arena, 0);
    arena_init(&sink->scratch, 0);
    sink->options.fields = doc_copy(options->fields, &sink->arena);
    begin_batch(sink);
    ErrCode rc = ns_check_creatable(&options->ns, err);
    if (rc == ERR_OK)
        rc = name_temporary(sink, err);
    if (rc != ERR_OK)
        gather_free(sink);
    else
        *ret_sink = (AggSink){sink, gather_add, gather_finish, gather_free};
    return rc;
}
