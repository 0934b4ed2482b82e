/*
 * hello_repl.h - what hello says of a replica set, from which clients know whom to talk to.
 */
#pragma once

#include "commands/core/command.h"

/* `primary_field` is "isWritablePrimary", or "ismaster" in the older form. */
void hello_repl_build(ServiceCtx *service, DocBuilder *b, const char *primary_field);
