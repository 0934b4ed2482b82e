/* OPS-2: mongoose works unchanged. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import mongoose from 'mongoose';
import { useServer } from '../lib/fixture.mjs';

let connection;
let User;
const node = useServer(
    {},
    {
        prepare: async ({ server }) => {
            connection = await mongoose
                .createConnection(server.uri, { dbName: 'goose' })
                .asPromise();
            const schema = new mongoose.Schema(
                {
                    name: { type: String, required: true, index: true },
                    email: { type: String, unique: true },
                    age: { type: Number, min: 0 },
                    tags: [String],
                    address: { city: String, zip: String },
                },
                { timestamps: true },
            );
            User = connection.model('User', schema);
            await User.init();
        },
        clean: () => connection?.close(),
    },
);

test('OPS-2: a schema makes its collection and indexes', async () => {
    const indexes = await User.collection.indexes();
    assert.deepEqual(indexes.map(({ name, unique }) => [name, unique === true]).sort(), [
        ['_id_', false],
        ['email_1', true],
        ['name_1', false],
    ]);
});

test('OPS-2: documents are saved, found, changed and removed', async () => {
    const user = await new User({
        name: 'Ann',
        email: 'a@x',
        age: 30,
        tags: ['x'],
        address: { city: 'Bern' },
    }).save();
    assert.ok(user.createdAt instanceof Date);
    user.age = 31;
    user.tags.push('y');
    await user.save();
    const found = await User.findOne({ 'address.city': 'Bern' }).lean();
    assert.deepEqual([found.age, found.tags, found.__v], [31, ['x', 'y'], 1]);
    await User.updateOne({ _id: user._id }, { $inc: { age: 1 } });
    assert.equal((await User.findById(user._id)).age, 32);
    assert.equal((await User.findByIdAndDelete(user._id)).name, 'Ann');
    assert.equal(await User.countDocuments(), 0);
});

test('OPS-2: queries with chained conditions, sort, select, limit and cursor', async () => {
    await User.insertMany([1, 2, 3, 4, 5].map((n) => ({ name: `n${n}`, email: `e${n}`, age: n })));
    const found = await User.find()
        .where('age')
        .gte(2)
        .lte(4)
        .sort('-age')
        .select('name -_id')
        .limit(2)
        .lean();
    assert.deepEqual(found, [{ name: 'n4' }, { name: 'n3' }]);
    const seen = [];
    for await (const user of User.find().sort('age').cursor({ batchSize: 2 })) seen.push(user.age);
    assert.deepEqual(seen, [1, 2, 3, 4, 5]);
    const [{ total }] = await User.aggregate([{ $group: { _id: null, total: { $sum: '$age' } } }]);
    assert.equal(total, 15);
    assert.deepEqual((await User.distinct('age')).sort(), [1, 2, 3, 4, 5]);
    assert.equal(await User.exists({ age: 99 }), null);
    await User.deleteMany({});
});

test('OPS-2: upserts, bulk writes and findOneAndUpdate', async () => {
    const made = await User.findOneAndUpdate(
        { email: 'u@x' },
        { name: 'U', age: 1 },
        { upsert: true, returnDocument: 'after' },
    );
    assert.equal(made.name, 'U');
    const result = await User.bulkWrite([
        { insertOne: { document: { name: 'B', email: 'b@x' } } },
        { updateOne: { filter: { email: 'u@x' }, update: { $set: { age: 2 } } } },
        { deleteOne: { filter: { email: 'b@x' } } },
    ]);
    assert.deepEqual([result.insertedCount, result.modifiedCount, result.deletedCount], [1, 1, 1]);
    await User.deleteMany({});
});

test('OPS-2: a unique index refuses the second document with code 11000', async () => {
    await User.create({ name: 'One', email: 'same' });
    await assert.rejects(User.create({ name: 'Two', email: 'same' }), (error) => {
        assert.equal(error.code, 11000);
        assert.deepEqual(error.keyValue, { email: 'same' });
        return true;
    });
    await User.deleteMany({});
});

test('OPS-2: transactions are refused cleanly and the connection goes on', async () => {
    await assert.rejects(
        connection.transaction(async (session) => {
            await User.create([{ name: 'T', email: 't@x' }], { session });
        }),
        /Transaction numbers are only allowed|does not support retryable writes/,
    );
    assert.equal(await User.countDocuments(), 0);
    assert.equal((await node.admin.command({ ping: 1 })).ok, 1);
});
