/**
 * Loaded into a server before its own code: kills or stops the process from inside at the step that the rig asked for, so that
 * the moment is exact. It observes prepared statements by name, commits by their contents, and HTTP through the diagnostics
 * channels of Node and undici.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { subscribe } from 'node:diagnostics_channel';
import pg from 'pg';

/** What the rig sends. */
export interface Armed {
  /** The step, as `at` of steps.ts. */
  readonly at: string;
  readonly signal: 'SIGKILL' | 'SIGSTOP';
  /** The passing of the step at which to act, from 1. */
  readonly nth: number;
  /** A file that is written before the signal, so that the rig knows that the step was reached. */
  readonly file: string;
}

let armed: Armed | undefined;
let passed = 0;
process.on('message', (message: Armed) => {
  armed = message;
  passed = 0;
});
// If the rig is killed, it leaves no servers behind.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
// The channel does not keep an otherwise idle server alive.
process.channel?.unref();

function reached(at: string): void {
  if (armed?.at !== at) return;
  passed += 1;
  if (passed < armed.nth) return;
  const { signal, file } = armed;
  armed = undefined;
  writeFileSync(file, at);
  process.kill(process.pid, signal);
}

// Statements: a Query of pg tells when it is sent and when its answer is complete. --------------------------------------------
interface Query {
  readonly name?: string;
  readonly text?: string;
  readonly values?: readonly unknown[];
}
type Method = (this: Query, connection: object, ...rest: unknown[]) => unknown;

/** What each connection has executed since its BEGIN. */
const done = new WeakMap<object, string[]>();

function nameOf({ name, text, values }: Query): string {
  // One statement writes all steps of payments.
  const isEnd = name === 'payment_step' && String(values?.[2]).includes('"ended_by"');
  if (isEnd) return 'payment_step of an end';
  return name ?? text?.trim().split(/\s/, 1)[0]?.toUpperCase() ?? '';
}

function watch(method: 'submit' | 'handleReadyForQuery', seen: (name: string, on: object) => void) {
  const methods = Reflect.get(pg.Query, 'prototype') as unknown as Record<string, Method>;
  const original = methods[method];
  assert.ok(original, `pg has no Query.${method}`);
  methods[method] = function watched(connection, ...rest) {
    seen(nameOf(this), connection);
    return original.call(this, connection, ...rest);
  };
}

watch('submit', (name, on) => {
  if (name === 'COMMIT') for (const one of done.get(on) ?? []) reached(`before commit of ${one}`);
  else reached(`before ${name}`);
});
watch('handleReadyForQuery', (name, on) => {
  if (name === 'BEGIN') done.set(on, []);
  else if (name === 'COMMIT')
    for (const one of done.get(on) ?? []) reached(`after commit of ${one}`);
  else {
    done.get(on)?.push(name);
    reached(`after ${name}`);
  }
});

// HTTP: calls about a payment, going out and coming in. ---------------------------------------------------------------------
function payment(message: unknown, name: string): string | undefined {
  const request = Reflect.get(message as object, name) as {
    method?: string;
    path?: string;
    url?: string;
  };
  const path = request.path ?? request.url ?? '';
  return path.includes('/payment') && !path.includes('/flow/') ? request.method : undefined;
}

const OUTGOING: Readonly<Record<string, string>> = {
  'undici:request:create': 'sends',
  'undici:request:bodySent': 'sent',
  'undici:request:headers': 'hears',
  'undici:request:trailers': 'heard',
};
for (const [channel, word] of Object.entries(OUTGOING)) {
  subscribe(channel, (message) => {
    const method = payment(message, 'request');
    if (method !== undefined) reached(`${word} ${method}`);
  });
}
subscribe('http.server.request.start', (message) => {
  const method = payment(message, 'request');
  if (method !== undefined) reached(`asked ${method}`);
});
subscribe('http.server.response.finish', (message) => {
  const method = payment(message, 'request');
  if (method !== undefined) reached(`told ${method}`);
});
