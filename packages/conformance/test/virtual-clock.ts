/**
 * The clock of the judge's own tests: waits end as soon as nothing else happens, however long they are. Judge and peers run in this
 * process and wait by this one clock, so a wait of ten seconds takes a millisecond, and a machine that is busy makes no answer late.
 *
 * The time advances to the next wait when nothing is on its way (each connection is made, each request that a client has sent is open at
 * a server) and the event loop has turned several times without an event. A peer outside this process, or one that is not an HTTP server, is
 * not seen: such a test uses MACHINE_CLOCK.
 */
import { subscribe } from 'node:diagnostics_channel';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { setImmediate as turn, setTimeout as real } from 'node:timers/promises';
import type { Clock } from '../src/clock.ts';

/** Turns of the event loop without an event after which what was sent over loopback has been read. */
const QUIET_TURNS = 6;

interface Timer {
  readonly due: number;
  readonly run: () => void;
}

const started = Date.now();
const timers = new Set<Timer>();
/** Requests that a client waits for, and those that a server has not answered. */
const asked = new Set<unknown>();
const open = new Set<unknown>();
/** Connections that are being made. */
const connecting = new Set<Socket>();
let passed = 0;
let events = 0;
let isRunning = false;

const happened = (): void => void (events += 1);

subscribe('undici:request:create', (message) => {
  asked.add((message as { request: unknown }).request);
  happened();
});
for (const end of ['undici:request:trailers', 'undici:request:error']) {
  subscribe(end, (message) => {
    asked.delete((message as { request: unknown }).request);
    happened();
  });
}
subscribe('http.server.request.start', (message) => {
  const { response } = message as { response: ServerResponse };
  open.add(response);
  happened();
  response.once('close', () => {
    open.delete(response);
    happened();
  });
});

subscribe('net.client.socket', (message) => {
  const { socket } = message as { socket: Socket };
  connecting.add(socket);
  const made = (): void => {
    if (connecting.delete(socket)) happened();
  };
  socket.once(socket instanceof TLSSocket ? 'secureConnect' : 'connect', made).once('close', made);
});

/** The one virtual clock of a test process. It starts at the time of day. */
export const VIRTUAL_CLOCK: Clock = {
  now: () => started + passed,
  elapsed: () => passed,
  after(ms, run) {
    // Whole milliseconds, so that waits of many runs end together.
    const timer = { due: Math.ceil(passed + Math.max(ms, 0)), run };
    timers.add(timer);
    happened();
    if (!isRunning) void advance();
    return () => {
      if (timers.delete(timer)) happened();
    };
  },
};

/** Ends one wait after another until none is left. */
async function advance(): Promise<void> {
  isRunning = true;
  for (await quiet(); timers.size > 0; await quiet()) {
    let next = Infinity;
    for (const { due } of timers) next = Math.min(next, due);
    passed = Math.max(passed, next);
    // Those that are set meanwhile wait for the next round, and one may cancel another.
    const ended = [...timers].filter(({ due }) => due <= passed);
    for (const timer of ended) if (timers.delete(timer)) timer.run();
  }
  isRunning = false;
}

/** Resolves when no request is on its way and nothing has happened for some turns of the event loop. */
async function quiet(): Promise<void> {
  let seen = events;
  for (let turns = 0; turns < QUIET_TURNS;) {
    const isOnItsWay = asked.size > open.size || connecting.size > 0;
    await (isOnItsWay ? real(1) : turn());
    turns = isOnItsWay || events !== seen ? 0 : turns + 1;
    seen = events;
  }
}
