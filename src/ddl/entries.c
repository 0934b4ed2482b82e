/*
 * entries.c - changes of the catalog as the oplog tells them: what another node has to do to have
 * the same catalog.
 */
#include "bson/builder.h"
#include "bson/validate.h"
#include "catalog/write_observer.h"
#include "ddl/ddl_internal.h"
#include "index/spec.h"

enum {
    /* Of the text in an abort's entry: with the specifications, which fit into the catalog's entry
     * of 16 MB, it must fit into an entry of the oplog, since nobody could refuse an abort. */
    CAUSE_BYTES_MAX = 4096,
    /* Of the list of a dropDatabase: about a hundred thousand collections. */
    DROPPED_BYTES_MAX = 8 * 1024 * 1024,
};

ErrCode ddl_observe(OpCtx *op, const Ns *ns, const Uuid *uuid, Doc o, Doc o2, Error *err) {
    WriteObservers *observers = catalog_write_observers(op_catalog(op));
    const DdlEntry entry = {ns, uuid, o, o2};
    for (size_t i = 0; i < observers->count; i++) {
        write_observer_heard(observers, op, i);
        TRY(observers->rows[i].on_ddl(observers->rows[i].arg, op, &entry, err));
    }
    return ERR_OK;
}

Doc ddl_entry_create(OpCtx *op, const Collection *coll) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "create", ns_coll(&coll->ns));
    build_all(&b, coll->options.doc);
    const IndexDesc *id_index = collection_id_index(coll);
    if (id_index != NULL)
        build_doc(&b, "idIndex", id_index->spec);
    return doc_builder_end(&b);
}

Doc ddl_entry_drop(OpCtx *op, const Ns *ns) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "drop", ns_coll(ns));
    return doc_builder_end(&b);
}

Doc ddl_entry_num_records(OpCtx *op, const Collection *coll) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_count(&b, "numRecords", record_store_count(coll->records));
    return doc_builder_end(&b);
}

Doc ddl_entry_drop_database(OpCtx *op) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "dropDatabase", 1);
    return doc_builder_end(&b);
}

Doc ddl_entry_dropped(OpCtx *op, Doc dropped) {
    if (doc_size(dropped) > DROPPED_BYTES_MAX)
        return DOC_NONE;
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, doc_size(dropped) + 64);
    build_doc(&b, "collections", dropped);
    return doc_builder_end(&b);
}

Doc ddl_entry_rename(OpCtx *op, const RenameArgs *args, const Uuid *dropped) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "renameCollection", ns_str(args->from));
    build_str(&b, "to", ns_str(args->to));
    build_bool(&b, "stayTemp", args->stays_temp);
    if (dropped != NULL)
        build_uuid(&b, "dropTarget", dropped);
    return doc_builder_end(&b);
}

Doc ddl_entry_create_index(OpCtx *op, const Collection *coll, const IndexDesc *index) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "createIndexes", ns_coll(&coll->ns));
    build_all(&b, index->spec);
    return doc_builder_end(&b);
}

Doc ddl_entry_index_build(OpCtx *op, const char *command, const Collection *coll, const Uuid *build,
                          const Error *cause) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, command, ns_coll(&coll->ns));
    build_uuid(&b, "indexBuildUUID", build);
    size_t rows = build_open_array(&b, "indexes");
    uint32_t count = 0;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        if (!ddl_is_of_build(coll->indexes[i], build))
            continue;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc(&b, index_name(count++, name).data);
        build_all(&b, coll->indexes[i]->spec);
        build_close(&b, row);
    }
    build_close(&b, rows);
    if (cause != NULL) {
        char code_name[32];
        size_t opened = build_open_doc(&b, "cause");
        build_f64(&b, "ok", 0);
        build_str(&b, "errmsg", utf8_cut(error_message(cause), CAUSE_BYTES_MAX));
        build_i32(&b, "code", cause->code);
        build_cstr(&b, "codeName", error_code_name(cause->code, code_name));
        build_close(&b, opened);
    }
    return doc_builder_end(&b);
}

Doc ddl_entry_drop_index(OpCtx *op, const Ns *ns, const IndexDesc *index) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "dropIndexes", ns_coll(ns));
    build_cstr(&b, "index", index->name);
    return doc_builder_end(&b);
}

Doc ddl_entry_coll_mod(OpCtx *op, const Ns *ns, const CollModChange *change) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "collMod", ns_coll(ns));
    const struct {
        const char *name;
        Elem value;
    } fields[] = {
        {"validator", change->validator},
        {"validationLevel", change->validation_level},
        {"validationAction", change->validation_action},
        {"cappedSize", change->capped_size},
        {"cappedMax", change->capped_max},
        {"expireAfterSeconds", change->expire_after},
        {"changeStreamPreAndPostImages", change->pre_images},
    };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (elem_is_present(fields[i].value))
            build_elem_as(&b, str_from(fields[i].name), fields[i].value);
    if (doc_is_present(change->index))
        build_doc(&b, "index", change->index);
    return doc_builder_end(&b);
}

Doc ddl_entry_coll_mod_before(OpCtx *op, const Collection *coll, const IndexDesc *index) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "collectionOptions_old", coll->options.doc);
    if (index != NULL)
        build_doc(&b, "indexOptions_old", index->spec);
    return doc_builder_end(&b);
}
