/*
 * config_file.c - the YAML configuration file: each scalar is an option by its dotted path.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "server/options.h"

enum {
    CONFIG_FILE_SIZE_MAX = 1024 * 1024,
    CONFIG_DEPTH_MAX = 16,
    CONFIG_PLACE_SIZE = 256,
};

static ErrCode walk(Options *options, yaml_document_t *document, yaml_node_t *node,
                    const char *place, int depth, Error *err);
static ErrCode walk_mapping(Options *options, yaml_document_t *document, yaml_node_t *node,
                            const char *place, int depth, Error *err);

ErrCode options_read_file(Options *options, const char *path, Error *err) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return error_set(err, ERR_BAD_VALUE, "Error opening config file '%s': %s", path,
                         strerror(errno));
    char *text = arena_alloc(&options->arena, CONFIG_FILE_SIZE_MAX + 1);
    size_t size = fread(text, 1, CONFIG_FILE_SIZE_MAX + 1, file);
    bool has_failed = ferror(file) != 0;
    fclose(file);
    if (has_failed)
        return error_set(err, ERR_BAD_VALUE, "Error reading config file '%s'", path);
    if (size > CONFIG_FILE_SIZE_MAX)
        return error_set(err, ERR_BAD_VALUE, "Error reading config file '%s': it is too large",
                         path);
    if (options_read_yaml(options, text, size, err) != ERR_OK)
        return error_prefix(err, "Error parsing config file '%s'", path);
    return ERR_OK;
}

ErrCode options_read_yaml(Options *options, const char *yaml, size_t size, Error *err) {
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return error_set(err, ERR_BAD_VALUE, "out of memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)yaml, size);
    yaml_document_t document;
    if (!yaml_parser_load(&parser, &document)) {
        ErrCode rc = error_set(err, ERR_BAD_VALUE, "line %zu: %s", parser.problem_mark.line + 1,
                               parser.problem != NULL ? parser.problem : "not valid YAML");
        yaml_parser_delete(&parser);
        return rc;
    }
    yaml_node_t *root = yaml_document_get_root_node(&document);
    ErrCode rc = ERR_OK;
    if (root != NULL && root->type != YAML_MAPPING_NODE)
        rc = error_set(err, ERR_BAD_VALUE, "the file has to be a mapping of options");
    else if (root != NULL)
        rc = walk_mapping(options, &document, root, "", 0, err);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return rc;
}

static ErrCode walk_mapping(Options *options, yaml_document_t *document, yaml_node_t *node,
                            const char *place, int depth, Error *err) {
    if (depth == CONFIG_DEPTH_MAX)
        return error_set(err, ERR_BAD_VALUE, "line %zu: nested too deeply",
                         node->start_mark.line + 1);
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = yaml_document_get_node(document, pair->key);
        yaml_node_t *value = yaml_document_get_node(document, pair->value);
        if (key->type != YAML_SCALAR_NODE)
            return error_set(err, ERR_BAD_VALUE, "line %zu: the name of an option has to be a text",
                             key->start_mark.line + 1);
        char inner[CONFIG_PLACE_SIZE];
        int size = snprintf(inner, sizeof(inner), "%s%s%s", place, place[0] != '\0' ? "." : "",
                            (const char *)key->data.scalar.value);
        if (size >= (int)sizeof(inner))
            return error_set(err, ERR_BAD_VALUE, "line %zu: Unrecognized option: %s",
                             key->start_mark.line + 1, inner);
        TRY(walk(options, document, value, inner, depth + 1, err));
    }
    return ERR_OK;
}

static ErrCode walk(Options *options, yaml_document_t *document, yaml_node_t *node,
                    const char *place, int depth, Error *err) {
    if (node->type == YAML_MAPPING_NODE)
        return walk_mapping(options, document, node, place, depth, err);
    if (node->type == YAML_SEQUENCE_NODE)
        return error_set(err, ERR_BAD_VALUE, "line %zu: option %s does not take a list",
                         node->start_mark.line + 1, place);
    const char *text = (const char *)node->data.scalar.value;
    bool is_plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (is_plain && *text == '\0')
        return ERR_OK; /* a section whose options are all commented out */
    /* YAML 1.1 has more words for booleans. */
    if (is_plain && (strcmp(text, "yes") == 0 || strcmp(text, "on") == 0))
        text = "true";
    else if (is_plain &&
             (strcmp(text, "no") == 0 ||
              (strcmp(text, "off") == 0 && strcmp(place, "operationProfiling.mode") != 0)))
        text = "false";
    if (options_set_place(options, place, text, err) != ERR_OK)
        return error_prefix(err, "line %zu", node->start_mark.line + 1);
    return ERR_OK;
}
