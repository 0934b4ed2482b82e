/*
 * owned_paths.mjs - every way in which a client reads or changes documents of a collection, for
 * tests of what a node owns: each row must do the same over a collection of which a part is owned
 * and over one that holds only that part.
 *
 * A row is [name, function, options]. The function gets {c, f, db}: the collection, one to look
 * things up in, and their database. Results are compared as sets of documents unless the row says
 * `ordered`; `natural` are rows whose result depends on the order of records, which two members
 * of a set need not have in common.
 */
import { Long } from 'mongodb';

const NATURAL = { $natural: 1 };
const EN = { locale: 'en', strength: 2 };
const ORDERED = { ordered: true };
const IN_NATURAL_ORDER = { ordered: true, natural: true };
/* What was looked up, in an order of its own. */
const BY_ID = { $project: { x: { $sortArray: { input: '$x', sortBy: { _id: 1 } } } } };
const BATCH_COUNT_MAX = 10_000;

export const INDEXES = [
    { key: { k: 1 }, name: 'k' },
    { key: { i: 1 }, name: 'i' },
    { key: { k: 1, i: 1 }, name: 'ki' },
    { key: { i: 1, k: -1 }, name: 'ik' },
    { key: { k: 'hashed' }, name: 'hashed' },
    { key: { i: 'hashed', d: 1 }, name: 'hashed2' },
    { key: { ss: 1 }, name: 'multikey' },
    { key: { 'items.v': 1, k: 1 }, name: 'multikey2' },
    { key: { s: 1, k: 1 }, name: 'collated', collation: EN },
    { key: { d: 1 }, name: 'partial', partialFilterExpression: { i: { $gt: 0 } } },
    { key: { 'o.x': 1 }, name: 'dotted', sparse: true },
    { key: { b: 1, d: -1 }, name: 'bd' },
    { key: { 'o.$**': 1 }, name: 'wildcard' },
];

/* ---- what rows are made of ---- */

const find = (filter, options) => ({ c }) => c.find(filter, options).toArray();
const count = (fields) => ({ c, db }) => db.command({ count: c.collectionName, ...fields });
// Whether a missing field shows as null depends on the plan.
const distinct =
    (...args) =>
    async ({ c }) =>
        (await c.distinct(...args)).filter((value) => value != null);
const pipeline = (stages, options) => ({ c }) => c.aggregate(stages, options).toArray();
/* The stages depend on the other collection. */
const joining = (makeStages) => ({ c, f }) => c.aggregate(makeStages(f.collectionName)).toArray();
const lookup = (from) => ({ $lookup: { from, localField: 'i', foreignField: 'n', as: 'x' } });

/* All batches of a command that opens a cursor. */
async function batches(db, command, batchSize = 7) {
    let { cursor } = await db.command(command);
    const docs = [...cursor.firstBatch];
    for (let left = BATCH_COUNT_MAX; left > 0 && Number(cursor.id) !== 0; left--) {
        const collection = cursor.ns.slice(cursor.ns.indexOf('.') + 1);
        const getMore = Long.fromValue(cursor.id);
        ({ cursor } = await db.command({ getMore, collection, batchSize }));
        docs.push(...cursor.nextBatch);
    }
    return docs;
}

const findInBatches = (fields) => ({ c, db }) =>
    batches(db, { find: c.collectionName, batchSize: 7, ...fields });
const pipelineInBatches = (makeStages) => ({ c, f, db }) =>
    batches(db, {
        aggregate: c.collectionName,
        pipeline: makeStages(f.collectionName),
        cursor: { batchSize: 4 },
    });

/* A scan that is begun anew at each token, as one that resumes after a lost connection. */
async function resumed({ c, db }) {
    const name = c.collectionName;
    const docs = [];
    const command = { find: name, hint: NATURAL, $_requestResumeToken: true, batchSize: 5 };
    for (let after = null, left = BATCH_COUNT_MAX; left > 0; left--) {
        const { cursor } = await db.command({ ...command, ...(after && { $_resumeAfter: after }) });
        docs.push(...cursor.firstBatch);
        if (Number(cursor.id) === 0) break;
        await db.command({ killCursors: name, cursors: [Long.fromValue(cursor.id)] });
        after = { $recordId: Long.fromValue(cursor.postBatchResumeToken.$recordId) };
    }
    return docs;
}

