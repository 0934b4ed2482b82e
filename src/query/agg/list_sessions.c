#include "query/agg/list_sessions.h"

#include <openssl/evp.h>

#include "base/alloc.h"
#include "bson/builder.h"
#include "query/agg/query_stages.h"

enum {
    LOCATION_MISSING_FIELD = 40414,
    LOCATION_UNKNOWN_FIELD = 40415,
};

static ErrCode check_users(const char *stage, Doc users, Error *err) {
    static const char *const FIELDS[] = {"user", "db"};
    DocIter iter = doc_iter(users);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field '%s.users.%s' is the wrong type '%s', expected type "
                             "'object'",
                             stage, elem_name(elem), bson_type_name(elem_type(elem)));
        for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++) {
            Elem name = doc_get(elem_doc(elem), str_from(FIELDS[i]));
            if (!elem_is_present(name))
                return error_set(err, (ErrCode)LOCATION_MISSING_FIELD,
                                 "BSON field '%s.users.%s' is missing but a required field", stage,
                                 FIELDS[i]);
            if (elem_type(name) != BT_STRING)
                return error_set(err, ERR_TYPE_MISMATCH,
                                 "BSON field '%s.users.%s' is the wrong type '%s', expected type "
                                 "'string'",
                                 stage, FIELDS[i], bson_type_name(elem_type(name)));
        }
    }
    return ERR_OK;
}

ErrCode sessions_wish_parse(const char *stage, Doc spec, SessionsWish *ret_wish, Error *err) {
    SessionsWish wish = {.users = DOC_NONE};
    DocIter iter = doc_iter(spec);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        bool is_all = elem_name_is(elem, STR("allUsers"));
        bool is_users = elem_name_is(elem, STR("users"));
        if (!is_all && !is_users)
            return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                             "BSON field '%s.%s' is an unknown field.", stage, elem_name(elem));
        if (elem_type(elem) != (is_all ? BT_BOOL : BT_ARRAY))
            return error_set(err, ERR_TYPE_MISMATCH, "BSON field '%s.%s' is the wrong type '%s'",
                             stage, elem_name(elem), bson_type_name(elem_type(elem)));
        if (is_all)
            wish.is_for_all = elem_bool(elem);
        else
            wish.users = elem_doc(elem);
    }
    if (doc_is_present(wish.users))
        TRY(check_users(stage, wish.users, err));
    if (doc_is_present(wish.users) && wish.is_for_all)
        return error_set(err, ERR_UNSUPPORTED_FORMAT,
                         "%s may not specify {allUsers:true} and {users:[...]} at the same time",
                         stage);
    *ret_wish = wish;
    return ERR_OK;
}

static bool is_nobody(Doc user) {
    return elem_str(doc_get_lit(user, "user")).size == 0 &&
           elem_str(doc_get_lit(user, "db")).size == 0;
}

static bool names_nobody(Doc users) {
    DocIter iter = doc_iter(users);
    for (Elem user; doc_iter_next(&iter, &user);)
        if (is_nobody(elem_doc(user)))
            return true;
    return false;
}

bool sessions_wish_has_nobody(const SessionsWish *wish) {
    return !doc_is_present(wish->users) || names_nobody(wish->users);
}

/* Of "user@db", or of nothing at all. */
static void build_digest(DocBuilder *b, const char *name, Doc user) {
    uint8_t digest[USER_DIGEST_SIZE];
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    invariant(hash != NULL);
    bool is_done = EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1;
    if (doc_is_present(user) && !is_nobody(user)) {
        Str user_name = elem_str(doc_get_lit(user, "user"));
        Str db = elem_str(doc_get_lit(user, "db"));
        is_done &= EVP_DigestUpdate(hash, user_name.data, user_name.size) == 1;
        is_done &= EVP_DigestUpdate(hash, "@", 1) == 1;
        is_done &= EVP_DigestUpdate(hash, db.data, db.size) == 1;
    }
    is_done &= EVP_DigestFinal_ex(hash, digest, NULL) == 1;
    EVP_MD_CTX_free(hash);
    invariant(is_done);
    build_binary(b, name, /* subtype= */ 0, digest, sizeof(digest));
}

static void build_filter(DocBuilder *b, const SessionsWish *wish) {
    if (wish->is_for_all)
        return;
    size_t uid = build_open_doc(b, "_id.uid");
    size_t in = build_open_array(b, "$in");
    uint32_t count = 0;
    char name[INDEX_NAME_SIZE];
    if (doc_is_present(wish->users)) {
        DocIter iter = doc_iter(wish->users);
        for (Elem user; doc_iter_next(&iter, &user);)
            build_digest(b, index_name(count++, name).data, elem_doc(user));
    } else {
        build_digest(b, index_name(count, name).data, DOC_NONE);
    }
    build_close(b, in);
    build_close(b, uid);
}

ErrCode list_sessions_rewrite(const Ns *ns, Doc stages, Arena *arena, Doc *ret_stages, Error *err) {
    static const char NAME[] = "$listSessions";
    *ret_stages = stages;
    if (!str_is(stages_first_name(stages), NAME))
        return ERR_OK;
    if (!str_is(ns_str(ns), "config.system.sessions"))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "%s may only be run against config.system.sessions, not \"%s\"", NAME,
                         ns->text);
    DocIter iter = doc_iter(stages);
    Elem first = ELEM_MISSING;
    doc_iter_next(&iter, &first);
    Elem spec = doc_get_lit(elem_doc(first), "$listSessions");
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "the options of %s must be an object", NAME);
    SessionsWish wish;
    TRY(sessions_wish_parse(NAME, elem_doc(spec), &wish, err));
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(stages) + 256);
    size_t stage = build_open_doc(&b, "0");
    size_t match = build_open_doc(&b, "$match");
    build_filter(&b, &wish);
    build_close(&b, match);
    build_close(&b, stage);
    for (Elem rest; doc_iter_next(&iter, &rest);)
        build_elem(&b, rest);
    *ret_stages = doc_builder_end(&b);
    return ERR_OK;
}
