/*
 * small_disk.mjs - a file system of a few hundred megabytes for a test: an ext4 in a file,
 * loop-mounted. Needs root; `obstacle` says why there is none.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { makeTempDir, removeTempDir } from './server.mjs';

/* Null when it worked, else why not. */
function run(program, ...args) {
    const { status, stderr } = spawnSync(program, args, { encoding: 'utf8' });
    return status === 0 ? null : `${program}: ${stderr}`;
}

export class SmallDisk {
    #root = makeTempDir('sherd-disk-');
    #mountPoint = join(this.#root, 'mnt');

    constructor(megabytes) {
        this.obstacle = this.#mount(megabytes);
        // Before the directory is removed.
        process.prependListener(
            'exit',
            () => this.obstacle === null && run('umount', '-l', this.#mountPoint),
        );
    }

    #mount(megabytes) {
        if (process.getuid() !== 0) return 'mounting a small disk needs root';
        mkdirSync(this.#mountPoint);
        const image = join(this.#root, 'disk.img');
        return (
            run('truncate', '-s', `${megabytes}M`, image) ??
            run('mkfs.ext4', '-q', '-m', '0', image) ??
            run('mount', '-o', 'loop', image, this.#mountPoint)
        );
    }

    path = (name) => join(this.#mountPoint, name);

    get freeBytes() {
        const { bavail, bsize } = statfsSync(this.#mountPoint);
        return bavail * bsize;
    }

    /* A file that only takes room. */
    fill(name, bytes) {
        assert.equal(run('fallocate', '-l', String(bytes), this.path(name)), null);
    }

    /* The same, so large that `bytes` are left. */
    leave(name, bytes) {
        const size = this.freeBytes - bytes;
        if (size > 0) this.fill(name, size);
    }

    free(name) {
        rmSync(this.path(name), { force: true });
    }

    remove() {
        if (this.obstacle === null) {
            assert.equal(run('umount', this.#mountPoint), null);
            this.obstacle = 'removed';
        }
        removeTempDir(this.#root);
    }
}
