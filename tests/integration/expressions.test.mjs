/* Expressions and window stages through the driver: a table of expressions, evaluated by $project
 * on one document, and of pipelines over a small series. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Decimal128, Long } from 'mongodb';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();

const DOC = {
    _id: 1,
    date: new Date('2021-03-28T00:30:00.123Z'),
    text: 'été 42',
    list: [5, 1, 3],
    object: { 'a.b': 1, $c: 2 },
    half: 0.5,
};

const EXPRESSIONS = [
    ['$hour in a zone', { $hour: { date: '$date', timezone: 'Europe/Berlin' } }, 1],
    [
        '$dateToString in a zone',
        {
            $dateToString: {
                date: '$date',
                timezone: 'America/New_York',
                format: '%Y-%m-%d %H:%M %z',
            },
        },
        '2021-03-27 20:30 -0400',
    ],
    [
        '$dateAdd over the change to summer time',
        { $dateAdd: { startDate: '$date', unit: 'day', amount: 1, timezone: 'Europe/Berlin' } },
        new Date('2021-03-28T23:30:00.123Z'),
    ],
    [
        '$dateDiff',
        { $dateDiff: { startDate: '$date', endDate: new Date('2021-05-01'), unit: 'week' } },
        4,
    ],
    [
        '$dateTrunc',
        { $dateTrunc: { date: '$date', unit: 'minute', binSize: 20 } },
        new Date('2021-03-28T00:20:00Z'),
    ],
    [
        '$dateFromParts',
        { $dateFromParts: { year: 2021, month: 14, day: 1, timezone: '+01:00' } },
        new Date('2022-01-31T23:00:00Z'),
    ],
    [
        '$dateToParts',
        { $dateToParts: { date: '$date', iso8601: true } },
        {
            isoWeekYear: 2021,
            isoWeek: 12,
            isoDayOfWeek: 7,
            hour: 0,
            minute: 30,
            second: 0,
            millisecond: 123,
        },
    ],
    [
        '$dateFromString with a format',
        { $dateFromString: { dateString: '28.3.2021', format: '%d.%m.%Y' } },
        new Date('2021-03-28'),
    ],
    [
        '$dateFromString with onError',
        { $dateFromString: { dateString: 'soon', onError: 'never' } },
        'never',
    ],
    [
        '$regexFind counts code points',
        { $regexFind: { input: '$text', regex: /(\d)(\d)/ } },
        { match: '42', idx: 4, captures: ['4', '2'] },
    ],
    ['$regexMatch', { $regexMatch: { input: '$text', regex: 'ÉTÉ', options: 'i' } }, true],
    [
        '$regexFindAll',
        { $map: { input: { $regexFindAll: { input: '$text', regex: 't.' } }, in: '$$this.match' } },
        ['té'],
    ],
    ['$maxN', { $maxN: { n: 2, input: '$list' } }, [5, 3]],
    ['$lastN', { $lastN: { n: 2, input: '$list' } }, [1, 3]],
    ['$stdDevPop', { $stdDevPop: [2, 4] }, 1],
    ['$median', { $median: { input: '$list', method: 'approximate' } }, 3],
    [
        '$percentile',
        { $percentile: { input: '$list', p: [0.1, 0.9], method: 'approximate' } },
        [1, 5],
    ],
    ['$getField of a name with a dot', { $getField: { field: 'a.b', input: '$object' } }, 1],
    [
        '$setField of a name with a dollar sign',
        { $setField: { field: { $literal: '$c' }, input: '$object', value: 3 } },
        { 'a.b': 1, $c: 3 },
    ],
    ['$toHashedIndexKey', { $toString: { $toHashedIndexKey: 1 } }, '5902408780260971510'],
    [
        '$sin of a decimal',
        { $toString: { $round: [{ $sin: Decimal128.fromString('1') }, 5] } },
        '0.84147',
    ],
    ['$bitXor', { $bitXor: [6, 3] }, 5],
    ['$sortArray', { $sortArray: { input: '$list', sortBy: -1 } }, [5, 3, 1]],
    [
        '$reduce',
        { $reduce: { input: '$list', initialValue: 0, in: { $add: ['$$value', '$$this'] } } },
        9,
    ],
];

const ERRORS = [
    ['an unknown zone', { $hour: { date: '$date', timezone: 'Nowhere' } }, 40485],
    ['a bad unit', { $dateAdd: { startDate: '$date', unit: 'eon', amount: 1 } }, 9],
    ['a bad date', { $dateFromString: { dateString: 'soon' } }, 241],
    ['a bad regular expression', { $regexMatch: { input: '$text', regex: '(' } }, 51111],
    ['n of 0', { $firstN: { n: 0, input: '$list' } }, 5787908],
];

const SERIES = [
    { _id: 1, k: 'a', t: new Date('2021-01-01'), v: 1 },
    { _id: 2, k: 'a', t: new Date('2021-01-02'), v: 4 },
    { _id: 3, k: 'a', t: new Date('2021-01-04'), v: 9 },
    { _id: 4, k: 'b', t: new Date('2021-01-01'), v: 16 },
];

const window = (output) => ({
    $setWindowFields: { partitionBy: '$k', sortBy: { t: 1 }, output: { r: output } },
});

const WINDOWS = [
    [
        'a running total',
        { $sum: '$v', window: { documents: ['unbounded', 'current'] } },
        [1, 5, 14, 16],
    ],
    [
        'a range of days',
        { $sum: '$v', window: { range: [-1, 'current'], unit: 'day' } },
        [1, 5, 9, 16],
    ],
    ['$rank', { $rank: {} }, [1, 2, 3, 1]],
    ['$shift', { $shift: { output: '$v', by: -1, default: 0 } }, [0, 1, 4, 0]],
    [
        '$derivative',
        { $derivative: { input: '$v', unit: 'day' }, window: { documents: [-1, 0] } },
        [null, 3, 2.5, null],
    ],
    ['$expMovingAvg', { $expMovingAvg: { input: '$v', alpha: 0.5 } }, [1, 2.5, 5.75, 16]],
];

test('a cluster time that is not there is refused', async () => {
    const c = await node.collection([DOC]);
    await fails(c.aggregate([{ $project: { r: '$$CLUSTER_TIME' } }]).toArray(), 51144);
});

test('expressions give what they should', async (t) => {
    const c = await node.collection([DOC]);
    for (const [name, expression, expected] of EXPRESSIONS)
        await t.test(name, async () => {
            const [doc] = await c.aggregate([{ $project: { _id: 0, r: expression } }]).toArray();
            assert.deepEqual(doc.r, expected);
        });
    for (const [name, expression, code] of ERRORS)
        await t.test(`${name} is refused`, () =>
            fails(c.aggregate([{ $project: { r: expression } }]).toArray(), code),
        );
});

test('expressions filter through $expr', async () => {
    const c = await node.collection(SERIES);
    const noon = new Date('2021-01-01T12:00:00Z');
    const found = await c
        .find({ $expr: { $eq: ['$t', { $dateTrunc: { date: noon, unit: 'day' } }] } })
        .toArray();
    assert.deepEqual(
        found.map((doc) => doc._id),
        [1, 4],
    );
});

test('windows', async (t) => {
    const c = await node.collection(SERIES);
    for (const [name, output, expected] of WINDOWS)
        await t.test(name, async () => {
            const docs = await c
                .aggregate([window(output), { $sort: { _id: 1 } }])
                .toArray();
            assert.deepEqual(
                docs.map((doc) => doc.r),
                expected,
            );
        });
    await t.test('$densify and $fill make a complete series', async () => {
        const docs = await c
            .aggregate([
                { $match: { k: 'a' } },
                { $densify: { field: 't', range: { step: 1, unit: 'day', bounds: 'full' } } },
                {
                    $fill: {
                        sortBy: { t: 1 },
                        output: { v: { method: 'linear' }, k: { value: 'new' } },
                    },
                },
                { $project: { _id: 0, k: 1, v: 1 } },
            ])
            .toArray();
        assert.deepEqual(docs, [
            { k: 'a', v: 1 },
            { k: 'a', v: 4 },
            { k: 'new', v: 6.5 },
            { k: 'a', v: 9 },
        ]);
    });
    await t.test('$group by percentile and by n of the key', async () => {
        const docs = await c
            .aggregate([
                { $sort: { _id: 1 } },
                {
                    $group: {
                        _id: { k: '$k' },
                        m: { $median: { input: '$v', method: 'approximate' } },
                        f: {
                            $firstN: {
                                input: '$v',
                                n: { $cond: [{ $eq: ['$k', 'a'] }, 2, 1] },
                            },
                        },
                    },
                },
                { $sort: { _id: 1 } },
            ])
            .toArray();
        assert.deepEqual(docs, [
            { _id: { k: 'a' }, m: 4, f: [1, 4] },
            { _id: { k: 'b' }, m: 16, f: [16] },
        ]);
    });
    await t.test('a result of many windows comes through getMore', async () => {
        await c.insertMany(
            Array.from({ length: 5000 }, (_, i) => ({
                _id: i + 100,
                k: 'm',
                t: new Date(i),
                v: 1,
            })),
        );
        const docs = await c
            .aggregate(
                [{ $match: { k: 'm' } }, window({ $sum: '$v', window: { documents: [-9, 0] } })],
                { batchSize: 100 },
            )
            .toArray();
        assert.equal(docs.length, 5000);
        assert.equal(docs[4].r, 5);
        assert.equal(docs[4999].r, 10);
        assert.ok(!Long.isLong(docs[0].r));
    });
    await t.test('windows within $facet are those without it', async () => {
        const stages = [
            { $match: { k: 'm' } },
            {
                $setWindowFields: {
                    sortBy: { t: 1 },
                    output: {
                        rank: { $rank: {} },
                        next: { $shift: { output: '$_id', by: 3 } },
                        avg: { $expMovingAvg: { input: '$_id', N: 4 } },
                        fill: { $linearFill: { $cond: [{ $mod: ['$_id', 7] }, null, '$_id'] } },
                        sum: { $sum: '$_id', window: { documents: [-2, 500] } },
                    },
                },
            },
        ];
        const plain = await c.aggregate(stages).toArray();
        assert.equal(plain.length, 5000);
        const facets = await c
            .aggregate([
                { $facet: { a: stages, b: stages.slice(0, 1) } },
                { $unwind: '$a' },
                { $replaceRoot: { newRoot: '$a' } },
            ])
            .toArray();
        assert.deepEqual(facets, plain);
    });
});

test('$reduce builds long lists and texts, whose intermediates are not kept', async () => {
    const c = await node.collection([{ _id: 1, n: 5000 }]);
    const over = (initialValue, body) => ({
        $reduce: { input: { $range: [0, '$n'] }, initialValue, in: body },
    });
    const [row] = await c
        .aggregate([
            {
                $project: {
                    list: over([], { $concatArrays: ['$$value', ['$$this']] }),
                    text: over('', { $concat: ['$$value', '0123456789abcdef'] }),
                },
            },
        ])
        .toArray();
    assert.deepEqual(row.list, [...Array(5000).keys()]);
    assert.equal(row.text, '0123456789abcdef'.repeat(5000));
});
