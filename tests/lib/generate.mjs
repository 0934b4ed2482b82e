/*
 * generate.mjs - random expressions, filters and pipelines of the aggregation language, made so
 * that most of them make sense: arguments have the type that their operator wants, or are null or
 * missing.
 * All chance comes from the generator that is passed in, so a seed repeats a run.
 */

const DAY_MS = 86_400_000;
const UNITS = ['year', 'quarter', 'month', 'week', 'day', 'hour', 'minute', 'second'];
const ZONES = ['UTC', '+02:00', '-05:30'];
const TEXTS = ['', 'a', 'abc', 'Abc', 'b c', ' x ', 'aXbXc', 'déjà', '12', '2.5', 'naïve'];

/* A document with a field of each type; any of them may be null, missing or of another type. */
export function makeDocument(rand, _id) {
    const number = () => (rand.below(3) === 0 ? rand.below(400) / 8 - 20 : rand.below(41) - 20);
    const text = () => rand.pick(TEXTS);
    const list = (make) => Array.from({ length: rand.below(5) }, make);
    const item = () => ({ k: text(), v: number() });
    const document = {
        _id,
        i: rand.below(21) - 10,
        d: number(),
        s: text(),
        t: text(),
        b: rand.below(2) === 0,
        when: new Date(Date.UTC(2015, 0, 1) + rand.below(3000) * DAY_MS + rand.below(DAY_MS)),
        ns: list(number),
        ss: list(text),
        items: list(item),
        o: { x: number(), y: text(), z: { w: number() } },
    };
    for (const name of Object.keys(document).slice(1)) {
        const chance = rand.below(24);
        if (chance === 0) document[name] = null;
        else if (chance === 1) delete document[name];
    }
    return document;
}

/* Makers of expressions by the type of their result. */
export class Expressions {
    /* `simple`: which operators are used where no part can be looked at by itself. */
    constructor(rand, { simple = () => true, isSimple = false } = {}) {
        this.rand = rand;
        this.simple = simple;
        this.isSimple = isSimple;
        this.used = new Set();
        this.variables = []; // {type, name} that may be used here
    }

    /* An expression of that type (a member of OPERATORS) with operators nested so deep. */
    make(type, depth) {
        if (depth <= 0 || this.rand.below(8) === 0) return this.#leaf(type);
        const isSimple = this.isSimple || this.variables.length > 0;
        const rows = OPERATORS[type].filter(([name]) => !isSimple || this.simple(name));
        if (rows.length === 0) return this.#leaf(type);
        const [operator, maker] = this.rand.pick(rows);
        return this.apply(operator, maker, depth);
    }

    apply(operator, maker, depth) {
        this.used.add(operator);
        const inner = (type) => this.make(type, depth - 1);
        return { [operator]: maker(inner, this.rand, this) };
    }

    /* Runs `body` with a variable of that type in reach. */
    with(variable, body) {
        this.variables.push(variable);
        try {
            return body();
        } finally {
            this.variables.pop();
        }
    }

    #leaf(type) {
        const { rand } = this;
        const own = this.variables.filter((variable) => variable.type === type);
        if (own.length > 0 && rand.below(2) === 0) return `$$${rand.pick(own).name}`;
        if (rand.below(16) === 0) return rand.pick([null, '$missing', '$o.missing']);
        return rand.pick(LEAVES[type])(rand);
    }
}

const LEAVES = {
    int: [() => '$i', (rand) => rand.below(9) - 3],
    num: [() => '$i', () => '$d', () => '$o.x', () => '$o.z.w', (rand) => rand.below(80) / 4 - 9],
    str: [() => '$s', () => '$t', () => '$o.y', (rand) => rand.pick(TEXTS)],
    bool: [() => '$b', () => true, () => false],
    date: [() => '$when', () => new Date('2020-02-29T12:34:56.789Z')],
    nums: [() => '$ns', () => '$items.v', () => [3, 1, 2, 1], () => ['$i', '$d']],
    strs: [() => '$ss', () => '$items.k', () => ['b', 'a', 'abc'], () => ['$s', '$t']],
    objs: [() => '$items', () => [{ k: 'a', v: '$i' }]],
    obj: [() => '$o', () => '$$ROOT.o', () => ({ x: '$i', y: 'lit' })],
};
LEAVES.any = ['num', 'str', 'bool', 'date', 'nums', 'strs', 'objs', 'obj'].flatMap(
    (type) => LEAVES[type],
);