/* ---- reads ---- */

const only = (...names) => Object.fromEntries([['_id', 0], ...names.map((name) => [name, 1])]);
const covered = (hint, ...names) => ({ projection: only(...names), hint });

export const FINDS = [
    ['find all', find()],
    ['find by an _id that is owned', find({ _id: 3 })],
    ['find by an _id that is not', find({ _id: 4 })],
    ['find by several _ids', find({ _id: { $in: [1, 2, 3, 4, 5, 6] } })],
    ['find with a filter on the key', find({ k: { $gt: 10, $lt: 60 } })],
    ['find in natural order', find({}, { hint: NATURAL }), IN_NATURAL_ORDER],
    ['find in reverse', find({}, { sort: { $natural: -1 }, limit: 9 }), IN_NATURAL_ORDER],
    ['find with skip and limit', find({}, { hint: NATURAL, skip: 5, limit: 11 }), IN_NATURAL_ORDER],
    ['find without filter, hinted', find({}, { hint: 'i', skip: 3, limit: 20 }), IN_NATURAL_ORDER],
    ['find by an index without the key', find({ i: { $gt: 0 } }, { hint: 'i' })],
    ['find covered by key and field', find({ k: { $gte: 0 } }, covered('ki', 'k', 'i')), ORDERED],
    ['find covered, the key not projected', find({ i: { $lt: 3 } }, covered('ik', 'i')), ORDERED],
    ['find covered but for the key', find({ i: { $lt: 3 } }, covered('i', 'i')), ORDERED],
    ['find covered, null and missing', find({ k: null }, covered('k', 'k'))],
    [
        'find sorted by an index',
        find({}, { sort: { k: 1, i: 1 }, limit: 13 }),
        IN_NATURAL_ORDER,
    ],
    ['find sorted in memory', find({}, { sort: { t: 1, _id: -1 } }), ORDERED],
    [
        'find sorted in memory, with limit',
        find({}, { sort: { d: -1, _id: 1 }, skip: 4, limit: 9 }),
        ORDERED,
    ],
    [
        'find with $in, merged in order',
        find({ i: { $in: [1, 2, 5] } }, { sort: { k: -1 }, hint: 'ik', limit: 8 }),
        IN_NATURAL_ORDER,
    ],
    ['find with $or over indexes', find({ $or: [{ i: 3 }, { ss: 'a' }, { k: 9 }] })],
    [
        'find with $or, sorted',
        find({ $or: [{ i: 3 }, { i: -2 }] }, { sort: { k: -1, _id: 1 } }),
        ORDERED,
    ],
    ['find by a hashed index', find({ k: 21 }, { hint: 'hashed' })],
    ['find by a compound hashed index', find({ i: 2 }, { hint: 'hashed2' })],
    ['find by a multikey index', find({ ss: { $gte: 'a' } }, { hint: 'multikey' })],
    [
        'find by a multikey index with the key',
        find({ 'items.v': { $gt: -9 } }, { hint: 'multikey2' }),
    ],
    ['find by a collated index', find({ s: 'ABC' }, { collation: EN, hint: 'collated' })],
    [
        'find sorted by a collated index',
        find({ s: { $gt: '' } }, { collation: EN, sort: { s: 1, k: 1, _id: 1 } }),
        ORDERED,
    ],
    ['find by a partial index', find({ i: { $gt: 1 }, d: { $gt: 0 } }, { hint: 'partial' })],
    ['find by a sparse index', find({ 'o.x': { $gt: 0 } }, { hint: 'dotted' })],
    ['find by a wildcard index', find({ 'o.z.w': { $gt: 0 } }, { hint: 'wildcard' })],
    [
        'find with min and max',
        find({}, { hint: 'ki', min: { k: 3, i: -9 }, max: { k: 40, i: 9 } }),
        IN_NATURAL_ORDER,
    ],
    ['find with returnKey', find({ k: { $gt: 3 } }, { returnKey: true, hint: 'ki' }), ORDERED],
    ['find with $expr', find({ $expr: { $gt: ['$i', '$d'] } })],
    ['find with few per batch', findInBatches({})],
    ['find with few per batch, sorted', findInBatches({ sort: { i: 1, _id: 1 } }), ORDERED],
    ['find resumed by tokens', resumed, IN_NATURAL_ORDER],
    [
        'find that shows record ids',
        async ({ c }) => (await c.find({}, { showRecordId: true }).toArray()).map((d) => d._id),
    ],
];

