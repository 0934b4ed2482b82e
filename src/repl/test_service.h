/*
 * test_service.h - a primary-only service for tests; registered with enableTestCommands.
 */
#pragma once

#include "repl/primary_service.h"

extern const PrimaryServiceSpec TEST_PRIMARY_SERVICE;