const one = (type) => (make) => make(type);
const listed =
    (...types) =>
    (make) =>
        types.map(make);
const several = (type) => (make, rand) =>
    Array.from({ length: 1 + rand.below(3) }, () => make(type));
const rows = (names, maker) => names.map((name) => [name, maker]);

const trim = (make, rand) => ({
    input: make('str'),
    ...(rand.below(2) && { chars: rand.pick(['a', ' x', 'cX']) }),
});
const regex = (make, rand) => ({
    input: make('str'),
    regex: rand.pick(['a', '^A', 'b.', '[xX]', 'a(.)', '(z)?c', 'é']),
    ...(rand.below(3) === 0 && { options: 'i' }),
});
const replace = (make, rand) => ({
    input: make('str'),
    find: rand.pick(['a', 'X', 'bc', 'é', '.', '$']),
    replacement: rand.pick(['', '-', '$1', '$&', 'YY']),
});
const zoned = (make, rand) =>
    rand.below(2) === 0 ? make('date') : { date: make('date'), timezone: rand.pick(ZONES) };
const dateMove = (make, rand) => ({
    startDate: make('date'),
    unit: rand.pick([...UNITS, 'millisecond']),
    amount: rand.below(60) - 20,
});
const ofElements = (list, type, result) => (make, rand, all) => ({
    input: make(list),
    as: 'e',
    ...all.with({ type, name: 'e' }, () => result(make)),
});
const nOf = (type) => (make, rand) => ({ n: 1 + rand.below(3), input: make(type) });
const sortBy = (rand) => rand.pick([{ v: 1 }, { v: -1, k: 1 }, { k: 1, v: 1 }, { k: -1, v: -1 }]);
const branches = (type) => (make, rand) => ({
    branches: Array.from({ length: 1 + rand.below(2) }, () => ({
        case: make('bool'),
        then: make(type),
    })),
    default: make(type),
});
const choices = (type) => [
    ['$cond', (make) => [make('bool'), make(type), make(type)]],
    ['$cond', (make) => ({ if: make('bool'), then: make(type), else: make(type) })],
    ['$ifNull', (make) => [make(type), make(type)]],
    ['$switch', branches(type)],
    [
        '$let',
        (make, rand, all) => ({
            vars: { p: make(type) },
            in: all.with({ type, name: 'p' }, () => make(type)),
        }),
    ],
];

