/*
 * stream_source.c - changes become events, events go through the pipeline, results to the client.
 *
 *     oplog -> change_reader -> resume point -> images -> event -> $match -> stages -> fragments
 *
 * Two places are kept: `last`, the token of the result given last, and that of the reader, up to
 * which nothing is left to give. The resume token of a batch is the later one.
 */
#include "change_stream/stream_source.h"

#include "base/alloc.h"
#include "bson/json.h"
#include "change_stream/change_reader.h"
#include "change_stream/hub.h"
#include "change_stream/images.h"
#include "change_stream/split_event.h"
#include "repl/repl.h"
#include "storage/engine.h"

enum {
    LOCATION_ONLY_ON_MEMBERS = 40573,
    LOCATION_SPLIT_NOT_LAST = 7182802,
    LOCATION_SPLIT_SPEC = 7182800,
};

typedef struct StreamSource {
    CursorSource base;
    Arena arena; /* pipeline and options */
    StreamSpec spec;
    StreamHub *hub;
    StreamWaiter waiter;
    OpCtx *op; /* of the present request */
    StreamFilter filter;
    ChangeReader reader;
    uint64_t start_ts; /* the token of an empty stream */

    /* Until the event of the token was found again. */
    bool is_resuming;
    Doc resume_token; /* without its fragment */

    Arena scratch; /* of the event at hand */
    Doc event_token;
    bool is_invalidate_due;
    ChangePlace invalidate_place;
    uint8_t *invalidate_token; /* heap */
    bool is_over;
    char *away; /* heap: why nothing more can be told; NULL: it can */

    const MatchExpr *match; /* the leading $match; NULL: none */
    Pipeline *pipeline;
    PipelineExec *exec;
    bool is_split_wanted;
    SplitEvent split;

    uint8_t *stashed;  /* given back by the consumer, or NULL */
    uint8_t *last;     /* token of the result given last; NULL: none */
    uint8_t *previous; /* of the one before */
    int64_t returned;
    int64_t returned_before; /* as of the beginning of this batch */
} StreamSource;

static void set_token(uint8_t **at, Doc token) {
    xfree(*at);
    *at = doc_copy_heap(token);
}

/* ---- events ---- */

static ErrCode not_found(const StreamSource *source, Error *err) {
    Str text = token_text(source->resume_token);
    return error_set(
        err, ERR_CHANGE_STREAM_FATAL_ERROR,
        "the event of the resume token was not found: it is of another stream, or of a "
        "pipeline that shows other events. {_data: \"%.*s\"}",
        (int)text.size, text.data);
}

/* Whether the event is at or before the place to resume after. Events before it are passed over,
 * and the one of the token itself has to be among them. */
static ErrCode pass_resume_point(StreamSource *source, Doc token, bool *ret_is_passed, Error *err) {
    *ret_is_passed = false;
    if (!source->is_resuming)
        return ERR_OK;
    int order = token_compare(token, source->resume_token);
    if (order > 0)
        return not_found(source, err);
    *ret_is_passed = true;
    if (order < 0)
        return ERR_OK;
    source->is_resuming = false;
    /* From here on the $match decides what is read. */
    source->reader.filter.match = source->match;
    if (source->spec.token.fragment == TOKEN_FRAGMENT_NONE)
        return ERR_OK;
    split_event_resume(&source->split, source->spec.token.fragment);
    *ret_is_passed = false;
    return ERR_OK;
}

/* The event of a drop, rename or dropDatabase was shown: the stream ends behind it. */
static void note_end(StreamSource *source, const StreamToken *token, const ChangePlace *place) {
    StreamToken after = event_token_of_invalidate(token);
    set_token(&source->invalidate_token, token_encode(&after, &source->scratch));
    source->invalidate_place = *place;
    source->is_invalidate_due = true;
}

static ErrCode next_invalidate(StreamSource *source, bool *ret_is_shown, Doc *ret_event,
                               Error *err) {
    Doc token = {source->invalidate_token};
    source->is_invalidate_due = false;
    bool is_passed;
    TRY(pass_resume_point(source, token, &is_passed, err));
    *ret_is_shown = !is_passed;
    if (is_passed) /* startAfter: the stream begins anew behind it */
        return ERR_OK;
    source->is_over = true;
    source->event_token = token;
    *ret_event = event_build_invalidate(&source->invalidate_place, token, &source->scratch);
    return ERR_OK;
}