const EN_VALUES = async ({ c }) =>
    (await c.distinct('s', {}, { collation: EN })).filter((value) => value != null).map((value) => value.toLowerCase());

export const COUNTS = [
    ['estimated count', ({ c }) => c.estimatedDocumentCount()],
    ['count of all', count({})],
    ['count of all with skip and limit', count({ query: {}, skip: 3, limit: 10 })],
    ['count of all by a hint', count({ hint: 'i' })],
    ['count by an index', count({ query: { i: { $gt: 2 } }, hint: 'i' })],
    ['count by an index with the key', count({ query: { k: { $gt: 20 } }, hint: 'k' })],
    ['count by a multikey index', count({ query: { ss: 'a' } })],
    ['count by _id', count({ query: { _id: 4 } })],
    ['count with skip and limit', count({ query: { b: true }, skip: 5, limit: 20 })],
    ['countDocuments', ({ c }) => c.countDocuments({ i: { $lte: 0 } })],
    ['countDocuments of all', ({ c }) => c.countDocuments()],
    ['distinct of the key', distinct('k')],
    ['distinct of a field', distinct('i')],
    ['distinct with a filter', distinct('i', { i: { $gt: 2 } })],
    ['distinct of an array', distinct('ss')],
    ['distinct of a text with collation', EN_VALUES], // of equal ones any may stand for all
    ['distinct with a filter on the key', distinct('k', { k: { $in: [3, 4, 5, 6] } })],
];

const sumUpTo = { $sum: 'k', window: { documents: ['unbounded', 'current'] } };

export const PIPELINES = [
    ['$match', pipeline([{ $match: { i: { $gt: 3 } } }])],
    ['$match by _id', pipeline([{ $match: { _id: 4 } }])],
    ['$group', pipeline([{ $group: { _id: '$b', n: { $sum: 1 }, k: { $sum: '$k' } } }])],
    ['$count', pipeline([{ $count: 'n' }])],
    ['$count of an index', pipeline([{ $match: { i: 3 } }, { $count: 'n' }], { hint: 'i' })],
    [
        '$group that needs one field',
        pipeline([{ $match: { i: { $gte: 0 } } }, { $group: { _id: '$i', n: { $sum: 1 } } }], {
            hint: 'i',
        }),
    ],
    [
        '$sort and $limit',
        pipeline([{ $sort: { d: 1, _id: 1 } }, { $skip: 2 }, { $limit: 9 }]),
        ORDERED,
    ],
    ['$sortByCount', pipeline([{ $sortByCount: '$b' }])],
    ['$lookup', joining((from) => [lookup(from), BY_ID])],
    [
        '$lookup with a pipeline',
        joining((from) => [
            { $match: { i: { $gt: 5 } } },
            {
                $lookup: {
                    from,
                    let: { i: '$i' },
                    pipeline: [{ $match: { $expr: { $eq: ['$n', '$$i'] } } }, { $count: 'c' }],
                    as: 'x',
                },
            },
        ]),
    ],
    [
        '$graphLookup',
        joining((from) => [
            { $match: { k: { $lt: 12 } } },
            {
                $graphLookup: {
                    from,
                    startWith: '$i',
                    connectFromField: 'next',
                    connectToField: 'n',
                    as: 'x',
                    maxDepth: 4,
                },
            },
            BY_ID,
        ]),
    ],
    [
        '$unionWith',
        joining((coll) => [{ $unionWith: { coll, pipeline: [{ $match: { n: { $gt: 0 } } }] } }]),
    ],
    [
        '$unionWith itself',
        ({ c }) =>
            c.aggregate([{ $match: { i: 1 } }, { $unionWith: c.collectionName }]).toArray(),
    ],
    ['$sample of all', pipeline([{ $sample: { size: 100_000 } }])],
    [
        '$sample of few',
        async ({ c, isOwned }) =>
            (await c.aggregate([{ $sample: { size: 5 } }]).toArray()).map(isOwned),
    ],
    [
        '$facet',
        pipeline([
            {
                $facet: {
                    n: [{ $count: 'n' }],
                    k: [{ $sortByCount: '$k' }, { $sort: { count: -1, _id: 1 } }],
                },
            },
        ]),
    ],
    ['$bucketAuto', pipeline([{ $bucketAuto: { groupBy: '$k', buckets: 4 } }])],
    [
        '$setWindowFields',
        pipeline([{ $setWindowFields: { sortBy: { _id: 1 }, output: { r: sumUpTo } } }]),
    ],
    ['pipeline with few per batch', pipelineInBatches(() => [{ $set: { z: 1 } }])],
    ['$lookup with few per batch', pipelineInBatches((from) => [lookup(from), BY_ID])],
];

