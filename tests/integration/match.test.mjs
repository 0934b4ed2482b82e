/*
 * The query language through the wire: tables of filter and expected _ids, asked without and with
 * an index on the field, which must not make a difference.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
    Binary,
    Decimal128,
    Double,
    Int32,
    Long,
    MaxKey,
    MinKey,
    ObjectId,
    Timestamp,
} from 'mongodb';
import { fails, sortedIds } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();
const OID = new ObjectId('0123456789abcdef01234567');

const DOCUMENTS = [
    { _id: 1, a: new Int32(1) },
    { _id: 2, a: new Double(1) },
    { _id: 3, a: Long.fromNumber(2) },
    { _id: 4, a: Decimal128.fromString('2.5') },
    { _id: 5, a: 'abc' },
    { _id: 6, a: 'ABD' },
    { _id: 7, a: null },
    { _id: 8 },
    { _id: 9, a: [] },
    { _id: 10, a: [1, 2, 3] },
    { _id: 11, a: [[1, 2], 3] },
    { _id: 12, a: { b: 1, c: 2 } },
    { _id: 13, a: { c: 2, b: 1 } },
    {
        _id: 14,
        a: [
            { b: 1, c: 5 },
            { b: 2, c: 3 },
        ],
    },
    { _id: 15, a: true },
    { _id: 16, a: false },
    { _id: 17, a: new Date(1000) },
    { _id: 18, a: new Double(NaN) },
    { _id: 19, a: /abc/i },
    { _id: 20, a: new MinKey() },
    { _id: 21, a: new MaxKey() },
    { _id: 22, a: OID },
    { _id: 23, a: new Binary(Buffer.from([0x0f]), 0) },
    { _id: 24, a: new Timestamp({ t: 1, i: 1 }) },
    { _id: 25, a: [null] },
    { _id: 26, a: { b: [{ c: 7 }] } },
    { _id: 27, a: '' },
    { _id: 28, a: new Double(Infinity) },
    { _id: 29, a: new Int32(-7) },
];

const FILTERS = [
    [{}, DOCUMENTS.map(({ _id }) => _id)],
    // equality
    [{ a: 1 }, [1, 2, 10]],
    [{ a: { $eq: 2 } }, [3, 10]],
    [{ a: 2.5 }, [4]],
    [{ a: null }, [7, 8, 25]],
    [
        { a: { $ne: null } },
        [
            1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27,
            28, 29,
        ],
    ],
    [{ a: [] }, [9]],
    [{ a: [1, 2, 3] }, [10]],
    [{ a: [1, 2] }, [11]],
    [{ a: { b: 1, c: 2 } }, [12]],
    [{ a: { b: 1, c: 5 } }, [14]],
    [{ a: true }, [15]],
    [{ a: NaN }, [18]],
    [{ a: OID }, [22]],
    [{ a: new MinKey() }, [20]],
    [{ a: new MaxKey() }, [21]],
    [{ a: /abc/i }, [5, 19]],
    [{ a: /^ab/ }, [5]],
    [{ a: /^AB/i }, [5, 6]],
    [{ a: /^$/ }, [27]],
    [{ a: { $regex: 'b.$', $options: 'i' } }, [5, 6]],
    // ranges stay in their type
    [{ a: { $gt: 1 } }, [3, 4, 10, 11, 28]],
    [{ a: { $gte: 1, $lt: 2 } }, [1, 2, 10]],
    [{ a: { $lt: 1 } }, [29]],
    [{ a: { $lte: NaN } }, [18]],
    [{ a: { $gte: Infinity } }, [28]],
    [{ a: { $gt: '' } }, [5, 6]],
    [{ a: { $lt: 'abc' } }, [6, 27]],
    [{ a: { $gte: null } }, [7, 8, 25]],
    [{ a: { $lt: null } }, []],
    [{ a: { $gt: false } }, [15]],
    [{ a: { $gte: new Date(0) } }, [17]],
    [{ a: { $gt: new MinKey() } }, DOCUMENTS.map(({ _id }) => _id).filter((id) => id !== 20)],
    [{ a: { $lt: new MaxKey() } }, DOCUMENTS.map(({ _id }) => _id).filter((id) => id !== 21)],
    [{ a: { $gt: [1, 2] } }, [10, 11, 14]],
    [{ a: { $gt: { b: 1 } } }, [12, 13, 14, 26]],
    // sets
    [{ a: { $in: [1, 'abc', null] } }, [1, 2, 5, 7, 8, 10, 25]],
    [{ a: { $in: [] } }, []],
    [{ a: { $in: [/^A/, 3] } }, [6, 10, 11]],
    [
        { a: { $nin: [1, 2, 3, null] } },
        [4, 5, 6, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 28, 29],
    ],
    [{ a: { $in: [[1, 2], []] } }, [9, 11]],
    // existence and type
    [{ a: { $exists: false } }, [8]],
    [{ a: { $exists: 1, $in: [null] } }, [7, 25]],
    [{ a: { $type: 'number' } }, [1, 2, 3, 4, 10, 11, 18, 28, 29]],
    [{ a: { $type: 'int' } }, [1, 10, 11, 29]],
    [{ a: { $type: ['string', 'bool'] } }, [5, 6, 15, 16, 27]],
    [{ a: { $type: 'array' } }, [9, 10, 11, 14, 25]],
    [{ a: { $type: 10 } }, [7, 25]],
    [{ a: { $type: 'object' } }, [12, 13, 14, 26]],
    [{ a: { $type: 'regex' } }, [19]],
    [{ a: { $type: -1 } }, [20]],
    // paths
    [{ 'a.b': 1 }, [12, 13, 14]],
    [{ 'a.b': { $gt: 1 } }, [14]],
    [{ 'a.0': 1 }, [10]],
    [{ 'a.0.b': 1 }, [14]],
    [{ 'a.b.c': 7 }, [26]],
    [{ 'a.b.0.c': 7 }, [26]],
    [{ 'a.b': null, a: { $type: 'object' } }, []],
    [{ 'a.d': null, a: { $type: 'object' } }, [12, 13, 14, 26]],
    [{ 'a.b': { $exists: true } }, [12, 13, 14, 26]],
    // arrays
    [{ a: { $size: 0 } }, [9]],
    [{ a: { $size: 2 } }, [11, 14]],
    [{ a: { $all: [1, 3] } }, [10]],
    [{ a: { $all: [[1, 2]] } }, [11]],
    [{ a: { $all: [] } }, []],
    [{ a: { $elemMatch: { $gt: 1, $lt: 3 } } }, [10]],
    [{ a: { $gt: 2, $lt: 2 } }, [10]],
    [{ a: { $elemMatch: { b: 1, c: 5 } } }, [14]],
    [{ a: { $elemMatch: { b: 1, c: 3 } } }, []],
    [{ 'a.b': 1, 'a.c': 3 }, [14]],
    [{ a: { $all: [{ $elemMatch: { b: 1 } }, { $elemMatch: { c: 3 } }] } }, [14]],
    [{ a: { $elemMatch: { $elemMatch: { $eq: 2 } } } }, [11]],
    // logic
    [{ $or: [{ a: 1 }, { a: 'abc' }] }, [1, 2, 5, 10]],
    [{ $and: [{ a: { $gt: 1 } }, { a: { $lt: 3 } }] }, [3, 4, 10]],
    [{ $nor: [{ a: { $exists: true } }, { _id: 99 }] }, [8]],
    [{ a: { $not: { $gt: -100 } }, _id: { $lt: 10 } }, [5, 6, 7, 8, 9]],
    [{ a: { $not: /^a/ }, _id: { $in: [5, 6] } }, [6]],
    [{ _id: { $lt: 4 }, $or: [{ a: 1 }, { a: 2 }], $nor: [{ _id: 1 }] }, [2, 3]],
    [{ $comment: 'x', _id: 1 }, [1]],
    [{ $alwaysFalse: 1 }, []],
    // numbers and bits
    [{ a: { $mod: [2, 0] } }, [3, 4, 10]],
    [{ a: { $mod: [3, -1] } }, [29]],
    // -7 is ...11111001 in two's complement: bit 0 set, bits 1 and 2 clear.
    [{ a: { $bitsAllSet: 1 } }, [1, 2, 10, 11, 23, 29]],
    [{ a: { $bitsAnySet: [1, 2] } }, [3, 10, 11, 23]],
    [{ a: { $bitsAllClear: [0] } }, [3, 10]],
    [{ a: { $bitsAnyClear: 3 } }, [1, 2, 3, 10, 29]],
    // expressions
    [{ $expr: { $eq: ['$a', 1] } }, [1, 2]],
    [{ $expr: { $and: [{ $gt: ['$_id', 2] }, { $lt: ['$_id', 5] }] } }, [3, 4]],
    [{ $expr: { $gt: ['$_id', { $add: ['$$ROOT._id', -1] }] }, _id: { $lt: 3 } }, [1, 2]],
    [{ _id: { $gt: 27 } }, [28, 29]],
    [{ _id: { $in: [3, 1, 99] } }, [1, 3]],
];
function withoutIndex() {
    return node.db.collection('plain');
}

test('the documents of the table are stored', async () => {
    await withoutIndex().insertMany(DOCUMENTS);
    const indexed = node.db.collection('indexed');
    await indexed.insertMany(DOCUMENTS);
    await indexed.createIndex({ a: 1 });
    await indexed.createIndex({ 'a.b': 1 });
    await indexed.createIndex({ 'a.c': -1 });
});

for (const [filter, expected] of FILTERS) {
    const text = JSON.stringify(filter, (_, value) =>
        value instanceof RegExp ? String(value) : value,
    );
    test(`${text} finds ${expected.length}, with and without index`, async () => {
        const want = [...expected].sort((x, y) => x - y);
        assert.deepEqual(sortedIds(await withoutIndex().find(filter).toArray()), want, 'by scan');
        assert.deepEqual(
            sortedIds(await node.db.collection('indexed').find(filter).toArray()),
            want,
            'by index',
        );
        assert.equal(await withoutIndex().countDocuments(filter), want.length);
    });
}

const BAD_FILTERS = [
    [{ a: { $foo: 1 } }, 2],
    [{ $foo: [] }, 2],
    [{ $or: [] }, 2],
    [{ $or: {} }, 2],
    [{ $and: [1] }, 2],
    [{ a: { $in: 1 } }, 2],
    [{ a: { $in: [{ $gt: 1 }] } }, 2],
    [{ a: { $mod: [0, 1] } }, 2],
    [{ a: { $mod: [1] } }, 2],
    [{ a: { $size: -1 } }, 2],
    [{ a: { $size: 'x' } }, 2],
    [{ a: { $type: 'nonsense' } }, 2],
    [{ a: { $type: [] } }, 9],
    [{ a: { $regex: '(' } }, 51091],
    [{ a: { $options: 'i' } }, 2],
    [{ a: { $not: 1 } }, 2],
    [{ a: { $elemMatch: 1 } }, 2],
    [{ a: { $all: 1 } }, 2],
    [{ a: { $bitsAllSet: -1 } }, 9],
    [{ $expr: { $nonsense: 1 } }, 168],
    [{ $expr: '$$unknown' }, 17276],
    [{ $text: { $search: 'x' } }, 27],
    [{ $jsonSchema: { nonsense: 1 } }, 9],
    [{ $sampleRate: 2 }, 2],
];
for (const [filter, code] of BAD_FILTERS) {
    test(`${JSON.stringify(filter)} is refused with ${code}`, () =>
        fails(withoutIndex().find(filter).toArray(), code));
}

for (const filter of [
    { $where: '1' },
    { a: { $near: [0, 0] } },
    { a: { $geoWithin: {} } },
]) {
    test(`${JSON.stringify(filter)} is out of scope and refused by name`, () =>
        fails(withoutIndex().find(filter).toArray(), 238, {
            name: 'NotImplemented',
            message: /\$(where|near|geoWithin)/,
        }));
}
