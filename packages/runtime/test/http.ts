/** Shared by the tests of this folder: a server with two operations, and callers that send what no client would. */
import { ERRORS, partnerRoutes } from '@duebridge/contract';
import type { FastifyInstance } from 'fastify';
import assert from 'node:assert/strict';
import { connect, type AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { mount } from '../src/http/mount.ts';
import { createServer, type ServerOptions } from '../src/http/server.ts';

export const put = partnerRoutes.put_account_payment;
export const body = { amount_in_cents: 1250, platform_batch_id: 'b1' };
export const path = '/biller/b/account/a/payment/p1';
export const record = {
  payment_id: 'x1',
  platform_payment_id: 'p1',
  platform_batch_id: 'b1',
  biller_id: 'b',
  account_id: 'a',
  status: 'processing' as const,
  amount_in_cents: 1250,
  initiated_at: '2026-03-01T09:30:00.000Z',
  posted_at: null,
};

export async function listening(
  t: TestContext,
  options: ServerOptions = {},
  more: (app: FastifyInstance) => void = () => undefined,
): Promise<{ app: FastifyInstance; port: number; base: string }> {
  const app = createServer(options);
  t.after(() => app.close());
  mount(app, put, ({ params, body }) => ({
    ...record,
    ...params,
    amount_in_cents: body.amount_in_cents,
  }));
  mount(app, partnerRoutes.get_payment, () => record);
  more(app);
  await app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.server.address() as AddressInfo;
  return { app, port, base: `http://127.0.0.1:${port}` };
}

/** Sends raw bytes and returns everything received until the other side closed the connection. */
export function raw(port: number, ...pieces: (string | Buffer)[]): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let answer = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (answer += chunk));
    socket.on('error', () => undefined).on('close', () => resolve(answer));
    for (const piece of pieces) socket.write(piece);
  });
}

export const head = (line: string, ...headers: string[]): string =>
  [line, 'Host: x', 'Connection: close', ...headers, '', ''].join('\r\n');

export function assertRefused(answer: string, status: number, code: keyof typeof ERRORS): void {
  assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `), answer);
  assert.match(answer, /\r\nx-request-id: \S+\r\n/i);
  const sent: unknown = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4));
  assert.equal((sent as { code: string }).code, code);
}

export async function refused(response: Response, status: number, code: string): Promise<unknown> {
  const sent = (await response.json()) as { code: string; message: string; details?: unknown };
  assert.deepEqual([response.status, sent.code], [status, code], JSON.stringify(sent));
  assert.ok(response.headers.get('x-request-id'));
  return sent.details;
}

export const send = (base: string, what: unknown, init: RequestInit = {}): Promise<Response> =>
  fetch(base + path, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: typeof what === 'string' || what instanceof Uint8Array ? what : JSON.stringify(what),
    ...init,
  });