/* These write to other collections. */
export const SINKS = [
    [
        '$out to another collection',
        async ({ c, db }) => {
            await c.aggregate([{ $match: { i: { $gt: 0 } } }, { $out: 'sink' }]).toArray();
            return db.collection('sink').find().toArray();
        },
    ],
    [
        '$merge into another collection',
        async ({ c, db }) => {
            await db.collection('sink').drop();
            await c.aggregate([{ $project: { k: 1 } }, { $merge: 'sink' }]).toArray();
            return db.collection('sink').find().toArray();
        },
    ],
    [
        'a view: find, count, distinct',
        async ({ c, db }) => {
            const name = `view_of_${c.collectionName}`;
            const stages = [{ $match: { i: { $gt: -3 } } }];
            await db.createCollection(name, { viewOn: c.collectionName, pipeline: stages });
            const view = db.collection(name);
            const found = await view.find({ b: true }).sort({ _id: 1 }).toArray();
            return [found, (await db.command({ count: name })).n, await view.distinct('k')];
        },
    ],
];

/* ---- writes ---- */

const Z = { $set: { z: 1 } };
const call = (method, ...args) => ({ c }) => c[method](...args);
const anyOf = (list) => ({ $in: list });
const positive = { arrayFilters: [{ 'e.v': { $gt: 0 } }] };
const inserted = [
    { _id: 90_006, k: 6 },
    { _id: 90_009, k: 9, ss: ['a', 'b'] },
];