/* Shards are told of what concerns other shards by marks in their oplogs. What was found before is
 * given first: after the failure the stream is gone. */
static void note_away(StreamSource *source, const StreamChange *change) {
    Str db = change->db, coll = change->coll;
    source->away =
        coll.size > 0
            ? xasprintf("the collection %.*s.%.*s has been sharded: change streams over sharded "
                        "collections are not available in this version",
                        (int)db.size, db.data, (int)coll.size, coll.data)
            : xasprintf("the database %.*s has been dropped, or has moved to another shard: a "
                        "change stream has to be opened anew, without a resume token of before",
                        (int)db.size, db.data);
}

static ErrCode end_away(const StreamSource *source, Error *err) {
    if (source->returned > source->returned_before)
        return ERR_OK;
    return error_set(err, ERR_CHANGE_STREAM_FATAL_ERROR, "%s", source->away);
}

/* The $match once more, now that the token is known: before documents are looked up, which costs
 * and can fail. */
static bool is_worth_building(StreamSource *source, const StreamChange *change,
                              const ChangePlace *place) {
    if (source->match == NULL)
        return true;
    DocBuilder b = doc_builder_in_arena_sized(&source->scratch, doc_size(source->event_token) + 64);
    build_doc(&b, "_id", source->event_token);
    build_timestamp(&b, "clusterTime", place->ts);
    build_date(&b, "wallTime", place->wall_ms);
    return filter_may_match(&source->filter, change, doc_builder_end(&b));
}

static ErrCode next_change(StreamSource *source, bool *ret_found, bool *ret_is_shown,
                           Doc *ret_event, Error *err) {
    StreamChange change;
    ChangePlace place;
    *ret_is_shown = false;
    TRY(change_reader_next(&source->reader, source->op, ret_found, &change, &place, err));
    if (!*ret_found) {
        /* Past the time of the token without having met its event. */
        if (source->is_resuming && source->reader.done_ts >= source->spec.token.ts)
            return not_found(source, err);
        return ERR_OK;
    }
    if (UNLIKELY(change.kind == CHANGE_AWAY)) {
        note_away(source, &change);
        return ERR_OK;
    }
    StreamToken token = event_token(&change, &place, &source->scratch);
    source->event_token = token_encode(&token, &source->scratch);
    bool is_passed;
    TRY(pass_resume_point(source, source->event_token, &is_passed, err));
    if (filter_is_ended_by(&source->filter, &change))
        note_end(source, &token, &place);
    if (is_passed || !is_worth_building(source, &change, &place))
        return ERR_OK;
    EventImages images;
    TRY(images_find(source->op, &source->spec, &change, source->reader.row_ts,
                    source->reader.row_index, &source->scratch, &images, err));
    EventOptions options = {.is_expanded = source->spec.shows_expanded,
                            .is_raw_update = source->spec.shows_raw_update};
    TRY(event_build(&change, &place, source->event_token, &options, &images, &source->scratch,
                    ret_event, err));
    *ret_is_shown = true;
    return ERR_OK;
}

static ErrCode judge_event(const StreamSource *source, Doc event, bool *ret_is_match, Error *err) {
    *ret_is_match = true;
    if (source->match == NULL)
        return ERR_OK;
    MatchDetails details = {.array_index = -1, .rc = ERR_OK, .err = err};
    *ret_is_match = match_doc(source->match, event, &details);
    return details.rc;
}

/* What the stages pull from. */
static ErrCode pull_event(void *arg, bool *ret_found, Doc *ret_event, Error *err) {
    StreamSource *source = arg;
    for (;;) {
        arena_reset(&source->scratch);
        *ret_found = false;
        bool is_shown = false;
        bool is_end = source->is_invalidate_due;
        if (is_end) {
            TRY(next_invalidate(source, &is_shown, ret_event, err));
        } else {
            if (source->is_over)
                return ERR_OK;
            if (UNLIKELY(source->away != NULL))
                return end_away(source, err);
            bool is_read;
            TRY(next_change(source, &is_read, &is_shown, ret_event, err));
            if (!is_read)
                return ERR_OK;
        }
        if (!is_shown)
            continue;
        TRY(judge_event(source, *ret_event, ret_found, err));
        if (*ret_found)
            return ERR_OK;
        /* An end that the $match hides is an end all the same, and where to start after. */
        if (is_end)
            set_token(&source->last, source->event_token);
    }
}

