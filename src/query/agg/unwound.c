/*
 * unwound.c - $lookup and $graphLookup that take the $unwind of their results along.
 */
#include "query/agg/agg_internal.h"

ErrCode agg_unwound_build(const UnwindStage *unwind, const FieldPath *as, Doc doc, Value element,
                          Value index, UnwoundBuffers *buffers, Doc *ret_doc, Error *err) {
    buffer_clear(&buffers->out);
    DocBuilder b;
    doc_builder_init(&b, &buffers->out);
    agg_set_path(&b, as, doc, element);
    TRY(doc_builder_finish(&b, "looked up document", ret_doc, err));
    if (unwind->index_path.count == 0)
        return ERR_OK;
    buffer_clear(&buffers->with_index);
    doc_builder_init(&b, &buffers->with_index);
    agg_set_path(&b, &unwind->index_path, *ret_doc, index);
    return doc_builder_finish(&b, "looked up document", ret_doc, err);
}

void agg_unwound_explain(const UnwindStage *unwind, DocBuilder *b) {
    if (unwind == NULL)
        return;
    size_t unwinding = build_open_doc(b, "unwinding");
    build_bool(b, "preserveNullAndEmptyArrays", unwind->preserves_empty);
    if (unwind->index_path.count > 0)
        build_str(b, "includeArrayIndex", unwind->index_path.dotted);
    build_close(b, unwinding);
}
