#include "bson/namespace.h"

#include <stdio.h>
#include <string.h>

#include "bson/validate.h"

static bool has_char_of(Str text, const char *set) {
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] == '\0' || strchr(set, text.data[i]) != NULL)
            return true;
    return false;
}

ErrCode db_name_check(Str db, Error *err) {
    if (db.size == 0)
        return error_set(err, ERR_INVALID_NAMESPACE, "database name cannot be empty");
    if (db.size > DB_NAME_SIZE_MAX)
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "database name is longer than %d characters: %.*s", DB_NAME_SIZE_MAX,
                         (int)db.size, db.data);
    if (has_char_of(db, "/\\. \"$") || !utf8_is_valid((const uint8_t *)db.data, db.size))
        return error_set(err, ERR_INVALID_NAMESPACE, "Invalid database name: '%.*s'", (int)db.size,
                         db.data);
    return ERR_OK;
}

ErrCode ns_make(Str db, Str coll, Ns *ret_ns, Error *err) {
    TRY(db_name_check(db, err));
    if (coll.size == 0)
        return error_set(err, ERR_INVALID_NAMESPACE, "Invalid namespace specified '%.*s.'",
                         (int)db.size, db.data);
    if (coll.data[0] == '.' || coll.data[coll.size - 1] == '.' || has_char_of(coll, "") ||
        !utf8_is_valid((const uint8_t *)coll.data, coll.size))
        return error_set(err, ERR_INVALID_NAMESPACE, "Invalid namespace specified '%.*s.%.*s'",
                         (int)db.size, db.data, (int)coll.size, coll.data);
    if (db.size + 1 + coll.size >= NS_TEXT_SIZE)
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "Fully qualified namespace is too long. Namespace: %.*s.%.*s Max: %d",
                         (int)db.size, db.data, (int)coll.size, coll.data, NS_TEXT_SIZE - 1);
    ret_ns->db_size = (uint16_t)db.size;
    ret_ns->size = (uint16_t)(db.size + 1 + coll.size);
    memcpy(ret_ns->text, db.data, db.size);
    ret_ns->text[db.size] = '.';
    memcpy(ret_ns->text + db.size + 1, coll.data, coll.size);
    ret_ns->text[ret_ns->size] = '\0';
    return ERR_OK;
}

ErrCode ns_parse(Str full, Ns *ret_ns, Error *err) {
    const char *dot = memchr(full.data, '.', full.size);
    if (dot == NULL)
        return error_set(err, ERR_INVALID_NAMESPACE, "Invalid namespace specified '%.*s'",
                         (int)full.size, full.data);
    size_t db_size = (size_t)(dot - full.data);
    return ns_make((Str){full.data, db_size}, (Str){dot + 1, full.size - db_size - 1}, ret_ns, err);
}

bool db_is_internal(Str db) {
    return str_is(db, "admin") || str_is(db, "config") || str_is(db, "local");
}

bool ns_is_system(const Ns *ns) {
    Str coll = ns_coll(ns);
    return coll.size >= 7 && memcmp(coll.data, "system.", 7) == 0;
}

bool ns_is_replicated(const Ns *ns) {
    bool is_database = ns->size == ns->db_size;
    return !str_is(ns_db(ns), "local") && (is_database || !str_is(ns_coll(ns), "system.profile"));
}

bool ns_is_oplog(const Ns *ns) {
    return str_is(ns_str(ns), "local.oplog.rs");
}

ErrCode ns_check_creatable(const Ns *ns, Error *err) {
    static const char *const SYSTEM_ALLOWED[] = {"system.sharding_ddl_coordinators",
                                                 "system.views",
                                                 "system.js",
                                                 "system.profile",
                                                 "system.users",
                                                 "system.roles",
                                                 "system.version",
                                                 "system.sessions",
                                                 "system.replset",
                                                 "system.rollback.id",
                                                 "system.indexBuilds",
                                                 "system.keys",
                                                 "system.preimages"};
    Str coll = ns_coll(ns);
    if (str_has_char(coll, '$'))
        return error_set(err, ERR_INVALID_NAMESPACE, "Invalid collection name: %.*s",
                         (int)coll.size, coll.data);
    if (!ns_is_system(ns))
        return ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(SYSTEM_ALLOWED); i++)
        if (str_is(coll, SYSTEM_ALLOWED[i]))
            return ERR_OK;
    return error_set(err, ERR_INVALID_NAMESPACE, "Invalid system namespace: %s", ns->text);
}