/* ---- results ---- */

static ErrCode check_id(const StreamSource *source, Doc result, Error *err) {
    Elem id = doc_get_lit(result, "_id");
    if (elem_type(id) == BT_DOC && doc_equal_bytes(elem_doc(id), source->event_token))
        return ERR_OK;
    Str text = token_text(source->event_token);
    return error_set(err, ERR_CHANGE_STREAM_FATAL_ERROR,
                     "the pipeline has changed or removed the _id of an event, which is its resume "
                     "token: keep it, "
                     "or the stream could not be resumed there. Expected: {_data: \"%.*s\"}",
                     (int)text.size, text.data);
}

static ErrCode next_result(StreamSource *source, bool *ret_found, Doc *ret_doc, Error *err) {
    for (;;) {
        if (split_event_next(&source->split, &source->scratch, ret_doc)) {
            *ret_found = true;
            return ERR_OK;
        }
        TRY(pipeline_exec_next(source->exec, ret_found, ret_doc, err));
        if (!*ret_found)
            return ERR_OK;
        TRY(check_id(source, *ret_doc, err));
        if (!source->is_split_wanted)
            return ERR_OK;
        bool is_split;
        TRY(split_event_begin(&source->split, *ret_doc, source->event_token, &is_split, err));
        if (!is_split)
            return ERR_OK;
    }
}

static ErrCode stream_next(CursorSource *base, bool *ret_found, Doc *ret_doc, Error *err) {
    StreamSource *source = (StreamSource *)base;
    if (source->stashed != NULL) {
        *ret_doc = doc_copy((Doc){source->stashed}, &source->op->arena);
        *ret_found = true;
        xfree(TAKE_PTR(source->stashed));
    } else {
        TRY(next_result(source, ret_found, ret_doc, err));
    }
    if (!*ret_found)
        return ERR_OK;
    xfree(source->previous);
    source->previous = source->last;
    source->last = doc_copy_heap(elem_doc(doc_get_lit(*ret_doc, "_id")));
    source->returned++;
    return ERR_OK;
}

static void stream_give_back(CursorSource *base, Doc doc) {
    StreamSource *source = (StreamSource *)base;
    source->stashed = doc_copy_heap(doc);
    xfree(source->last);
    source->last = TAKE_PTR(source->previous);
    source->returned--;
}

static void stream_build_token(const CursorSource *base, DocBuilder *b) {
    const StreamSource *source = (const StreamSource *)base;
    uint64_t ts = source->start_ts;
    if (source->reader.done_ts > ts)
        ts = source->reader.done_ts;
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    StreamToken mark = token_high_water_mark(ts);
    Doc token = token_encode(&mark, &arena);
    if (source->last != NULL && (source->is_over || token_compare((Doc){source->last}, token) > 0))
        token = (Doc){source->last};
    build_doc(b, "postBatchResumeToken", token);
}

/* ---- between batches ---- */

static void stream_detach(CursorSource *base) {
    StreamSource *source = (StreamSource *)base;
    source->op = NULL;
}

static ErrCode stream_attach(CursorSource *base, OpCtx *op, Error *err) {
    (void)err;
    StreamSource *source = (StreamSource *)base;
    source->op = op;
    source->returned_before = source->returned;
    return ERR_OK;
}

static bool stream_try_wait(CursorSource *base, uint64_t ticket) {
    StreamSource *source = (StreamSource *)base;
    source->waiter.filter = &source->reader.filter;
    source->waiter.scanned_ts = source->reader.scanned_ts;
    source->waiter.ticket = ticket;
    return stream_hub_enter(source->hub, &source->waiter);
}

