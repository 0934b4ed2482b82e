#include "query/sort/sort_pattern.h"

#include "bson/json.h"

static ErrCode parse_part(Elem elem, SortSyntax syntax, SortPattern *pattern, Arena *arena,
                          Error *err);
static ErrCode parse_natural(Elem elem, SortSyntax syntax, uint32_t part_count,
                             SortPattern *pattern, Error *err);

ErrCode sort_pattern_parse(Doc spec, SortSyntax syntax, Arena *arena, SortPattern **ret_pattern,
                           Error *err) {
    SortPattern *pattern = ARENA_NEW(arena, SortPattern);
    pattern->spec = doc_copy(spec, arena);
    uint32_t count = doc_count(pattern->spec);
    if (count == 0 && syntax != SORT_SYNTAX_FIND)
        return error_set(err, (ErrCode)15976, "$sort stage must have at least one sort key");
    if (count > KEYSTRING_FIELDS_MAX)
        return error_set(err, (ErrCode)13103, "too many compound keys");
    pattern->parts = ARENA_ARRAY(arena, SortPart, count);
    DocIter iter = doc_iter(pattern->spec);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("$natural")))
            TRY(parse_natural(elem, syntax, count, pattern, err));
        else
            TRY(parse_part(elem, syntax, pattern, arena, err));
    }
    *ret_pattern = pattern;
    return ERR_OK;
}

/* There is no text search whose score could be sorted by. Random values are those of $sample, which
 * gives its documents in a random order already, and other documents have none: any order will do.
 */
static ErrCode parse_meta(Elem elem, SortSyntax syntax, SortPattern *pattern, Error *err) {
    Elem meta = doc_get_lit(elem_doc(elem), "$meta");
    if (doc_count(elem_doc(elem)) != 1)
        return error_set(err, (ErrCode)17312, "$meta is the only expression supported by $sort");
    if (elem_type(meta) != BT_STRING)
        return error_set(err, (ErrCode)31137, "Illegal $meta sort: $meta: not a string");
    if (str_is(elem_str(meta), "textScore"))
        return error_set(err, (ErrCode)40218,
                         "query requires text score metadata, but it is not available");
    if (syntax == SORT_SYNTAX_META && str_is(elem_str(meta), "randVal")) {
        pattern->meta_count++;
        return ERR_OK;
    }
    if (str_is(elem_str(meta), "randVal") || str_is(elem_str(meta), "geoNearDistance") ||
        str_is(elem_str(meta), "searchScore"))
        return error_set(err, ERR_NOT_IMPLEMENTED, "$meta sort by '%s' is not supported",
                         elem_str(meta).data);
    return error_set(err, (ErrCode)31138, "Illegal $meta sort: $meta: \"%s\"", elem_str(meta).data);
}

static ErrCode parse_part(Elem elem, SortSyntax syntax, SortPattern *pattern, Arena *arena,
                          Error *err) {
    Str name = elem_name_str(elem);
    if (elem_type(elem) == BT_DOC) {
        if (elem_is_present(doc_get_lit(elem_doc(elem), "$meta")))
            return parse_meta(elem, syntax, pattern, err);
        return error_set(err, (ErrCode)15974, "Illegal key in $sort specification: %s",
                         elem_name(elem));
    }
    if (!elem_is_number(elem))
        return error_set(err, (ErrCode)15974, "Illegal key in $sort specification: %s: %s",
                         elem_name(elem), shell_text_of_elem(elem, arena));
    double direction = elem_as_f64(elem);
    if (direction != 1 && direction != -1)
        return error_set(err, (ErrCode)15975,
                         "$sort key ordering must be 1 (for ascending) or -1 (for descending)");
    if (name.size == 0)
        return error_set(err, (ErrCode)40352, "FieldPath cannot be constructed with empty string");
    if (name.data[0] == '$')
        return error_set(err, (ErrCode)16410,
                         "FieldPath field names may not start with '$'. "
                         "Consider using $getField or $setField.");
    if (name.data[name.size - 1] == '.')
        return error_set(err, (ErrCode)40353, "FieldPath must not end with a '.'.");
    if (name.data[0] == '.' || strstr(name.data, "..") != NULL)
        return error_set(err, (ErrCode)15998, "FieldPath field names may not be empty strings.");
    SortPart *part = &pattern->parts[pattern->count];
    TRY(path_parse(name, arena, &part->path, err));
    part->is_descending = direction < 0;
    if (part->is_descending)
        pattern->order |= (KeyOrder)1 << pattern->count;
    pattern->count++;
    return ERR_OK;
}

static ErrCode parse_natural(Elem elem, SortSyntax syntax, uint32_t part_count,
                             SortPattern *pattern, Error *err) {
    if (syntax != SORT_SYNTAX_FIND)
        return error_set(err, (ErrCode)16410,
                         "FieldPath field names may not start with '$'. "
                         "Consider using $getField or $setField.");
    if (part_count != 1)
        return error_set(err, ERR_BAD_VALUE,
                         "$natural sort cannot be set to a value other than "
                         "-1 or 1, and must be the only sort key");
    double direction = elem_is_number(elem) ? elem_as_f64(elem) : 0;
    if (direction != 1 && direction != -1)
        return error_set(err, ERR_BAD_VALUE,
                         "$natural sort cannot be set to a value other than -1 or 1.");
    pattern->natural_direction = (int)direction;
    return ERR_OK;
}

const SortPattern *sort_pattern_reverse(const SortPattern *pattern, Arena *arena) {
    SortPattern *reverse = ARENA_NEW(arena, SortPattern);
    *reverse = *pattern;
    reverse->parts = arena_memdup(arena, pattern->parts, pattern->count * sizeof(SortPart));
    reverse->natural_direction = -pattern->natural_direction;
    for (uint32_t i = 0; i < pattern->count; i++) {
        reverse->parts[i].is_descending = !pattern->parts[i].is_descending;
        reverse->order ^= (KeyOrder)1 << i;
    }
    return reverse;
}
