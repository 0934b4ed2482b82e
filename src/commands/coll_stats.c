#include "commands/coll_stats.h"

#include <string.h>

#include "base/alloc.h"

#include "commands/support.h"
#include "sharding/range_deletion/range_tasks.h"
#include "storage/engine.h"

/* As MongoDB numbers its formats of tables. */
enum {
    FORMAT_OF_RECORDS = 1,
    FORMAT_OF_KEYS = 8,
};

/* Documents that a shard has and does not own. */
static ErrCode count_orphans(OpCtx *op, const Collection *coll, int64_t *ret_orphans, Error *err) {
    *ret_orphans = 0;
    if (coll == NULL || op->service->role != ROLE_SHARD)
        return ERR_OK;
    return range_tasks_count_orphans(op, &coll->uuid, ret_orphans, err);
}

/* WiredTiger's statistics of a table come one after the other, those of a section together. */
typedef struct StatSections {
    DocBuilder *b;
    char section[64]; /* the open one; empty: none */
    size_t opened;
} StatSections;

static void add_stat(void *arg, const char *name, int64_t value) {
    StatSections *s = arg;
    size_t size = strcspn(name, ":");
    if (name[size] == '\0' || size >= sizeof(s->section))
        return;
    if (strncmp(s->section, name, size) != 0 || s->section[size] != '\0') {
        if (s->section[0] != '\0')
            build_close(s->b, s->opened);
        memcpy(s->section, name, size);
        s->section[size] = '\0';
        s->opened = build_open_doc(s->b, s->section);
    }
    const char *what = name + size + 1;
    build_count(s->b, what + strspn(what, " "), value);
}

static void build_table_stats(DocBuilder *b, OpCtx *op, const char *ident, int32_t format_version,
                              const CollStatsForm *form) {
    StorageEngine *engine = op->service->storage;
    if (!form->is_numeric_only) {
        size_t metadata = build_open_doc(b, "metadata");
        build_i32(b, "formatVersion", format_version);
        build_close(b, metadata);
        CLEANUP(xfree_ptr) char *creation = storage_table_creation(engine, ident);
        build_cstr(b, "creationString", creation != NULL ? creation : "");
        build_cstr(b, "type", "file");
        build_cstr(b, "uri", arena_printf(&op->arena, "statistics:table:%s", ident));
    }
    StatSections sections = {.b = b};
    storage_table_stats(engine, ident, add_stat, &sections);
    if (sections.section[0] != '\0')
        build_close(b, sections.opened);
}

ErrCode build_collection_stats(DocBuilder *b, OpCtx *op, const Collection *coll,
                               const CollStatsForm *form, Error *err) {
    int64_t scale = form->scale;
    CollectionSizes sizes = {0};
    int64_t orphans;
    TRY(count_orphans(op, coll, &orphans, err));
    if (coll != NULL)
        sizes = collection_sizes(op->service, coll);
    build_scaled(b, "size", sizes.data_bytes, scale);
    build_count(b, "count", sizes.count);
    if (sizes.count > 0)
        build_count(b, "avgObjSize", sizes.data_bytes / sizes.count);
    build_count(b, "numOrphanDocs", orphans);
    build_scaled(b, "storageSize", sizes.storage_bytes, scale);
    build_scaled(b, "freeStorageSize", sizes.reusable_bytes, scale);
    bool is_capped = coll != NULL && coll->options.is_capped;
    build_bool(b, "capped", is_capped);
    if (is_capped) {
        build_count(b, "max", coll->options.capped_max > 0 ? coll->options.capped_max : INT32_MAX);
        build_scaled(b, "maxSize", coll->options.capped_size, scale);
    }
    if (coll != NULL && coll->options.is_clustered)
        build_bool(b, "clustered", true);
    if (coll != NULL) {
        size_t engine = build_open_doc(b, "wiredTiger");
        build_table_stats(b, op, record_store_ident(coll->records), FORMAT_OF_RECORDS, form);
        build_close(b, engine);
    }
    build_i32(b, "nindexes", coll != NULL ? (int32_t)coll->index_count : 0);
    size_t details = build_open_doc(b, "indexDetails");
    for (uint32_t i = 0; coll != NULL && i < coll->index_count; i++) {
        size_t row = build_open_doc(b, coll->indexes[i]->name);
        build_table_stats(b, op, coll->indexes[i]->ident, FORMAT_OF_KEYS, form);
        build_close(b, row);
    }
    build_close(b, details);
    size_t builds = build_open_array(b, "indexBuilds");
    uint32_t build_count_now = 0;
    for (uint32_t i = 0; coll != NULL && i < coll->index_count; i++) {
        char name[INDEX_NAME_SIZE];
        if (!coll->indexes[i]->is_ready)
            build_cstr(b, index_name(build_count_now++, name).data, coll->indexes[i]->name);
    }
    build_close(b, builds);
    build_scaled(b, "totalIndexSize", sizes.index_bytes, scale);
    build_scaled(b, "totalSize", sizes.index_bytes + sizes.storage_bytes, scale);
    size_t index_sizes = build_open_doc(b, "indexSizes");
    for (uint32_t i = 0; coll != NULL && i < coll->index_count; i++)
        build_scaled(b, coll->indexes[i]->name,
                     storage_table_bytes(op->service->storage, coll->indexes[i]->ident), scale);
    build_close(b, index_sizes);
    build_count(b, "scaleFactor", scale);
    return ERR_OK;
}
