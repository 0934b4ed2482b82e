/* ttl_tasks.c - what documents expire by, and when: the part that does nothing by itself. */
#include <string.h>

#include "base/alloc.h"
#include "bson/builder.h"
#include "ttl/ttl_internal.h"

typedef struct Collect {
    Catalog *catalog;
    Arena *arena;
    TtlRow *row;
    int64_t invalid;
} Collect;

static void add_task(Collect *collect, const TtlTask *task) {
    TtlRow *row = collect->row;
    if (row->count == row->capacity) {
        TtlTask *old = row->tasks;
        row->capacity = row->capacity == 0 ? 16 : row->capacity * 2;
        row->tasks = ARENA_ARRAY(collect->arena, TtlTask, row->capacity);
        if (row->count > 0)
            memcpy(row->tasks, old, row->count * sizeof(*old));
    }
    row->tasks[row->count++] = *task;
}

static bool visit_collection(void *arg, const Collection *coll) {
    Collect *collect = arg;
    TtlTask task = {.ns = coll->ns, .uuid = coll->uuid};
    if (coll->options.is_clustered && coll->options.expire_after_s >= 0) {
        task.path = "_id";
        task.expire_after_s = coll->options.expire_after_s;
        add_task(collect, &task);
    }
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (index->expire_after_s < 0 || !index->is_ready)
            continue;
        if (index->field_count != 1 || index->kind != INDEX_KIND_ORDERED || index->store == NULL ||
            index->is_id || coll->options.is_capped) {
            collect->invalid++;
            continue;
        }
        task.ident = arena_strdup(collect->arena, index->ident);
        task.path = arena_strdup(collect->arena, index->fields[0].path);
        task.expire_after_s = index->expire_after_s;
        task.partial_filter = index->partial_filter != NULL
                                  ? doc_copy(index->partial_filter_doc, collect->arena)
                                  : DOC_NONE;
        add_task(collect, &task);
    }
    return true;
}

static bool visit_db(void *arg, Str db) {
    Collect *collect = arg;
    catalog_for_each_in_db(collect->catalog, db, visit_collection, collect);
    return true;
}

void ttl_collect(Catalog *catalog, Arena *arena, TtlRow *ret_row, int64_t *ret_invalid) {
    *ret_row = (TtlRow){0};
    Collect collect = {.catalog = catalog, .arena = arena, .row = ret_row};
    catalog_for_each_db(catalog, visit_db, &collect);
    *ret_invalid = collect.invalid;
}

Doc ttl_filter(const TtlTask *task, int64_t now_ms, Arena *arena, Elem *ret_low, Elem *ret_high) {
    DocBuilder b = doc_builder_in_arena(arena);
    size_t both = build_open_array(&b, "$and");
    size_t first = build_open_doc(&b, "0");
    size_t range = build_open_doc(&b, task->path);
    build_date(&b, "$gte", INT64_MIN);
    build_date(&b, "$lte", now_ms - task->expire_after_s * 1000);
    build_close(&b, range);
    build_close(&b, first);
    if (doc_is_present(task->partial_filter))
        build_doc(&b, "1", task->partial_filter);
    build_close(&b, both);
    Doc filter = doc_builder_end(&b);
    Doc dates = elem_doc(doc_get(elem_doc(doc_get_lit(elem_doc(doc_get_lit(filter, "$and")), "0")),
                                 str_from(task->path)));
    *ret_low = doc_get_lit(dates, "$gte");
    *ret_high = doc_get_lit(dates, "$lte");
    return filter;
}

int64_t ttl_behind_count(const TtlBehind *behind, const Uuid *uuid) {
    for (uint32_t i = 0; i < behind->count; i++)
        if (uuid_equal(&behind->rows[i].uuid, uuid))
            return behind->rows[i].sub_passes;
    return 0;
}

void ttl_behind_update(TtlBehind *behind, const TtlRow *row) {
    TtlBehind now = {0};
    if (row->count > 0)
        now.rows = xcalloc(row->count, sizeof(*now.rows));
    for (uint32_t i = 0; i < row->count; i++) {
        const Uuid *uuid = &row->tasks[i].uuid;
        if (ttl_behind_count(&now, uuid) == 0) {
            now.rows[now.count].uuid = *uuid;
            now.rows[now.count++].sub_passes = ttl_behind_count(behind, uuid) + 1;
        }
    }
    xfree(behind->rows);
    *behind = now;
}

void ttl_row_turn(TtlRow *row, bool has_more) {
    if (has_more) {
        row->next++;
    } else {
        memmove(&row->tasks[row->next], &row->tasks[row->next + 1],
                (row->count - row->next - 1) * sizeof(*row->tasks));
        row->count--;
    }
    if (row->next >= row->count)
        row->next = 0;
}
