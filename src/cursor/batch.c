#include "cursor/batch.h"

#include <string.h>

ErrCode cursor_build_batch(CursorSource *source, DocBuilder *b, const char *field, int64_t docs_max,
                           BatchResult *ret_result, Error *err) {
    *ret_result = (BatchResult){0};
    size_t start = b->buf->size;
    size_t array = build_open_array(b, field);
    while (ret_result->count < docs_max) {
        bool is_found;
        Doc doc;
        TRY(source->ops->next(source, &is_found, &doc, err));
        if (!is_found) {
            ret_result->is_exhausted = true;
            break;
        }
        size_t size = doc_size(doc);
        if (UNLIKELY(size > BSON_DOC_SIZE_MAX_CARRIED))
            return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                             "a result of %zu bytes is larger than the limit of %d bytes", size,
                             BSON_DOC_SIZE_MAX_CARRIED);
        /* One document always fits; beyond it the reply must stay below what clients accept. */
        if (ret_result->count > 0 && b->buf->size - start + size + 16 > BATCH_BYTES_MAX) {
            source->ops->give_back(source, doc);
            break;
        }
        char name[INDEX_NAME_SIZE];
        uint8_t *at = build_value(b, BT_DOC, index_name((uint32_t)ret_result->count, name), size);
        if (at != NULL)
            memcpy(at, doc.data, size);
        ret_result->count++;
    }
    build_close(b, array);
    return ERR_OK;
}