static void stream_end_wait(CursorSource *base) {
    StreamSource *source = (StreamSource *)base;
    uint64_t ts;
    (void)stream_hub_leave(source->hub, &source->waiter, &ts);
    change_reader_skip_to(&source->reader, ts);
}

static bool stream_is_over(const CursorSource *base) {
    const StreamSource *source = (const StreamSource *)base;
    return source->is_over && source->stashed == NULL;
}

static void stream_free(CursorSource *base) {
    StreamSource *source = (StreamSource *)base;
    uint64_t ts;
    /* Killed while its request is parked: the request is to find out now. */
    if (stream_hub_leave(source->hub, &source->waiter, &ts))
        stream_hub_wake(source->hub, &source->waiter);
    stream_hub_count_open(source->hub, -1);
    pipeline_exec_free(source->exec);
    change_reader_done(&source->reader);
    split_event_done(&source->split);
    xfree(source->invalidate_token);
    xfree(source->away);
    xfree(source->stashed);
    xfree(source->last);
    xfree(source->previous);
    arena_done(&source->scratch);
    arena_done(&source->arena);
    xfree(source);
}

static void stream_examined(const CursorSource *base, int64_t *ret_keys, int64_t *ret_docs) {
    *ret_keys = 0;
    *ret_docs = ((const StreamSource *)base)->reader.examined;
}

static const CursorWaitOps WAIT_OPS = {stream_try_wait, stream_end_wait, stream_is_over};
static const CursorSourceOps STREAM_OPS = {stream_next,        stream_give_back, stream_detach,
                                           stream_attach,      stream_free,      stream_examined,
                                           stream_build_token, &WAIT_OPS};

/* ---- opening ---- */

static bool is_stage(Elem stage, const char *name, Elem *ret_spec) {
    if (elem_type(stage) != BT_DOC)
        return false;
    DocIter iter = doc_iter(elem_doc(stage));
    return doc_iter_next(&iter, ret_spec) && str_is(elem_name_str(*ret_spec), name);
}

bool stream_is_wanted(Doc stages) {
    DocIter iter = doc_iter(stages);
    Elem first, spec;
    return doc_iter_next(&iter, &first) && is_stage(first, "$changeStream", &spec);
}

/* Stages that may follow. $unset and $set are names of others. */
static const char *const ALLOWED[] = {"$match",       "$project", "$addFields", "$replaceRoot",
                                      "$replaceWith", "$redact",  "$set",       "$unset"};

static ErrCode check_stage(Elem stage, Error *err) {
    Elem spec;
    for (size_t i = 0; i < ARRAY_LEN(ALLOWED); i++)
        if (is_stage(stage, ALLOWED[i], &spec))
            return ERR_OK;
    DocIter iter = doc_iter(elem_doc(stage));
    if (!doc_iter_next(&iter, &spec))
        return ERR_OK; /* parsing says what is wrong with it */
    return error_set(err, ERR_ILLEGAL_OPERATION, "%s is not permitted in a $changeStream pipeline",
                     elem_name(spec));
}

/* The stages behind $changeStream, without $changeStreamSplitLargeEvent at the end. */
static ErrCode take_stages(StreamSource *source, Doc stages, Elem *ret_spec, Doc *ret_rest,
                           Error *err) {
    DocBuilder b = doc_builder_in_arena_sized(&source->arena, doc_size(stages));
    DocIter iter = doc_iter(stages);
    Elem stage, spec;
    uint32_t count = 0;
    for (bool is_first = true; doc_iter_next(&iter, &stage); is_first = false) {
        if (is_first) {
            (void)is_stage(stage, "$changeStream", ret_spec);
            continue;
        }
        if (source->is_split_wanted)
            return error_set(err, (ErrCode)LOCATION_SPLIT_NOT_LAST,
                             "$changeStreamSplitLargeEvent must be the last stage in the pipeline");
        if (is_stage(stage, "$changeStreamSplitLargeEvent", &spec)) {
            if (elem_type(spec) != BT_DOC || !doc_is_empty(elem_doc(spec)))
                return error_set(err, (ErrCode)LOCATION_SPLIT_SPEC,
                                 "$changeStreamSplitLargeEvent spec should be an empty object");
            source->is_split_wanted = true;
            continue;
        }
        char name[INDEX_NAME_SIZE];
        build_elem_as(&b, index_name(count++, name), stage);
    }
    *ret_rest = doc_builder_end(&b);
    return ERR_OK;
}

