/*
 * index_votes.c - how the members of the set agree about index builds: the primary decides.
 */
#include "index/build/build.h"
#include "repl/repl_internal.h"

static ErrCode ready(void *arg, OpCtx *op, IndexBuild *build, bool *ret_is_commit, Error *err) {
    (void)op, (void)build, (void)err;
    *ret_is_commit = repl_is_writable(arg);
    return ERR_OK;
}

void index_votes_open(Repl *repl) {
    const IndexBuildMembers members = {.arg = repl, .ready = ready};
    index_builds_set_members(repl->service->index_builds, &members);
}
