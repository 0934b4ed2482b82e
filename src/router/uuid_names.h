/*
 * uuid_names.h - CollectionUUIDMismatch tells what the collection that the client meant is called
 * now. A shard that has no part of it cannot know; the primary shard of the database has all.
 */
#pragma once

#include "commands/core/command.h"

bool uuid_names_is_missing(Doc details);
/* The details of such an error (its extra, or a row of writeErrors) with the name that is missing
 * in them; as they are if nothing is missing, or the name cannot be found out. */
Doc uuid_names_complete(CommandCtx *ctx, Doc details);
/* The same for the error of a whole command. */
void uuid_names_complete_error(CommandCtx *ctx, Error *err);