static ErrCode check_interrupt(void *arg, Error *err) {
    const StreamSource *source = arg;
    return source->op != NULL ? op_check_interrupt(source->op, err) : ERR_OK;
}

static ErrCode parse_stages(StreamSource *source, Doc stages, const StreamOptions *options,
                            Error *err) {
    CheckHook check = {check_interrupt, source};
    Doc let = doc_is_present(options->let_values) ? doc_copy(options->let_values, &source->arena)
                                                  : DOC_NONE;
    AggParseContext parse = {
        .expr = {.collator = options->collator, .let_values = let},
        .now_ms = options->now_ms,
        .check = check,
    };
    TRY(pipeline_parse(stages, &parse, &source->arena, &source->pipeline, err));
    DocIter iter = doc_iter(stages);
    Elem stage;
    while (doc_iter_next(&iter, &stage))
        TRY(check_stage(stage, err));
    pipeline_optimize(source->pipeline);
    PipelineLeading leading;
    pipeline_split_leading(source->pipeline, &leading);
    source->match = leading.match;
    AggExecContext exec = {
        .check = check,
        .stage_memory_bytes = options->stage_memory_bytes,
        .now_ms = options->now_ms,
        .collator = options->collator,
    };
    return pipeline_exec_new(source->pipeline, (DocSource){.arg = source, .next = pull_event},
                             &exec, &source->exec, err);
}

/* The oplog must still hold the time where the stream begins. One that was never trimmed begins
 * with the initiation of the set: before that nothing happened. */
static ErrCode check_history(OpCtx *op, Oplog *oplog, uint64_t start_ts, Error *err) {
    Doc first;
    TRY(oplog_read_first(oplog, op, &first, err));
    if (!doc_is_present(first) || oplog_entry_optime(first).ts <= start_ts)
        return ERR_OK;
    Elem msg = doc_get_path(first, "o.msg");
    if (elem_type(msg) == BT_STRING && str_is(elem_str(msg), "initiating set"))
        return ERR_OK;
    return error_set(err, ERR_CHANGE_STREAM_HISTORY_LOST,
                     "Resume of change stream was not possible, as the resume point may no longer "
                     "be in the oplog.");
}

/* Everything that was acknowledged here is up to this time, and everything that begins is after it.
 * A primary's clock says so; it is ahead of what is applied while earlier writes are under way. A
 * secondary's clock may have been moved by others, and says nothing about what comes. */
static uint64_t present_ts(const OpCtx *op, const Oplog *oplog) {
    return repl_is_writable(op->service->repl) ? oplog_cluster_time(oplog)
                                               : oplog_applied(oplog).ts;
}

/* What happened to a database before it came to this shard is in the oplog of another one. */
static ErrCode check_arrival(const StreamSource *source, uint64_t arrived_ts, Error *err) {
    if (source->start_ts >= arrived_ts)
        return ERR_OK;
    Str db = ns_db(&source->filter.ns);
    return error_set(err, ERR_CHANGE_STREAM_HISTORY_LOST,
                     "the change stream is to begin before the database %.*s moved to this shard",
                     (int)db.size, db.data);
}

static ErrCode choose_start(StreamSource *source, OpCtx *op, Oplog *oplog,
                            const StreamOptions *options, Error *err) {
    const StreamSpec *spec = &source->spec;
    if (spec->has_token)
        source->start_ts = spec->token.ts;
    else if (spec->start_ts != 0)
        source->start_ts = spec->start_ts;
    else
        source->start_ts = present_ts(op, oplog) + 1;
    if (source->start_ts == 0)
        source->start_ts = 1; /* a token made up; everything is after it */
    if (spec->has_token || spec->start_ts != 0)
        TRY(check_history(op, oplog, source->start_ts, err));
    TRY(check_arrival(source, options->arrived_ts, err));
    source->is_resuming = spec->has_token && spec->token.type == TOKEN_EVENT;
    if (!source->is_resuming)
        return ERR_OK;
    if (spec->token.fragment != TOKEN_FRAGMENT_NONE && !source->is_split_wanted)
        return error_set(err, ERR_CHANGE_STREAM_FATAL_ERROR,
                         "To resume from a split event, the $changeStream pipeline must include a "
                         "$changeStreamSplitLargeEvent stage");
    StreamToken whole = spec->token;
    set_token(&source->last, token_encode(&spec->token, &source->arena));
    whole.fragment = TOKEN_FRAGMENT_NONE;
    source->resume_token = token_encode(&whole, &source->arena);
    return ERR_OK;
}

