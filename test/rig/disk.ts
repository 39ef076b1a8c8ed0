/**
 * The disk on which the rig's PostgreSQL keeps its data: small enough to be filled, and one whose power can fail.
 *
 * It is a file with an ext4 file system, mounted as a loop device. What the server has written and not yet synced is in the kernel's
 * cache above that file system, so the file holds exactly what a disk would hold. A copy of it, taken while the server is stopped, is
 * what is found after the power has come back. Only root may mount one.
 */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { childrenOf, signal } from '../support/processes.ts';

/** In memory where there is room: what counts is what reaches this file, not how fast. */
const MEMORY = '/dev/shm';
/** Copies taken in vain, because the kernel wrote to the disk meanwhile. */
const COPIES = 20;
/** Written a moment before the power fails, and never synced. */
const MARK = 'never-synced';

/** A mounted disk. */
export class Disk {
  /** Where it is mounted. */
  readonly folder: string;
  /** The file that holds it. */
  #image: string;
  readonly #images: string;
  #failures = 0;

  private constructor(folder: string, images: string, image: string) {
    this.folder = folder;
    this.#images = images;
    this.#image = image;
  }

  /** A disk of this many megabytes at `folder`, or undefined when this user may not mount one. Remove it, also after a failure. */
  static mount(folder: string, megabytes: number): Disk | undefined {
    mkdirSync(folder, { recursive: true });
    const images = imagesFor(folder, megabytes);
    const image = join(images, 'disk-0');
    try {
      writeFileSync(image, '');
      truncateSync(image, megabytes * 2 ** 20);
      // Everything is written now: a thread of the kernel that completes the file system later would disturb the copies.
      const now = 'lazy_itable_init=0,lazy_journal_init=0,nodiscard';
      run('mkfs.ext4', '-q', '-F', '-m', '0', '-N', '60000', '-E', now, image);
      mountImage(image, folder);
      rmSync(join(folder, 'lost+found'), { recursive: true, force: true });
      return new Disk(folder, images, image);
    } catch {
      rmSync(images, { recursive: true, force: true });
      return undefined;
    }
  }

  /**
   * Lets the power fail under the server with this process id: kills it, and puts in place of the disk what had reached it. Returns
   * whether something that had not been synced is gone, as it has to be. Runs in one go, so that nobody starts a server in between.
   */
  losePower(postmaster: number): boolean {
    const image = this.#image;
    // The postmaster first, so that it has no further children.
    signal(postmaster, 'SIGSTOP');
    const server = [postmaster, ...childrenOf(postmaster)];
    for (const pid of server) signal(pid, 'SIGSTOP');
    writeFileSync(join(this.folder, MARK), 'in the cache of the kernel');
    this.#failures += 1;
    const found = join(this.#images, `disk-${this.#failures}`);
    copyAtRest(image, found);
    // The stopped server keeps the old disk open until it is dead.
    run('umount', '-l', this.folder);
    mountImage(found, this.folder);
    this.#image = found;
    for (const pid of server) signal(pid, 'SIGKILL');
    rmSync(image);
    const mark = join(this.folder, MARK);
    const isLost = !existsSync(mark) || readFileSync(mark, 'utf8') === '';
    rmSync(mark, { force: true });
    return isLost;
  }

  /** Unmounts the disk; all that is on it is gone. */
  remove(): void {
    run('umount', '-l', this.folder);
    rmSync(this.#images, { recursive: true, force: true });
  }
}

function imagesFor(folder: string, megabytes: number): string {
  const name = folder.replaceAll(/[^A-Za-z0-9-]+/g, '-').slice(1);
  // Two of them while the power fails, though hardly ever full.
  const needed = 2 * megabytes * 2 ** 20;
  const { bavail, bsize } = existsSync(MEMORY) ? statfsSync(MEMORY) : { bavail: 0, bsize: 0 };
  const isRoomy = bavail * bsize > needed;
  const images = isRoomy ? join(MEMORY, name) : `${folder}.disk`;
  mkdirSync(images, { recursive: true });
  return images;
}

/** Seldom commits by itself: what nobody has synced stays away from the disk for as long as the kernel lets it. */
function mountImage(image: string, folder: string): void {
  run('mount', '-t', 'ext4', '-o', 'loop,commit=300', image, folder);
}

/** Copies the file until nothing was written to it meanwhile, so that the copy is of one instant. */
function copyAtRest(from: string, to: string): void {
  for (let tried = 0; tried < COPIES; tried += 1) {
    run('cp', '--sparse=always', from, to);
    try {
      run('cmp', '--silent', from, to);
      return;
    } catch {
      // It changed: once more.
    }
  }
  throw new Error('the disk is never at rest');
}

function run(program: string, ...args: readonly string[]): void {
  execFileSync(program, args, { stdio: 'ignore' });
}