/* Each begins with the same documents again. Nothing changes the key or adds what is not owned. */
export const WRITES = [
    ['updateOne by an _id that is owned', call('updateOne', { _id: 3 }, Z)],
    ['updateOne by an _id that is not', call('updateOne', { _id: 4 }, Z)],
    ['updateOne by _id and more', call('updateOne', { _id: 4, z: { $exists: false } }, Z)],
    ['updateMany by _ids', call('updateMany', { _id: anyOf([1, 2, 3, 4, 5, 6]) }, Z)],
    ['updateOne by a filter', call('updateOne', { i: { $gt: 3 } }, Z, { hint: NATURAL })],
    ['updateOne by an index', call('updateOne', { i: { $gte: -5 } }, Z, { hint: 'i' })],
    ['updateMany of all', call('updateMany', {}, { $inc: { z: 1 }, $set: { t: 'T' } })],
    [
        'updateMany by an index that it moves',
        call('updateMany', { i: { $gte: -5 } }, { $inc: { i: 3 } }, { hint: 'i' }),
    ],
    ['updateMany by a multikey index', call('updateMany', { ss: 'a' }, { $push: { ss: 'zz' } })],
    ['updateMany with collation', call('updateMany', { s: 'ABC' }, Z, { collation: EN })],
    [
        'update by a pipeline',
        call('updateMany', { b: true }, [{ $set: { z: { $toString: '$_id' } } }]),
    ],
    [
        'update with arrayFilters',
        call('updateMany', { 'items.0': { $type: 3 } }, { $set: { 'items.$[e].v': 0 } }, positive),
    ],
    ['replaceOne', call('replaceOne', { _id: 6 }, { k: 6, z: 'new' })],
    ['replaceOne of what is not owned', call('replaceOne', { _id: 7 }, { k: 6, z: 'new' })],
    ['upsert that finds', call('updateOne', { k: 9 }, Z, { upsert: true, hint: 'k' })],
    ['upsert that inserts', call('updateOne', { _id: 90_000, k: 90_000 }, Z, { upsert: true })],
    ['deleteOne by an _id that is owned', call('deleteOne', { _id: 3 })],
    ['deleteOne by an _id that is not', call('deleteOne', { _id: 4 })],
    ['deleteOne by an index', call('deleteOne', { i: { $gt: -8 } }, { hint: 'i' })],
    ['deleteMany by an index', call('deleteMany', { i: { $gt: 0 } })],
    ['deleteMany by $or', call('deleteMany', { $or: [{ i: 3 }, { ss: 'a' }] })],
    ['deleteMany of all', call('deleteMany', {})],
    ['findOneAndUpdate by _id', call('findOneAndUpdate', { _id: 4 }, Z)],
    [
        'findOneAndUpdate sorted by an index',
        call('findOneAndUpdate', {}, Z, { sort: { k: -1, i: 1 }, returnDocument: 'after' }),
    ],
    [
        'findOneAndUpdate sorted in memory',
        call('findOneAndUpdate', {}, Z, { sort: { d: 1, _id: 1 } }),
    ],
    [
        'findOneAndUpdate merged in order',
        call('findOneAndUpdate', { i: anyOf([1, 2, 5]) }, Z, { sort: { k: 1 }, hint: 'ik' }),
    ],
    [
        'findOneAndReplace',
        call('findOneAndReplace', { k: 9 }, { k: 9, z: 1 }, { sort: { _id: 1 } }),
    ],
    [
        'findOneAndDelete',
        call('findOneAndDelete', { i: { $gt: 0 } }, { sort: { d: -1, _id: 1 } }),
    ],
    ['findOneAndDelete by _id', call('findOneAndDelete', { _id: 5 })],
    [
        'bulkWrite',
        call('bulkWrite', [
            { updateOne: { filter: { _id: 3 }, update: { $set: { z: 2 } } } },
            { updateOne: { filter: { _id: 4 }, update: { $set: { z: 2 } } } },
            { deleteOne: { filter: { _id: 5 } } },
            { deleteMany: { filter: { i: 2 } } },
            { insertOne: { document: { _id: 90_003, k: 3 } } },
            { updateMany: { filter: { b: false }, update: { $inc: { z: 1 } } } },
        ]),
    ],
    [
        '$merge into itself',
        ({ c }) => {
            const $merge = { into: c.collectionName, whenNotMatched: 'fail' };
            return c.aggregate([{ $set: { z: 'merged' } }, { $merge }]).toArray();
        },
    ],
    [
        '$merge that discards what is not there',
        ({ c, f }) => {
            const $merge = { into: c.collectionName, whenNotMatched: 'discard' };
            return f.aggregate([{ $project: { z: 'm' } }, { $merge }]).toArray();
        },
    ],
    ['insert of what is owned', call('insertMany', inserted)],
];

/* Bytes as they are stored, by _id. */
export async function stored(c, filter = {}) {
    const rows = await c.find(filter, { raw: true, sort: { _id: 1 } }).toArray();
    return rows.map((bytes) => Buffer.from(bytes).toString('hex'));
}
