/*
 * view_graph.c - what views refer to: no cycles, not too deep.
 *
 * A view refers to what it is on, and to the collections that the stages of its pipeline read. A
 * change is judged with all views of the database in hand, because it may lengthen the way of those
 * that refer to the changed one.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "ddl/ddl_internal.h"
#include "ddl/views.h"

typedef struct ViewNode {
    Str name; /* without the database */
    Str view_on;
    Doc pipeline;
    uint32_t height; /* views on the longest way down, itself included; 0: not known yet */
    bool is_on_way;
    bool reaches_changed;
} ViewNode;

typedef struct ViewGraph {
    ViewNode *nodes; /* by name */
    size_t count;
    size_t capacity;
    const ViewNode *changed;
    bool is_cycle_found;
    OpCtx *op;
} ViewGraph;

/* Called for each collection that a pipeline reads besides its own. */
typedef void (*ReferenceFn)(void *arg, Str coll);

static void height_of(ViewGraph *graph, ViewNode *node, uint32_t depth);

static void each_reference(Doc stages, ReferenceFn visit, void *arg, int depth) {
    if (depth > VIEW_DEPTH_MAX) /* such a pipeline cannot run */
        return;
    DocIter iter = doc_iter(stages);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOC)
            continue;
        DocIter stage_iter = doc_iter(elem_doc(elem));
        Elem stage;
        if (!doc_iter_next(&stage_iter, &stage))
            continue;
        bool is_union = elem_name_is(stage, STR("$unionWith"));
        if (is_union && elem_type(stage) == BT_STRING)
            visit(arg, elem_str(stage));
        if (elem_type(stage) != BT_DOC)
            continue;
        Doc spec = elem_doc(stage);
        if (elem_name_is(stage, STR("$facet"))) {
            DocIter facets = doc_iter(spec);
            for (Elem facet; doc_iter_next(&facets, &facet);)
                if (elem_type(facet) == BT_ARRAY)
                    each_reference(elem_doc(facet), visit, arg, depth + 1);
        } else if (is_union || elem_name_is(stage, STR("$lookup")) ||
                   elem_name_is(stage, STR("$graphLookup"))) {
            Elem from = is_union ? doc_get_lit(spec, "coll") : doc_get_lit(spec, "from");
            Elem pipeline = doc_get_lit(spec, "pipeline");
            if (elem_type(from) == BT_STRING)
                visit(arg, elem_str(from));
            if (elem_type(pipeline) == BT_ARRAY)
                each_reference(elem_doc(pipeline), visit, arg, depth + 1);
        }
    }
}

static int compare_names(const void *a, const void *b) {
    const Str x = ((const ViewNode *)a)->name;
    const Str y = ((const ViewNode *)b)->name;
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order != 0 ? order : (x.size > y.size) - (x.size < y.size);
}

static ViewNode *find_node(const ViewGraph *graph, Str name) {
    ViewNode wanted = {.name = name};
    return bsearch(&wanted, graph->nodes, graph->count, sizeof(*graph->nodes), compare_names);
}

typedef struct Visit {
    ViewGraph *graph;
    ViewNode *from;
    uint32_t depth;
} Visit;

static void visit_reference(void *arg, Str coll) {
    Visit *visit = arg;
    ViewNode *to = find_node(visit->graph, coll);
    if (to == NULL)
        return;
    ViewNode *from = visit->from;
    if (to->is_on_way) { /* a cycle; those without the changed view were there before */
        visit->graph->is_cycle_found |= to == visit->graph->changed;
        from->height = VIEW_DEPTH_MAX + 1;
        return;
    }
    height_of(visit->graph, to, visit->depth + 1);
    if (from->height < to->height + 1)
        from->height = to->height + 1;
    from->reaches_changed |= to->reaches_changed;
}

/* Views that are there already may be deeper than is allowed now: heights end one above the limit,
 * and so does the way. */