static ErrCode open_stream(StreamSource *source, OpCtx *op, const Ns *ns, Doc stages,
                           const StreamOptions *options, Error *err) {
    Elem spec = ELEM_MISSING;
    Doc rest;
    TRY(take_stages(source, doc_copy(stages, &source->arena), &spec, &rest, err));
    TRY(stream_spec_parse(spec, &source->arena, &source->spec, err));
    source->filter = (StreamFilter){
        .ns = *ns,
        .shows_expanded = source->spec.shows_expanded,
        .shows_system = source->spec.shows_system,
        .has_documents = source->spec.full_document != FULL_DOCUMENT_DEFAULT,
        .database_version = doc_is_present(options->database_version)
                                ? doc_copy(options->database_version, &source->arena)
                                : DOC_NONE,
    };
    TRY(stream_spec_check_ns(&source->spec, ns, options->is_collectionless, &source->filter.scope,
                             err));
    TRY(parse_stages(source, rest, options, err));
    Oplog *oplog = repl_oplog(op->service->repl);
    TRY(choose_start(source, op, oplog, options, err));
    StreamFilter filter = source->filter;
    filter.match = source->is_resuming ? NULL : source->match;
    source->filter.match = source->match;
    change_reader_init(&source->reader, oplog, &filter, source->start_ts - 1);
    return ERR_OK;
}

ErrCode stream_source_open(OpCtx *op, const Ns *ns, Doc stages, const StreamOptions *options,
                           CursorSource **ret_source, Error *err) {
    if (!service_is_member(op->service))
        return error_set(err, (ErrCode)LOCATION_ONLY_ON_MEMBERS,
                         "The $changeStream stage is only supported on replica sets");
    StreamSource *source = NEW(StreamSource);
    source->base.ops = &STREAM_OPS;
    source->hub = op->service->stream_hub;
    source->op = op;
    arena_init(&source->arena, 2048);
    arena_init(&source->scratch, 1024);
    stream_hub_count_open(source->hub, 1);
    ErrCode rc = open_stream(source, op, ns, stages, options, err);
    if (rc != ERR_OK) {
        stream_free(&source->base);
        return rc;
    }
    *ret_source = &source->base;
    return ERR_OK;
}

void stream_source_explain(const CursorSource *base, DocBuilder *array) {
    const StreamSource *source = (const StreamSource *)base;
    static const char *const SCOPES[] = {"collection", "database", "cluster"};
    size_t first = build_open_doc(array, "0");
    size_t stage = build_open_doc(array, "$changeStream");
    build_cstr(array, "scope", SCOPES[source->filter.scope]);
    build_timestamp(array, "startAtOperationTime", source->start_ts);
    if (source->match != NULL) {
        size_t match = build_open_doc(array, "match");
        match_to_bson(source->match, array);
        build_close(array, match);
    }
    build_close(array, stage);
    build_close(array, first);
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    DocBuilder rest = doc_builder_in_arena(&arena);
    pipeline_to_bson(source->pipeline, &rest);
    DocIter iter = doc_iter(doc_builder_end(&rest));
    Elem elem;
    for (uint32_t i = 1; doc_iter_next(&iter, &elem); i++) {
        char name[INDEX_NAME_SIZE];
        build_elem_as(array, index_name(i, name), elem);
    }
    if (source->is_split_wanted) {
        char name[INDEX_NAME_SIZE];
        uint32_t count = pipeline_stage_count(source->pipeline) + 1;
        size_t last = build_open_doc_str(array, index_name(count, name));
        build_doc(array, "$changeStreamSplitLargeEvent", DOC_EMPTY);
        build_close(array, last);
    }
}
