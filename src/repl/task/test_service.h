/*
 * test_service.h - a service for tests, registered with enableTestCommands; _testPrimaryTask begins
 * its tasks. It shows all that the framework can: branches, an abort path, a point of no return,
 * progress, failures of every class, waiting without a thread, and a block of writes that survives
 * a fail-over.
 */
#pragma once

#include "repl/task/task_service.h"

#define TEST_SERVICE_NAME "TestService"

typedef struct TestService TestService;

/* Registers itself, and an observer of writes for what its tasks block. */
TestService *test_service_new(ServiceCtx *service, TaskServices *services);
void test_service_free(TestService *test); /* NULL is fine */
