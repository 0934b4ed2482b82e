/*
 * The language of expressions, filters and stages against mingo, an independent implementation for
 * JavaScript. Goal: the same results for thousands of generated inputs. Method: expressions run
 * over all documents of a collection, in Sherd by one aggregate each; where results differ, the
 * innermost part that differs by itself is looked for, and either DIFFERENCES knows why mingo is
 * wrong there, or the test fails and shows that part. TEST_SEED chooses other inputs.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import * as mingo from 'mingo';
import { random } from '../lib/expect.mjs';
import { IS_ROUTED, useServer } from '../lib/fixture.mjs';
import * as expressionOperators from 'mingo/operators/expression';
import {
    Expressions,
    OPERATORS,
    makeDocument,
    makeFilter,
    makePipeline,
} from '../lib/generate.mjs';

const SEED = Number(process.env.TEST_SEED ?? 1);
const DOCUMENT_COUNT = 16;
const EXPRESSION_COUNT = 1600;
const FILTER_COUNT = 1000;
const PIPELINE_COUNT = 800;

const isNull = (value) => value === null || value === undefined;
const isObject = (value) => !isNull(value) && typeof value === 'object' && !(value instanceof Date);
/* Null or missing itself, or holds such a value at any depth. */
const hasNull = (value) => isNull(value) || (isObject(value) && Object.values(value).some(hasNull));
const isTextBeyondAscii = (value) => /[^\x00-\x7f]/.test(String(value));

/*
 * Where mingo differs from MongoDB 7.0: operators, when (args: the arguments evaluated; argument:
 * as written; ours, theirs: the results), and why.
 */
const DIFFERENCES = [
    {
        operators: ['$gt', '$gte', '$lt', '$lte', '$eq', '$ne', '$in', '$indexOfArray', '$cmp'],
        when: ({ args }) => hasNull(args),
        why: 'missing is null, and neither is less than other values',
    },
    {
        operators: [
            '$setUnion',
            '$setIntersection',
            '$setDifference',
            '$setEquals',
            '$setIsSubset',
        ],
        when: ({ args }) => hasNull(args),
        why: 'null and missing are different members',
    },
    {
        operators: ['$sortArray', '$minN', '$maxN'],
        when: ({ args }) => hasNull(args),
        why: 'missing members are sorted apart from null, to the end',
    },
    {
        operators: ['$objectToArray', '$setField', '$mergeObjects'],
        when: ({ args, argument }) => hasNull(args) || hasNull(argument) || isObject(argument),
        why: 'members that are missing become members that are undefined',
    },
    {
        operators: ['$min', '$max', '$stdDevPop', '$stdDevSamp', '$avg'],
        when: ({ args }) => hasNull(args) || args.length < 2,
        why: 'null is not skipped, and of nothing the deviation is NaN instead of null',
    },
    {
        operators: ['$dateAdd', '$dateSubtract'],
        when: ({ args }) => isNull(args?.startDate) || /month|quarter|year/.test(args.unit),
        why: 'null counts as 1970; days that the month lacks become days of the next',
    },
    {
        operators: ['$dateDiff'],
        when: ({ args, ours, theirs }) =>
            isNull(args?.startDate) || isNull(args.endDate) || Math.abs(ours - theirs) === 1,
        why: 'NaN instead of null; differences are rounded instead of counted by boundaries',
    },
    {
        operators: ['$dateToParts', '$dateTrunc'],
        when: ({ args }) => isNull(args?.date),
        why: 'NaN instead of null',
    },
    {
        operators: ['$dateTrunc', '$dateFromParts'],
        when: ({ args }) => args?.timezone !== undefined,
        why: 'loses the minutes of time zones; days and bins begin in UTC',
    },
    {
        operators: ['$indexOfBytes'],
        when: ({ args }) => isTextBeyondAscii(args[0]),
        why: 'counts code units instead of bytes',
    },
    {
        operators: ['$toLower', '$toUpper'],
        when: ({ args }) => isNull(args) || isTextBeyondAscii(args),
        why: "null instead of ''; MongoDB changes the case of ASCII letters only",
    },
    {
        operators: ['$dateFromParts'],
        when: ({ args }) =>
            'isoWeekYear' in args || args.day > 28 || args.day < 1 || args.hour > 23,
        why: 'has no ISO weeks, and days and hours beyond the month go astray',
    },
    {
        operators: ['$week', '$isoWeekYear', '$isoWeek', '$dateToParts'],
        when: ({ operator, args }) => operator !== '$dateToParts' || args?.iso8601 === true,
        why: 'weeks begin with that of January 1st, which is always of its own year',
    },
    {
        operators: ['$dateToString'],
        when: ({ argument }) => /%[wU%]/.test(argument.format),
        why: '%w begins with 0, %U is as $week, and %% is dropped',
    },
    {
        operators: ['$round', '$trunc'],
        when: ({ args }) => Array.isArray(args),
        why: 'digits are judged after a multiplication, tens are cut off, and $trunc rounds',
    },
    {
        operators: ['$getField'],
        when: ({ args }) => isNull(args?.input),
        why: 'an input that is missing is the whole document',
    },
    { operators: ['$percentile', '$median'], when: () => true, why: 'sorts numbers by their text' },
    {
        operators: ['$type'],
        when: ({ ours, argument }) =>
            ['double', 'long', 'decimal', 'null'].includes(ours) || Array.isArray(argument),
        why: 'numbers are ints or doubles, null may be missing, a list of one argument an array',
    },
    {
        operators: ['$convert'],
        when: ({ args }) => args.input === '' || isObject(args.input) || args.input instanceof Date,
        why: "the text '' is the number 0, an array is its member, and dates become ints",
    },
    {
        operators: ['$zip'],
        when: ({ args }) => args.inputs.some((input) => isNull(input) || input.length === 0),
        why: 'empty inputs do not end the shortest',
    },
];
/* The same of filters: path, test (the condition), document, ours, theirs. */
const uses = (test, ...names) =>
    isObject(test) && operatorsIn(test).some((name) => names.includes(name));