/* [operator, maker of its argument] by type of the result. */
export const OPERATORS = {
    int: [
        ...rows(['$strLenBytes', '$strLenCP'], (make) => ({ $ifNull: [make('str'), 'x'] })),
        ['$size', (make) => ({ $ifNull: [make('nums'), []] })],
        ['$cmp', listed('num', 'num')],
        ['$cmp', listed('str', 'str')],
        ['$strcasecmp', listed('str', 'str')],
        ['$indexOfArray', listed('nums', 'num')],
        ['$indexOfBytes', listed('str', 'str')],
        ['$toInt', one('num')],
        ['$toLong', one('num')],
        ...rows(['$bitAnd', '$bitOr', '$bitXor'], listed('int', 'int')),
        ['$bitNot', one('int')],
        ...rows(
            [
                '$year',
                '$month',
                '$week',
                '$hour',
                '$minute',
                '$second',
                '$millisecond',
                '$dayOfMonth',
                '$dayOfWeek',
                '$dayOfYear',
                '$isoDayOfWeek',
                '$isoWeek',
                '$isoWeekYear',
            ],
            zoned,
        ),
        [
            '$dateDiff',
            (make, rand) => ({
                startDate: make('date'),
                endDate: make('date'),
                unit: rand.pick(UNITS),
                ...(rand.below(3) === 0 && { timezone: rand.pick(ZONES) }),
            }),
        ],
    ],
    num: [
        ...rows(['$abs', '$ceil', '$floor', '$toDouble', '$toDecimal'], one('num')),
        ...rows(['$atan', '$asinh', '$tanh'], one('num')),
        // Of small numbers: large ones lose digits, and not the same with every library.
        ...rows(['$sin', '$cos', '$tan', '$sinh', '$cosh', '$exp'], (make) => ({
            $mod: [make('num'), 7],
        })),
        ...rows(['$degreesToRadians', '$radiansToDegrees'], one('num')),
        ...rows(['$sqrt', '$ln', '$log10', '$acosh'], (make) => ({
            $add: [{ $abs: make('num') }, 1],
        })),
        ...rows(['$asin', '$acos', '$atanh'], (make) => ({ $divide: [make('int'), 64] })),
        ['$atan2', (make) => [make('num'), { $add: [{ $abs: make('num') }, 1] }]],
        ['$add', several('num')],
        ['$multiply', several('num')],
        ['$subtract', listed('num', 'num')],
        ['$divide', (make, rand) => [make('num'), rand.pick([2, -3, 0.5])]],
        ['$mod', (make, rand) => [make('num'), rand.pick([2, -3, 0.5, 7])]],
        ['$pow', (make, rand) => [make('num'), rand.below(3)]],
        ['$log', (make, rand) => [{ $add: [{ $abs: make('num') }, 1] }, rand.pick([2, 10])]],
        ...rows(['$round', '$trunc'], (make, rand) =>
            rand.below(2) ? [make('num'), rand.below(4) - 1] : make('num'),
        ),
        ...rows(['$sum', '$avg', '$min', '$max', '$stdDevPop', '$stdDevSamp'], (make, rand) =>
            rand.below(2) ? make('nums') : [make('num'), make('num')],
        ),
        ['$arrayElemAt', (make, rand) => [make('nums'), rand.below(7) - 3]],
        ...rows(['$first', '$last'], one('nums')),
        [
            '$reduce',
            (make, rand, all) => ({
                input: make('nums'),
                initialValue: 0,
                in: all.with({ type: 'num', name: 'this' }, () => ({
                    $add: ['$$value', make('num')],
                })),
            }),
        ],
        [
            '$convert',
            (make, rand) => ({
                input: make('any'),
                to: rand.pick(['int', 'double', 'long']),
                onError: -1,
                onNull: -2,
            }),
        ],
        ['$getField', (make) => ({ field: 'x', input: make('obj') })],
        ['$median', (make) => ({ input: make('nums'), method: 'approximate' })],
        ...choices('num'),
    ],
    str: [
        ['$concat', several('str')],
        ...rows(['$toLower', '$toUpper'], one('str')),
        ...rows(['$trim', '$ltrim', '$rtrim'], trim),
        ['$substrCP', (make, rand) => [make('str'), rand.below(3), rand.below(4)]],
        ['$substrBytes', (make, rand) => [make('str'), rand.below(2), rand.below(2)]],
        ['$substr', (make, rand) => [make('str'), 0, rand.below(2)]],
        ...rows(['$replaceOne', '$replaceAll'], replace),
        ['$toString', (make, rand) => make(rand.pick(['int', 'str', 'bool', 'date']))],
        ['$type', one('any')],
        [
            '$dateToString',
            (make, rand) => ({
                date: make('date'),
                format: rand.pick(['%Y-%m-%dT%H:%M:%S.%LZ', '%j %u %w %U %V %G %%', '%d/%m/%Y']),
                ...(rand.below(2) && { timezone: rand.pick(ZONES) }),
                ...(rand.below(2) && { onNull: 'none' }),
            }),
        ],
        ['$arrayElemAt', (make, rand) => [make('strs'), rand.below(5) - 2]],
        ...choices('str'),
    ],
    bool: [
        ...['num', 'str', 'date', 'bool'].flatMap((type) =>
            rows(['$eq', '$ne', '$gt', '$gte', '$lt', '$lte'], listed(type, type)),
        ),
        ...rows(['$and', '$or'], several('bool')),
        ['$not', (make) => [make('bool')]],
        ['$in', (make) => [make('num'), { $ifNull: [make('nums'), []] }]],
        ['$isArray', (make) => [make('any')]],
        ['$isNumber', one('any')],
        ['$toBool', one('any')],
        ['$regexMatch', regex],
        ...rows(['$allElementsTrue', '$anyElementTrue'], (make) => [
            { $ifNull: [make('nums'), []] },
        ]),
        ...rows(['$setEquals', '$setIsSubset'], (make) => [
            { $ifNull: [make('nums'), []] },
            { $ifNull: [make('nums'), []] },
        ]),
        ...choices('bool'),
    ],
    date: [
        ...rows(['$dateAdd', '$dateSubtract'], dateMove),
        [
            '$dateTrunc',
            (make, rand) => ({
                date: make('date'),
                unit: rand.pick(UNITS),
                ...(rand.below(2) && { binSize: 1 + rand.below(3) }),
                ...(rand.below(3) === 0 && { timezone: rand.pick(ZONES) }),
            }),
        ],
        [
            '$dateFromParts',
            (make, rand) => ({
                year: 2000 + rand.below(30),
                month: rand.below(16) - 1,
                day: rand.below(40) - 2,
                hour: rand.below(30),
                ...(rand.below(2) && { timezone: rand.pick(ZONES) }),
            }),
        ],
        [
            '$dateFromParts',
            (make, rand) => ({
                isoWeekYear: 2000 + rand.below(30),
                isoWeek: 1 + rand.below(52),
                isoDayOfWeek: 1 + rand.below(7),
            }),
        ],
        [
            '$dateFromString',
            (make, rand) => ({
                dateString: rand.pick(['2017-02-08T12:10:40.787Z', '2017-02-08', '2020-12-31']),
            }),
        ],
        ['$toDate', (make, rand) => (rand.below(2) ? make('date') : rand.below(1e9) * 1000)],
        ['$add', (make, rand) => [make('date'), rand.below(1e9)]],
        ['$subtract', (make, rand) => [make('date'), rand.below(1e9)]],
        ...choices('date'),
    ],
    nums: [
        ['$concatArrays', listed('nums', 'nums')],
        ['$filter', ofElements('nums', 'num', (make) => ({ cond: make('bool') }))],
        ['$map', ofElements('nums', 'num', (make) => ({ in: make('num') }))],
        ['$map', ofElements('objs', 'obj', (make) => ({ in: make('num') }))],
        ['$range', (make, rand) => [rand.below(5), rand.below(12), 1 + rand.below(3)]],
        ['$reverseArray', one('nums')],
        ['$slice', (make, rand) => [make('nums'), rand.below(7) - 3 || 1]],
        ['$slice', (make, rand) => [make('nums'), rand.below(5) - 2, 1 + rand.below(3)]],
        ['$sortArray', (make, rand) => ({ input: make('nums'), sortBy: rand.pick([1, -1]) })],
        ...['$setUnion', '$setIntersection', '$setDifference'].map((name) => [
            '$sortArray',
            (make) => ({ input: { [name]: [make('nums'), make('nums')] }, sortBy: 1 }),
        ]),
        ...rows(['$firstN', '$lastN', '$minN', '$maxN'], (make, rand) => ({
            n: 1 + rand.below(3),
            input: { $ifNull: [make('nums'), []] },
        })),
        [
            '$percentile',
            (make) => ({ input: make('nums'), p: [0, 0.25, 0.5, 1], method: 'approximate' }),
        ],
        ...choices('nums'),
    ],
    strs: [
        ['$split', (make, rand) => [make('str'), rand.pick(['X', ' ', 'b', 'é'])]],
        ['$concatArrays', listed('strs', 'strs')],
        ['$map', ofElements('strs', 'str', (make) => ({ in: make('str') }))],
        [
            '$sortArray',
            (make) => ({ input: { $setUnion: [make('strs'), make('strs')] }, sortBy: 1 }),
        ],
        ['$sortArray', (make, rand) => ({ input: make('strs'), sortBy: rand.pick([1, -1]) })],
        ...choices('strs'),
    ],
    objs: [
        ['$objectToArray', one('obj')],
        [
            '$zip',
            (make, rand) => ({
                inputs: [make('nums'), make('strs')],
                ...(rand.below(2) && { useLongestLength: true }),
            }),
        ],
        ['$sortArray', (make, rand) => ({ input: make('objs'), sortBy: sortBy(rand) })],
        ['$regexFindAll', regex],
        ['$filter', ofElements('objs', 'obj', (make) => ({ cond: make('bool') }))],
        ['$reverseArray', one('objs')],
    ],
    obj: [
        ['$mergeObjects', several('obj')],
        ['$arrayToObject', (make) => ({ $ifNull: [make('objs'), []] })],
        ['$setField', (make) => ({ field: 'x', input: make('obj'), value: make('num') })],
        ['$unsetField', (make) => ({ field: 'y', input: make('obj') })],
        ['$regexFind', regex],
        [
            '$dateToParts',
            (make, rand) => ({
                date: make('date'),
                ...(rand.below(2) && { timezone: rand.pick(ZONES) }),
                ...(rand.below(2) && { iso8601: true }),
            }),
        ],
        ['$literal', () => ({ $add: [1, '$i'] })],
        ...choices('obj'),
    ],
};
OPERATORS.any = Object.values(OPERATORS).flat();

