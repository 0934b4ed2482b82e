/*
 * profile_filter.h - which operations of a database are told of, by a filter on the document that
 * the profiler would write of them.
 *
 * Threading: a filter never changes and is shared by reference.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"

typedef struct ProfileFilter ProfileFilter;

/* Fails as filters of queries do, and with 4910200 when it names a field that no such document has.
 */
ErrCode profile_filter_new(Doc spec, ProfileFilter **ret_filter, Error *err) MUST_CHECK;
ProfileFilter *profile_filter_ref(ProfileFilter *filter); /* NULL stays NULL */
void profile_filter_unref(ProfileFilter *filter);

bool profile_filter_matches(const ProfileFilter *filter, Doc profile);
Doc profile_filter_spec(const ProfileFilter *filter);
