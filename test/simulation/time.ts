/**
 * Virtual time: one list of wake-ups for all processes of a simulated world, and a process's own view of it.
 *
 * Nothing waits in real time. When everything that can run has run, time jumps to the next wake-up. A process can be killed (its
 * sleeps never end), paused as by SIGSTOP (they end when it continues), and its wall clock can be stepped.
 */
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '@duebridge/runtime';

interface WakeUp {
  readonly at: number;
  readonly wake: () => void;
  canceled: boolean;
}

/** The time of one simulated world. */
export class World {
  /** Milliseconds since the start of the world. */
  elapsed = 0;
  /** Wall time at the start: a fixed day, so that a seed always tells the same story. */
  readonly startedAt = Date.UTC(2026, 5, 1, 12);
  readonly random: () => number;
  /** The next is the last. */
  readonly #wakeUps: WakeUp[] = [];
  /** Work that is done in real time although virtual time stands still: statements in the database. */
  #busy = 0;

  constructor(random: () => number) {
    this.random = random;
  }

  /** True time: what the database's clock shows until it is stepped. */
  now(): number {
    return this.startedAt + this.elapsed;
  }

  /** Calls back after `ms` of virtual time; returns the function that cancels it. */
  after(ms: number, wake: () => void): () => void {
    // A NaN is now, as with the real clock; Infinity is never.
    const at = this.elapsed + Math.max(0, Number.isNaN(ms) ? 0 : ms);
    const one: WakeUp = { at, wake, canceled: false };
    // Of two at the same time, the one that was asked for first goes first.
    this.#wakeUps.splice(this.#wakeUps.findLastIndex((other) => other.at > at) + 1, 0, one);
    return () => {
      one.canceled = true;
    };
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.after(ms, resolve);
    });
  }

  /** Runs real asynchronous work during which virtual time stands still. */
  async busy<T>(work: () => Promise<T>): Promise<T> {
    this.#busy += 1;
    try {
      return await work();
    } finally {
      this.#busy -= 1;
    }
  }

  /** Lets `ms` of virtual time pass, or less when `until` becomes true; returns whether it did. */
  async run(ms: number, until: () => boolean = () => false): Promise<boolean> {
    const end = this.elapsed + ms;
    await this.#settle();
    for (let still = 0; ; still += 1) {
      if (until()) return true;
      if (still > SPINS) throw new Spinning(this.elapsed);
      const next = this.#wakeUps.at(-1);
      if (next === undefined || next.at > end) {
        this.elapsed = end;
        return until();
      }
      this.#wakeUps.pop();
      if (next.canceled) continue;
      if (next.at > this.elapsed) still = 0;
      this.elapsed = Math.max(this.elapsed, next.at);
      next.wake();
      await this.#settle();
    }
  }

  /** Until nothing can run without time passing: promises, immediates and statements are done. */
  async #settle(): Promise<void> {
    let quiet = 0;
    for (let turns = 0; quiet < QUIET_TURNS; turns += 1) {
      if (turns > SPINS) throw new Spinning(this.elapsed);
      await turn();
      quiet = this.#busy > 0 ? 0 : quiet + 1;
    }
  }
}

/** Turns of the event loop without a statement under way after which nothing is left to run: group commits take one each. */
const QUIET_TURNS = 3;

/** Wake-ups, or turns of the event loop, without any time passing: far more than a crowded world needs. */
const SPINS = 100_000;

/** Thrown when something goes on forever without waiting: on a real machine it would take a whole processor. */
export class Spinning extends Error {
  constructor(elapsed: number) {
    super(`something goes round without waiting, ${Math.round(elapsed)} ms after the start`);
  }
}

/** One simulated process: whether it is alive, and its clock. */
export class Process {
  readonly name: string;
  readonly #world: World;
  #state: 'alive' | 'paused' | 'dead' = 'alive';
  #wallOffset = 0;
  #held: (() => void)[] = [];

  constructor(world: World, name: string) {
    this.#world = world;
    this.name = name;
  }

  get isDead(): boolean {
    return this.#state === 'dead';
  }

  /** Ends it as SIGKILL does: nothing it waits for ever comes. */
  kill(): void {
    this.#state = 'dead';
    this.#held = [];
  }

  /** Stops it as SIGSTOP does, for that long: time continues, the process does not. */
  pause(ms: number): void {
    if (this.#state !== 'alive') return;
    this.#state = 'paused';
    this.#world.after(ms, () => {
      if (this.#state !== 'paused') return;
      this.#state = 'alive';
      const held = this.#held;
      this.#held = [];
      for (const go of held) go();
    });
  }

  /** Steps its wall clock, either way. */
  stepWallClock(ms: number): void {
    this.#wallOffset += ms;
  }

  /** Runs `go` now, when the process continues, or never. */
  whenRunning(go: () => void): void {
    if (this.#state === 'alive') go();
    else if (this.#state === 'paused') this.#held.push(go);
  }

  /** A promise that comes to this process only while it runs. */
  arrive<T>(promise: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      promise.then(
        (value) => this.whenRunning(() => resolve(value)),
        (error: unknown) => this.whenRunning(() => reject(error)),
      );
    });
  }

  /** The clock that its code is given. */
  get clock(): Clock {
    const world = this.#world;
    return {
      now: () => world.now() + this.#wallOffset,
      monotonic: () => world.elapsed,
      random: world.random,
      sleep: (ms, signal) =>
        new Promise((resolve) => {
          if (signal?.aborted === true) {
            resolve();
            return;
          }
          let over = false;
          const wake = (): void => {
            if (over) return;
            over = true;
            callOff();
            signal?.removeEventListener('abort', wake);
            this.whenRunning(resolve);
          };
          const callOff = world.after(ms, wake);
          signal?.addEventListener('abort', wake);
        }),
    };
  }
}