static void height_of(ViewGraph *graph, ViewNode *node, uint32_t depth) {
    if (node->height > 0)
        return;
    node->height = 1;
    if (depth > VIEW_DEPTH_MAX) {
        node->height = VIEW_DEPTH_MAX + 1;
        return;
    }
    node->is_on_way = true;
    Visit visit = {graph, node, depth};
    visit_reference(&visit, node->view_on);
    each_reference(node->pipeline, visit_reference, &visit, 0);
    node->is_on_way = false;
    if (node->height > VIEW_DEPTH_MAX + 1)
        node->height = VIEW_DEPTH_MAX + 1;
}

static bool add_any_view(void *arg, const View *view) {
    ViewGraph *graph = arg;
    ARRAY_RESERVE(graph->nodes, graph->count, graph->capacity);
    graph->nodes[graph->count++] = (ViewNode){
        .name = ns_coll(&view->ns), .view_on = ns_coll(&view->view_on), .pipeline = view->pipeline};
    return true;
}

static bool add_view(void *arg, const View *view) {
    const ViewGraph *graph = arg;
    bool is_changed = str_equal(ns_coll(&view->ns), graph->nodes[0].name);
    return is_changed ||
           add_any_view(arg, view); /* of the changed one, what it was before is out */
}

static ErrCode refuse_depth(Error *err) {
    return error_set(err, ERR_VIEW_DEPTH_LIMIT_EXCEEDED,
                     "View depth limit exceeded; maximum depth is %d", VIEW_DEPTH_MAX);
}

static ErrCode judge(ViewGraph *graph, const Ns *ns, ViewNode *changed, Error *err) {
    graph->changed = changed;
    changed->reaches_changed = true;
    height_of(graph, changed, 1);
    if (graph->is_cycle_found)
        return error_set(err, ERR_GRAPH_CONTAINS_CYCLE, "View cycle detected: \"%s\"", ns->text);
    bool is_too_deep = changed->height > VIEW_DEPTH_MAX;
    for (size_t i = 0; i < graph->count && !is_too_deep; i++) {
        TRY(op_check_interrupt(graph->op, err));
        height_of(graph, &graph->nodes[i], 1);
        is_too_deep = graph->nodes[i].reaches_changed && graph->nodes[i].height > VIEW_DEPTH_MAX;
    }
    return is_too_deep ? refuse_depth(err) : ERR_OK;
}

ErrCode view_graph_check(OpCtx *op, const Catalog *catalog, const Ns *ns, Str view_on, Doc pipeline,
                         Error *err) {
    ViewGraph graph = {.op = op};
    ARRAY_RESERVE(graph.nodes, graph.count, graph.capacity);
    graph.nodes[graph.count++] =
        (ViewNode){.name = ns_coll(ns), .view_on = view_on, .pipeline = pipeline};
    catalog_for_each_view_in_db(catalog, ns_db(ns), add_view, &graph);
    qsort(graph.nodes, graph.count, sizeof(*graph.nodes), compare_names);
    ErrCode rc = judge(&graph, ns, find_node(&graph, ns_coll(ns)), err);
    xfree(graph.nodes);
    return rc;
}

typedef struct Search {
    const Catalog *catalog;
    Str db;
    bool is_found;
} Search;

static void look_for_view(void *arg, Str coll) {
    Search *search = arg;
    Ns ns;
    CLEANUP(error_reset) Error ignored = {0};
    if (ns_make(search->db, coll, &ns, &ignored) == ERR_OK)
        search->is_found |= catalog_find_view(search->catalog, &ns) != NULL;
}

ErrCode view_graph_check_pipeline(OpCtx *op, const Catalog *catalog, Str db, Doc pipeline,
                                  Error *err) {
    Search search = {.catalog = catalog, .db = db};
    each_reference(pipeline, look_for_view, &search, 0);
    if (LIKELY(!search.is_found))
        return ERR_OK;
    ViewGraph graph = {.op = op};
    catalog_for_each_view_in_db(catalog, db, add_any_view, &graph);
    qsort(graph.nodes, graph.count, sizeof(*graph.nodes), compare_names);
    ViewNode run = {.height = 1};
    Visit visit = {&graph, &run, 1};
    each_reference(pipeline, visit_reference, &visit, 0);
    xfree(graph.nodes);
    return run.height > VIEW_DEPTH_MAX ? refuse_depth(err) : ERR_OK;
}