const FILTER_DIFFERENCES = [
    {
        when: ({ test, value }) =>
            uses(test, '$bitsAllSet', '$bitsAnySet', '$bitsAllClear', '$bitsAnyClear', '$mod') &&
            !Number.isInteger(value),
        why: 'text, dates, fractions and null become integers; arrays are not looked into',
    },
    {
        when: ({ test, path, value }) =>
            (/^items\./.test(path) || Array.isArray(value)) &&
            uses(test, '$size', '$type', '$elemMatch'),
        why: 'values along a path through an array count as an array, whose members are not asked',
    },
    {
        when: ({ test }) => JSON.stringify(test).includes('[1]'),
        why: 'an array as operand meets the values along a path, and no array inside $in',
    },
    {
        when: ({ test }) => /"\$(gte?|lte?)":(\[|null)/.test(JSON.stringify(test)),
        why: 'arrays are not compared as a whole, and missing is not null for them',
    },
    {
        when: ({ test, value }) =>
            uses(test, '$all') && (!Array.isArray(value) || '$elemMatch' in test),
        why: '$all does not match a value that is no array',
    },
];

/* The same of stages, by what they were given and the results. */
/* Without what is null or empty, at any depth. */
function withoutNull(value) {
    if (!isObject(value) || value._bsontype !== undefined) return value;
    const members = Object.entries(value)
        .map(([name, member]) => [name, withoutNull(member)])
        .filter(([, member]) => !isNull(member));
    if (members.length === 0) return null;
    return Array.isArray(value) ? members.map(([, member]) => member) : Object.fromEntries(members);
}
const isSubset = (ours, theirs) => {
    const texts = new Set(theirs.map(canonical));
    return ours.every((result) => texts.has(canonical(result)));
};
const STAGE_DIFFERENCES = [
    {
        stages: ['$lookup'],
        when: ({ localField, foreignField }) => localField === 'ns' || foreignField === 'many',
        why: 'arrays are not looked into, or give empty places',
    },
    {
        stages: ['$bucket'],
        when: (spec, { ours, theirs }) => isSubset(ours, theirs),
        why: 'empty buckets are shown',
    },
    {
        stages: ['$group', '$bucket'],
        when: (spec) => uses(spec, '$top', '$bottom', '$stdDevPop', '$stdDevSamp', '$min', '$max'),
        why: '$top and $bottom give a list, deviations of too few NaN or 0; null is not skipped',
    },
    {
        stages: ['$group', '$bucket'],
        when: (spec, { ours, theirs }) =>
            uses(spec, '$push', '$addToSet') &&
            isSubset(ours.map(withoutNull), theirs.map(withoutNull)),
        why: 'what is missing counts as null',
    },
    {
        stages: ['$group', '$bucket'],
        when: (spec) =>
            uses(spec, '$mergeObjects') ||
            /:\{"\$\w+":(null|\{[^}]*null)/.test(JSON.stringify(spec)),
        why: '$mergeObjects takes paths only, and null as input is the whole document',
    },
    {
        stages: ['$unwind'],
        when: (spec, { ours, theirs }) => isSubset(theirs, ours),
        why: "'', 0 and false count as nothing",
    },
    {
        stages: ['$setWindowFields'],
        when: ({ output }) => uses(output, '$push', '$min', '$max', '$stdDevPop', '$stdDevSamp'),
        why: 'what is missing counts as null',
    },
    {
        stages: ['$setWindowFields'],
        when: ({ output }) => Object.values(output).some((w) => w.$shift?.default !== undefined),
        why: 'a document that lacks the field has no default',
    },
    {
        stages: ['$redact'],
        when: (spec, { ours }) =>
            JSON.stringify(spec).includes('$$PRUNE') ||
            ours.some(({ w0, w1 }) => hasNull([w0, w1])),
        why: 'documents that are pruned become null, and null in arrays is dropped',
    },
    {
        stages: ['$addFields', '$project'],
        when: (spec, { ours, theirs }) => isSubset(ours.map(withoutNull), theirs.map(withoutNull)),
        why: 'null that comes of something missing is not set, nor what would hold it',
    },
    { stages: ['$count'], when: (spec, { ours }) => ours.length === 0, why: 'counts nothing as 0' },
];

/* Decimals are not numbers for mingo when it meets them again. */
const isReliable = (operator) =>
    operator !== '$toDecimal' && !DIFFERENCES.some(({ operators }) => operators.includes(operator));

const DOCUMENTS = Array.from({ length: DOCUMENT_COUNT }, (_, _id) =>
    makeDocument(random(SEED * 1000 + _id), _id),
);
const OTHERS = Array.from({ length: 12 }, (_, _id) => ({ _id, n: _id - 5, many: [_id, -_id] }));

let collection;
const node = useServer(
    {},
    {
        prepare: async ({ db }) => {
            collection = db.collection('c');
            await collection.insertMany(DOCUMENTS);
            await db.collection('other').insertMany(OTHERS);
        },
    },
);

const MINGO_OPTIONS = {
    processingMode: mingo.ProcessingMode.CLONE_INPUT,
    collectionResolver: (name) => ({ other: OTHERS, c: DOCUMENTS })[name],
};

/* {value} or {error}. */
function outcome(run) {
    try {
        return { value: run() };
    } catch (error) {
        return { error };
    }
}
const mingoRun = (documents, pipeline) =>
    outcome(() => mingo.aggregate(documents, pipeline, MINGO_OPTIONS));
/* The order of a scan is that of the ids, also where documents are on several shards. */
const ORDERED = IS_ROUTED ? [{ $sort: { _id: 1 } }] : [];
const sherdRun = (pipeline) =>
    collection
        .aggregate([...ORDERED, ...pipeline])
        .toArray()
        .then((value) => ({ value }))
        .catch((error) => {
            if (error.code === undefined) throw error;
            return { error };
        });

/* A text that is the same for equal results: numbers to 10 digits, no missing fields. */
function canonical(value) {
    if (value === null || value === undefined) return 'null';
    if (
        typeof value === 'number' ||
        value._bsontype === 'Long' ||
        value._bsontype === 'Decimal128'
    ) {
        const number = Number(value.toString());
        return String(Math.abs(number) < 1e-12 ? 0 : Number(number.toPrecision(10)));
    }
    if (value instanceof Date) return `date ${value.getTime()}`;
    if (value._bsontype !== undefined) return `${value._bsontype} ${value}`;
    if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
    if (typeof value !== 'object') return JSON.stringify(value);
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${members
        .map(([name, member]) => `${name}:${canonical(member)}`)
        .sort()
        .join()}}`;
}

/* ---- expressions ---- */

const asPipeline = (expression) => [{ $replaceWith: { _id: '$_id', v: expression } }];

/* Outcomes per document, in order. */
async function sherdValues(expression) {
    const all = await sherdRun(asPipeline(expression));
    if (all.error === undefined) return all.value.map(({ v }) => ({ value: v }));
    const values = [];
    for (const { _id } of DOCUMENTS) {
        const { value, error } = await sherdRun([{ $match: { _id } }, ...asPipeline(expression)]);
        values.push(error === undefined ? { value: value[0].v } : { error });
    }
    return values;
}
function mingoValues(expression) {
    const all = mingoRun(DOCUMENTS, asPipeline(expression));
    if (all.error === undefined) return all.value.map(({ v }) => ({ value: v }));
    return DOCUMENTS.map((document) => {
        const { value, error } = mingoRun([document], asPipeline(expression));
        return error === undefined ? { value: value[0].v } : { error };
    });
}
/* Sets have no order. */
function isSame(ours, theirs, operator) {
    if (theirs.error !== undefined) return false;
    const isSet = ['$setUnion', '$setIntersection', '$setDifference'].includes(operator);
    const [mine, other] = [ours.value, theirs.value].map((value) =>
        isSet && Array.isArray(value) ? value.map(canonical).sort() : value,
    );
    return canonical(mine) === canonical(other);
}

const operatorOf = (value) => {
    const isPlain = value !== null && typeof value === 'object' && !(value instanceof Date);
    const [name] = isPlain && !Array.isArray(value) ? Object.keys(value) : [];
    return name?.startsWith('$') ? name : undefined;
};
const operatorsIn = (value) =>
    isObject(value) ? [operatorOf(value), ...Object.values(value).flatMap(operatorsIn)] : [];

/* Compares; returns how many pairs were compared. */
async function compareExpression(expression, problems) {
    const ours = await sherdValues(expression);
    const theirs = mingoValues(expression);
    let compared = 0;
    const known = new Map(); // what either makes of parts of this expression
    for (let i = 0; i < ours.length; i++) {
        if (ours[i].error !== undefined || theirs[i].error !== undefined) continue;
        compared++;
        if (isSame(ours[i], theirs[i])) continue;
        const found = [];
        await repair(expression, i, known, found);
        if (found.length > 0)
            problems.push({ ...found[0], document: DOCUMENTS[i]._id, expression });
    }
    return compared;
}

async function valueOf(evaluate, part, at, known) {
    const key = `${evaluate.name} ${canonical(part)}`;
    if (!known.has(key)) known.set(key, await evaluate(part));
    return known.get(key)[at];
}

/*
 * The expression with all parts that mingo is known to get wrong replaced by their right values,
 * from the inside out. A part that differs though its own parts are right goes to `found`.
 */
async function repair(value, at, known, found) {
    if (value === null || typeof value !== 'object' || value instanceof Date) return value;
    const operator = operatorOf(value);
    if (operator === '$literal') return value;
    const members = [];
    for (const [name, member] of Object.entries(value))
        members.push([name, await repair(member, at, known, found)]);
    const repaired = Array.isArray(value)
        ? members.map(([, member]) => member)
        : Object.fromEntries(members);
    if (operator === undefined || !isClosed(value)) return repaired;
    const ours = await valueOf(sherdValues, value, at, known);
    const theirs = await valueOf(mingoValues, repaired, at, known);
    if (ours.error !== undefined || theirs.error !== undefined || isSame(ours, theirs, operator))
        return repaired;
    const right = ours.value === undefined ? '$missing' : { $literal: ours.value };
    const argument = value[operator];
    const evaluated = isClosed(argument) && (await valueOf(sherdValues, argument, at, known));
    const args = evaluated?.value ?? null;
    const seen = { operator, argument, args, ours: ours.value, theirs: theirs.value };
    const reason = DIFFERENCES.find(
        ({ operators, when }) => operators.includes(operator) && when(seen),
    );
    if (reason === undefined) found.push(seen);
    else reason.seen = true;
    return right;
}

/* Can it be evaluated by itself? */
const isClosed = (value) => !/"\$\$(e|this|value|p)\b/.test(JSON.stringify(freed(value)) ?? '');

/* Without the parts that bind the variables they use. */
function freed(value) {
    if (value === null || typeof value !== 'object' || value instanceof Date) return value;
    const operator = operatorOf(value);
    if (['$map', '$filter', '$reduce', '$let'].includes(operator)) {
        const { input, vars, initialValue } = value[operator];
        return freed([input ?? null, vars ?? null, initialValue ?? null]);
    }
    return Object.values(value).map(freed);
}

function report(problems, what) {
    const byOperator = new Map();
    for (const problem of problems)
        if (!byOperator.has(problem.operator)) byOperator.set(problem.operator, problem);
    const shown = [...byOperator.values()].map((problem) => inspect(problem, { depth: 12 }));
    const text = `seed ${SEED}, ${what}: ${problems.length} differences\n${shown.join('\n')}`;
    assert.equal(problems.length, 0, text);
}

let used; // operators that were generated
test('expressions give what mingo gives', async () => {
    const rand = random(SEED);
    const expressions = new Expressions(rand, { simple: isReliable });
    const problems = [];
    let compared = 0;
    used = new Set();
    // Each operator by itself first, then whatever comes.
    const rows = Object.values(OPERATORS).flat();
    for (let i = 0; i < EXPRESSION_COUNT; i++) {
        const [operator, maker] = rows[i % rows.length];
        const expression = expressions.apply(operator, maker, 1 + rand.below(3));
        compared += await compareExpression(expression, problems);
        operatorsIn(expression).forEach((name) => used.add(name));
    }
    report(problems, 'expressions');
    const share = compared / (EXPRESSION_COUNT * DOCUMENT_COUNT);
    assert.ok(share > 0.8, `only ${share} of the pairs have a result on both sides`);
});

test('every expression operator of mingo is among them', () => {
    const theirs = Object.keys(expressionOperators).filter((name) => name.startsWith('$'));
    assert.deepEqual(
        theirs.filter((operator) => !used.has(operator)),
        // Chance, JavaScript, what 7.0 has not, and a hash of mingo's own.
        ['$function', '$rand', '$sampleRate', '$sigmoid', '$toHashedIndexKey'],
    );
});

/* ---- filters and pipelines ---- */

/* The conditions on one path each that a filter is made of. */
function conditions(filter) {
    const [[name, value]] = Object.entries(filter);
    return ['$and', '$or', '$nor'].includes(name) ? value.flatMap(conditions) : [filter];
}

const matches = (filter, document) =>
    outcome(() => new mingo.Query(filter, MINGO_OPTIONS).test(document));

/* null, or the first condition that differs without a known reason. */
async function findWrongCondition(filter) {
    let isExcused = false;
    for (const condition of conditions(filter)) {
        const ours = await sherdRun([{ $match: condition }]);
        if (ours.error !== undefined) continue;
        const found = new Set(ours.value.map(({ _id }) => _id));
        for (const document of DOCUMENTS) {
            const theirs = matches(condition, document).value;
            if (theirs === undefined || theirs === found.has(document._id)) continue;
            const [[path, test]] = Object.entries(condition);
            const seen = { path, test, value: document[path], ours: !theirs, theirs, document };
            if (!FILTER_DIFFERENCES.some(({ when }) => when(seen))) return seen;
            isExcused = true;
        }
    }
    return isExcused ? null : { path: 'combination' };
}

test('filters find what mingo finds', async () => {
    const rand = random(SEED + 1);
    const expressions = new Expressions(rand, { simple: isReliable, isSimple: true });
    const problems = [];
    for (let i = 0; i < FILTER_COUNT; i++) {
        const filter = makeFilter(rand, expressions);
        const ours = await sherdRun([{ $match: filter }]);
        const theirs = mingoRun(DOCUMENTS, [{ $match: filter }]);
        if (ours.error !== undefined || theirs.error !== undefined) continue;
        if (canonical(ours.value) === canonical(theirs.value)) continue;
        const wrong = await findWrongCondition(filter);
        if (wrong !== null)
            problems.push({ operator: canonical(operatorsIn(wrong.test)), filter, ...wrong });
    }
    report(problems, 'filters');
});

/* The results of a pipeline as texts, in any order: few stages promise one. */
const asTexts = (results) => results.map(canonical).sort();

test('pipelines give what mingo gives', async () => {
    const rand = random(SEED + 2);
    const expressions = new Expressions(rand, { simple: isReliable, isSimple: true });
    const problems = [];
    let compared = 0;
    for (let i = 0; i < PIPELINE_COUNT; i++) {
        const pipeline = makePipeline(rand, expressions);
        // Stage by stage, so that a difference is that of the last one; it takes what Sherd made.
        let input = DOCUMENTS;
        for (let length = 1; length <= pipeline.length; length++) {
            const ours = await sherdRun(pipeline.slice(0, length));
            const theirs = mingoRun(input, pipeline.slice(length - 1, length));
            if (ours.error !== undefined) break;
            input = ours.value;
            if (theirs.error !== undefined) continue;
            compared++;
            const [mine, other] = [ours.value, theirs.value].map(asTexts);
            if (canonical(mine) === canonical(other)) continue;
            const [[operator, spec]] = Object.entries(pipeline[length - 1]);
            const seen = { ours: ours.value, theirs: theirs.value };
            if (
                STAGE_DIFFERENCES.some(
                    ({ stages, when }) => stages.includes(operator) && when(spec, seen),
                )
            )
                continue;
            problems.push({
                operator: `${operator} ${[...new Set(operatorsIn(spec))]}`,
                pipeline,
                sherd: mine.filter((text) => !other.includes(text)).slice(0, 2),
                mingo: other.filter((text) => !mine.includes(text)).slice(0, 2),
            });
        }
    }
    report(problems, 'pipelines');
    assert.ok(compared > PIPELINE_COUNT, `only ${compared} stages were compared`);
});
