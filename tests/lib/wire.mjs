/*
 * wire.mjs - messages of the wire protocol, made and taken apart by hand: for what a driver never
 * sends.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { deflateSync, inflateSync } from 'node:zlib';
import { BSON } from 'mongodb';

export const OP_REPLY = 1;
export const OP_QUERY = 2004;
export const OP_COMPRESSED = 2012;
export const OP_MSG = 2013;

export const CHECKSUM_PRESENT = 1;
export const MORE_TO_COME = 2;
export const EXHAUST_ALLOWED = 1 << 16;

const HEADER_SIZE = 16;
const REPLY_MS_MAX = 10_000;
const COMPRESSOR_ZLIB = 2;

let lastRequestId = 1000;

export function int32(...values) {
    const buffer = Buffer.alloc(4 * values.length);
    values.forEach((value, i) => buffer.writeInt32LE(value | 0, 4 * i));
    return buffer;
}

/* A message with header; `lengthSaid` lies about its length. */
export function frame(opCode, body, { requestId = ++lastRequestId, lengthSaid } = {}) {
    const length = lengthSaid ?? HEADER_SIZE + body.length;
    return Buffer.concat([int32(length, requestId, 0, opCode), body]);
}

export const bodySection = (document) =>
    Buffer.concat([
        Buffer.from([0]),
        Buffer.isBuffer(document) ? document : BSON.serialize(document),
    ]);

/* A document sequence; `sizeSaid` lies about its size. */
export function sequenceSection(name, documents, sizeSaid) {
    const rest = Buffer.concat([
        Buffer.from(`${name}\0`),
        ...documents.map((document) =>
            Buffer.isBuffer(document) ? document : BSON.serialize(document),
        ),
    ]);
    return Buffer.concat([Buffer.from([1]), int32(sizeSaid ?? rest.length + 4), rest]);
}

/* OP_MSG of a command document, or of sections. */
export function msg(content, { flags = 0, ...header } = {}) {
    const sections = Array.isArray(content) ? content : [bodySection(content)];
    return frame(OP_MSG, Buffer.concat([int32(flags), ...sections]), header);
}

/* OP_MSG with a CRC-32C at the end, right unless `damage`d. */
export function msgWithChecksum(document, damage = 0) {
    const body = Buffer.concat([int32(CHECKSUM_PRESENT), bodySection(document)]);
    const start = frame(OP_MSG, body, { lengthSaid: HEADER_SIZE + body.length + 4 });
    return Buffer.concat([start, int32(crc32c(start) ^ damage)]);
}

export function query(document, { ns = 'admin.$cmd', flags = 0 } = {}) {
    const body = [int32(flags), Buffer.from(`${ns}\0`), int32(0, -1), BSON.serialize(document)];
    return frame(OP_QUERY, Buffer.concat(body));
}

/* The message inside OP_COMPRESSED with zlib; parts can be given to lie about them. */
export function compressed(message, { opCode, size, compressor = COMPRESSOR_ZLIB, data } = {}) {
    const inner = message.subarray(HEADER_SIZE);
    const body = Buffer.concat([
        int32(opCode ?? message.readInt32LE(12), size ?? inner.length),
        Buffer.from([compressor]),
        data ?? deflateSync(inner),
    ]);
    return frame(OP_COMPRESSED, body, { requestId: message.readInt32LE(4) });
}

export function crc32c(buffer) {
    let crc = ~0;
    for (const byte of buffer) {
        crc ^= byte;
        for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* Strings are stored as they came, so a reply may hold text that is no UTF-8; drivers mind. */
const deserialize = (bytes) => BSON.deserialize(bytes, { validation: { utf8: false } });

/* {opCode, requestId, responseTo, flags, document, raw} of a whole message from the server. */
export function parseReply(raw) {
    let opCode = raw.readInt32LE(12);
    let body = raw.subarray(HEADER_SIZE);
    if (opCode === OP_COMPRESSED) {
        if (body[8] !== COMPRESSOR_ZLIB) throw new Error(`reply compressed with ${body[8]}`);
        opCode = body.readInt32LE(0);
        body = inflateSync(body.subarray(9));
    }
    const reply = { opCode, requestId: raw.readInt32LE(4), responseTo: raw.readInt32LE(8), raw };
    if (opCode === OP_REPLY)
        return {
            ...reply,
            flags: body.readInt32LE(0),
            document: deserialize(body.subarray(20)),
        };
    if (opCode !== OP_MSG) throw new Error(`reply with opcode ${opCode}`);
    const flags = body.readUInt32LE(0);
    const end = flags & CHECKSUM_PRESENT ? body.length - 4 : body.length;
    return { ...reply, flags, document: deserialize(body.subarray(5, end)) };
}

export class RawConnection {
    #buffer = Buffer.alloc(0);
    #waiting = null;
    isClosed = false;

    static async open(address) {
        const connection = new RawConnection();
        connection.socket = connect(address);
        connection.socket.on('data', (data) => {
            connection.#buffer = Buffer.concat([connection.#buffer, data]);
            connection.#wake();
        });
        connection.socket.on('close', () => {
            connection.isClosed = true;
            connection.#wake();
        });
        await once(connection.socket, 'connect');
        connection.socket.on('error', () => {});
        return connection;
    }

    #wake() {
        this.#waiting?.();
        this.#waiting = null;
    }

    /* The next message, or null when the server closed the connection. */
    async receive(timeoutMs = REPLY_MS_MAX) {
        const deadline = Date.now() + timeoutMs;
        for (;;) {
            if (this.#buffer.length >= 4 && this.#buffer.length >= this.#buffer.readInt32LE(0)) {
                const length = this.#buffer.readInt32LE(0);
                const raw = this.#buffer.subarray(0, length);
                this.#buffer = this.#buffer.subarray(length);
                return parseReply(raw);
            }
            if (this.isClosed) return null;
            if (Date.now() > deadline)
                throw new Error(`neither reply nor end of the connection within ${timeoutMs} ms`);
            await new Promise((done) => {
                const timer = setTimeout(done, Math.max(1, deadline - Date.now()));
                this.#waiting = () => {
                    clearTimeout(timer);
                    done();
                };
            });
        }
    }

    write(bytes) {
        this.socket.write(bytes);
    }

    async roundTrip(message, timeoutMs) {
        this.write(message);
        return this.receive(timeoutMs);
    }

    /* The reply document of a command. */
    async command(document, options) {
        const reply = await this.roundTrip(
            msg({ ...document, $db: document.$db ?? 'admin' }, options),
        );
        return reply?.document;
    }

    close() {
        this.socket.destroy();
    }
}
