/*
 * $jsonSchema in filters and validators, and what a client is told when a document fails.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Int32 } from 'mongodb';
import { fails, sortedIds } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer();

const STUDENTS = {
    $jsonSchema: {
        bsonType: 'object',
        title: 'Student Object Validation',
        required: ['name', 'year'],
        properties: {
            name: { bsonType: 'string', description: "'name' must be a string and is required" },
            year: { bsonType: 'int', minimum: 2017, maximum: 3017 },
            address: { bsonType: 'object', required: ['city'] },
        },
    },
};

const detailsOf = (error) => error.errInfo?.details ?? error.writeErrors[0].err.errInfo.details;

test('$jsonSchema finds fitting documents in find and $match', async () => {
    const c = await node.collection([
        { _id: 1, a: 1, tags: ['x'] },
        { _id: 2, a: 'text' },
        { _id: 3, tags: ['x', 'x'] },
    ]);
    const schema = (s) => c.find({ $jsonSchema: s }).toArray();
    assert.deepEqual(sortedIds(await schema({ required: ['a'] })), [1, 2]);
    assert.deepEqual(sortedIds(await schema({ properties: { a: { type: 'number' } } })), [1, 3]);
    assert.deepEqual(sortedIds(await schema({ properties: { tags: { uniqueItems: true } } })), [1, 2]);
    const nor = await c.find({ $nor: [{ $jsonSchema: { required: ['a'] } }] }).toArray();
    assert.deepEqual(sortedIds(nor), [3]);
    const both = await c
        .aggregate([{ $match: { $jsonSchema: { required: ['a'] }, _id: { $gt: 1 } } }])
        .toArray();
    assert.deepEqual(sortedIds(both), [2]);
    const projected = await c
        .aggregate([{ $project: { b: '$a' } }, { $match: { $jsonSchema: { required: ['b'] } } }])
        .toArray();
    assert.deepEqual(sortedIds(projected), [1, 2], 'a schema sees the document of its stage');
    await fails(schema({ nonsense: 1 }), 9, { message: /Unknown \$jsonSchema keyword: nonsense/ });
    await fails(schema({ format: 'email' }), 9);
    await fails(schema(1), 14);
});

test('validators tell which rules of a schema are broken', async () => {
    const c = await node.collection([], { validator: STUDENTS });
    await c.insertOne({ name: 'Ann', year: new Int32(2020) });
    const error = await fails(
        c.insertOne({ _id: 7, name: 5, year: new Int32(2000), address: { street: 'x' } }),
        121,
        { message: /Document failed validation/ },
    );
    assert.equal(error.errInfo.failingDocumentId, 7);
    assert.deepEqual(error.errInfo.details, {
        operatorName: '$jsonSchema',
        title: 'Student Object Validation',
        schemaRulesNotSatisfied: [
            {
                operatorName: 'properties',
                propertiesNotSatisfied: [
                    {
                        propertyName: 'name',
                        description: "'name' must be a string and is required",
                        details: [
                            {
                                operatorName: 'bsonType',
                                specifiedAs: { bsonType: 'string' },
                                reason: 'type did not match',
                                consideredValue: 5,
                                consideredType: 'int',
                            },
                        ],
                    },
                    {
                        propertyName: 'year',
                        details: [
                            {
                                operatorName: 'minimum',
                                specifiedAs: { minimum: 2017 },
                                reason: 'comparison failed',
                                consideredValue: 2000,
                            },
                        ],
                    },
                    {
                        propertyName: 'address',
                        details: [
                            {
                                operatorName: 'required',
                                specifiedAs: { required: ['city'] },
                                missingProperties: ['city'],
                            },
                        ],
                    },
                ],
            },
        ],
    });
    await fails(c.updateOne({ name: 'Ann' }, { $unset: { year: 1 } }), 121);
    await fails(c.replaceOne({ name: 'Ann' }, { name: 'Ann' }), 121);
    await fails(c.findOneAndUpdate({ name: 'Ann' }, { $set: { year: 'x' } }), 121);
    await fails(c.updateOne({ name: 'Bob' }, { $set: { x: 1 } }, { upsert: true }), 121);
});

test('validators may be any filter, with $expr and the collation of the collection', async () => {
    const c = await node.collection([], {
        validator: { $expr: { $eq: ['$total', { $add: ['$a', '$b'] }] }, kind: { $in: ['x', 'y'] } },
        collation: { locale: 'en', strength: 2 },
    });
    await c.insertOne({ a: 1, b: 2, total: 3, kind: 'X' });
    const error = await fails(c.insertOne({ _id: 1, a: 1, b: 2, total: 4, kind: 'z' }), 121);
    assert.deepEqual(detailsOf(error), {
        operatorName: '$and',
        clausesNotSatisfied: [
            {
                index: 0,
                details: {
                    operatorName: '$expr',
                    specifiedAs: { $expr: { $eq: ['$total', { $add: ['$a', '$b'] }] } },
                    reason: 'expression did not match',
                    expressionResult: false,
                },
            },
            {
                index: 1,
                details: {
                    operatorName: '$in',
                    specifiedAs: { kind: { $in: ['x', 'y'] } },
                    reason: 'no matching value found in array',
                    consideredValue: 'z',
                },
            },
        ],
    });
    await fails(c.insertOne({ a: 'text', b: 2, total: 4, kind: 'x' }), 121);
});

test('every failing document of a batch is told on its own', async () => {
    const c = await node.collection([], { validator: { n: { $type: 'number' } } });
    const error = await fails(
        c.insertMany([{ _id: 1, n: 'x' }, { _id: 2, n: 1 }, { _id: 3 }], { ordered: false }),
        121,
    );
    assert.deepEqual(
        error.writeErrors.map((e) => [e.index, e.err.errInfo.failingDocumentId, e.err.errInfo.details.reason]),
        [
            [0, 1, 'type did not match'],
            [2, 3, 'field was missing'],
        ],
    );
    assert.equal(await c.countDocuments(), 1);
});

test('collMod takes a schema, and validators may not use every operator', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    const collMod = (validator) => node.db.command({ collMod: c.collectionName, validator });
    await collMod({ $jsonSchema: { required: ['b'] } });
    await fails(c.insertOne({ a: 1 }), 121);
    await collMod({});
    await c.insertOne({ a: 1 });
    await fails(collMod({ $jsonSchema: { nonsense: 1 } }), 9);
    for (const validator of [
        { $where: 'true' },
        { a: { $near: [0, 0] } },
        { a: { $nearSphere: [0, 0] } },
        { $text: { $search: 'x' } },
    ])
        await fails(collMod(validator), 2, { message: /is not allowed in this context/ });
    await fails(node.admin.createCollection('v', { validator: { a: 1 } }), 72);
    await fails(c.updateOne({ _id: 1 }, { $set: { 'x.$[e]': 1 } }, { arrayFilters: [{ e: 1, $jsonSchema: {} }] }), 2);
});

test('schemas and $expr in validators survive a restart', async () => {
    const c = await node.collection([], {
        validator: { $and: [STUDENTS, { $expr: { $gt: ['$year', 2018] } }] },
    });
    await node.server.restart();
    node.client = await node.server.client();
    node.db = node.client.db('test');
    const again = node.db.collection(c.collectionName);
    await again.insertOne({ name: 'x', year: new Int32(2019) });
    await fails(again.insertOne({ name: 'x', year: new Int32(2018) }), 121);
    await fails(again.insertOne({ name: 5, year: new Int32(2019) }), 121);
});