/* ---- filters ---- */

const FIELD_PATHS = ['i', 'd', 's', 'b', 'when', 'ns', 'ss', 'o.x', 'o.z.w', 'items.v', 'items.k'];

function makeOperand(rand) {
    return rand.pick([
        () => rand.below(21) - 10,
        () => rand.below(80) / 8,
        () => rand.pick(TEXTS),
        () => rand.below(2) === 0,
        () => new Date(Date.UTC(2018, rand.below(12), 1)),
        () => null,
        () => [1],
    ])();
}

function makeCondition(rand, depth) {
    const operand = () => makeOperand(rand);
    const bits = () => (rand.below(2) ? rand.below(8) : [rand.below(4), 1]);
    return rand.pick([
        operand,
        () => ({ $eq: operand() }),
        () => ({ $ne: operand() }),
        () => ({ [rand.pick(['$gt', '$gte', '$lt', '$lte'])]: operand() }),
        () => ({ $gt: rand.below(10) - 10, $lte: rand.below(10) }),
        () => ({ [rand.pick(['$in', '$nin'])]: [operand(), operand(), operand()] }),
        () => ({ $exists: rand.below(2) === 0 }),
        () => ({
            $type: rand.pick(['string', 'bool', 'date', 'array', 'object', 'null', 'number']),
        }),
        () => ({ $mod: [1 + rand.below(4), rand.below(3)] }),
        () => ({
            $regex: rand.pick(['^a', 'b', 'X', 'é$']),
            ...(rand.below(2) && { $options: 'i' }),
        }),
        () => ({ $size: rand.below(4) }),
        () => ({ $all: [rand.below(5), rand.below(5)] }),
        () => ({ $elemMatch: { $gt: rand.below(10) - 5, $lt: rand.below(20) } }),
        () => ({
            [rand.pick(['$bitsAllSet', '$bitsAnySet', '$bitsAllClear', '$bitsAnyClear'])]: bits(),
        }),
        () => (depth > 0 ? { $not: { $in: [operand(), operand()] } } : operand()),
    ])();
}

