/*
 * build_info.h - what buildInfo answers.
 */
#pragma once

#include "bson/builder.h"

void build_build_info(DocBuilder *b);