/* Comparisons of numbers only. */
function makeSimpleFilter(rand) {
    const path = rand.pick(['i', 'd', 'o.x', 'ns']);
    return rand.pick([
        () => ({ [path]: { $gt: rand.below(20) - 10 } }),
        () => ({ [path]: { $in: [rand.below(9), rand.below(9)] } }),
        () => ({ $or: [{ [path]: { $lte: rand.below(9) } }, { s: { $exists: false } }] }),
        () => ({ [path]: { $ne: rand.below(9) }, b: true }),
    ])();
}

export function makeFilter(rand, expressions, depth = 2) {
    const inner = () => makeFilter(rand, expressions, depth - 1);
    const chance = depth > 0 ? rand.below(10) : 9;
    if (chance === 0) return { $and: [inner(), inner()] };
    if (chance === 1) return { $or: [inner(), inner()] };
    if (chance === 2) return { $nor: [inner(), inner()] };
    if (chance === 3) return { $expr: expressions.make('bool', 2) };
    if (chance === 4)
        return { items: { $elemMatch: { v: makeCondition(rand, 0), k: makeCondition(rand, 0) } } };
    return { [rand.pick(FIELD_PATHS)]: makeCondition(rand, depth) };
}

/* ---- pipelines ---- */

const ACCUMULATORS = [
    ...rows(['$sum', '$avg', '$min', '$max', '$stdDevPop', '$stdDevSamp'], one('num')),
    ...rows(['$first', '$last', '$push', '$addToSet'], one('num')),
    ['$mergeObjects', one('obj')],
    ['$count', () => ({})],
    ...rows(['$firstN', '$lastN', '$minN', '$maxN'], nOf('num')),
    ...rows(['$top', '$bottom'], () => ({ output: '$_id', sortBy: { d: 1, _id: 1 } })),
    ...rows(['$topN', '$bottomN'], (make, rand) => ({
        n: 1 + rand.below(3),
        output: '$_id',
        sortBy: { d: -1, _id: 1 },
    })),
];
const WINDOW_FUNCTIONS = [
    ...rows(['$sum', '$avg', '$min', '$max', '$push', '$first', '$last'], () => '$d'),
    ...rows(['$stdDevPop', '$stdDevSamp'], () => '$d'),
    ['$count', () => ({})],
];
const RANKING = [
    ...rows(['$rank', '$denseRank', '$documentNumber'], () => ({})),
    ['$shift', (make, rand) => ({ output: '$_id', by: rand.below(5) - 2, default: 'none' })],
    ['$expMovingAvg', () => ({ input: '$_id', alpha: 0.5 })],
    ['$locf', () => '$d'],
];

const GROUP_KEYS = ['$b', '$s', '$i', null, { b: '$b', q: { $mod: ['$i', 3] } }, '$ss'];

function accumulators(rand, expressions) {
    const fields = {};
    for (let i = 0; i < 3; i++) {
        const [operator, maker] = rand.pick(ACCUMULATORS);
        fields[`f${i}`] = expressions.apply(operator, maker, 2);
    }
    return fields;
}

function windowStage(rand, expressions) {
    const output = {};
    for (const name of ['w0', 'w1']) {
        const isRanking = rand.below(3) === 0;
        const [operator, maker] = rand.pick(isRanking ? RANKING : WINDOW_FUNCTIONS);
        output[name] = expressions.apply(operator, maker, 1);
        const bound = () => rand.pick(['unbounded', 'current', rand.below(3)]);
        if (!isRanking) {
            const low = bound();
            const from = typeof low === 'number' ? -low : low;
            output[name].window = { documents: [from, bound()] };
        }
    }
    return { partitionBy: rand.pick(['$b', null, '$s']), sortBy: { _id: 1 }, output };
}

/* [stage, maker of its argument]: stages that take documents as they were made. */
export const STAGES = [
    ['$match', makeSimpleFilter],
    [
        '$project',
        (rand, expressions) => ({
            i: 1,
            'o.x': 1,
            'items.v': 1,
            made: expressions.make('num', 2),
        }),
    ],
    ['$project', (rand) => rand.pick([{ ns: 0, 'o.y': 0 }, { 'items.k': 0 }, { s: 1, _id: 0 }])],
    [
        '$addFields',
        (rand, expressions) => ({
            d: expressions.make('num', 2),
            'o.n': expressions.make('str', 2),
        }),
    ],
    ['$set', (rand) => ({ [rand.pick(['i', 'o.x', 'new.a'])]: rand.below(5) })],
    ['$unset', (rand) => rand.pick(['ns', 'o.x', ['s', 'items.v']])],
    ['$unwind', (rand) => rand.pick(['$ns', '$ss', '$items'])],
    [
        '$unwind',
        (rand) => ({
            path: rand.pick(['$ns', '$items', '$d']),
            includeArrayIndex: 'at',
            preserveNullAndEmptyArrays: rand.below(2) === 0,
        }),
    ],
    [
        '$group',
        (rand, expressions) => ({
            _id: rand.pick(GROUP_KEYS),
            ...accumulators(rand, expressions),
        }),
    ],
    [
        '$sort',
        (rand) => ({
            [rand.pick(['i', 'd', 's', 'when', 'o.x', 'ns'])]: rand.pick([1, -1]),
            _id: 1,
        }),
    ],
    ['$limit', (rand) => 1 + rand.below(20)],
    ['$skip', (rand) => rand.below(10)],
    ['$count', () => 'n'],
    ['$sortByCount', (rand) => rand.pick(['$b', '$i', '$s'])],
    [
        '$bucket',
        (rand, expressions) => ({
            groupBy: rand.pick(['$i', '$d']),
            boundaries: [-20.01, -5.01, -0.01, 2.51, 8.01],
            default: 'other',
            output: accumulators(rand, expressions),
        }),
    ],
    ['$replaceRoot', () => ({ newRoot: { $mergeObjects: [{ _id: '$_id', i: 0 }, '$o'] } })],
    ['$replaceWith', () => ({ _id: '$_id', d: '$d', items: '$items' })],
    [
        '$redact',
        (rand, expressions) => ({
            $cond: [expressions.make('bool', 1), '$$DESCEND', rand.pick(['$$PRUNE', '$$KEEP'])],
        }),
    ],
    ['$setWindowFields', windowStage],
    [
        '$facet',
        (rand) => ({
            one: [{ $match: makeSimpleFilter(rand) }, { $limit: 4 }],
            two: [{ $sort: { d: 1, _id: 1 } }, { $limit: 3 }, { $project: { d: 1 } }],
        }),
    ],
    [
        '$fill',
        () => ({ sortBy: { _id: 1 }, output: { d: { method: 'locf' }, s: { value: 'filled' } } }),
    ],
    [
        '$lookup',
        (rand) => ({
            from: 'other',
            localField: rand.pick(['i', 'ns', 'o.x']),
            foreignField: rand.pick(['n', 'many']),
            as: 'found',
        }),
    ],
    ['$unionWith', () => ({ coll: 'other', pipeline: [{ $match: { n: { $gt: 0 } } }] })],
];

/* A pipeline of one to four stages. */
export function makePipeline(rand, expressions, stages = STAGES) {
    const pipeline = [];
    for (let count = 1 + rand.below(4); count > 0; count--) {
        const [name, maker] = rand.pick(stages);
        pipeline.push({ [name]: maker(rand, expressions) });
        // What depends on order has one only after a sort; the collection's own is good too.
        if (['$group', '$bucket', '$sortByCount', '$facet', '$count'].includes(name)) break;
    }
    return pipeline;
}
