/** A request of the scripted partner as a call, and an answer as what goes over the wire. */
import http from 'node:http';
import { partnerRoutes, Refusal, type Route } from '@duebridge/contract';
import type { Answer, Call, Operation } from './behaviour.ts';

const ROUTES = Object.values<Route>(partnerRoutes).map((route) => {
  const pattern = route.path.replaceAll(/\{(\w+)\}/g, '(?<$1>[^/]*)');
  return { ...route, pattern: new RegExp(`^${pattern}$`) };
});

/** Finds the operation of a request and its path fields; `problem` when there is none. */
export function toCall(
  request: http.IncomingMessage,
  rest: Pick<Call, 'number' | 'connection' | 'earlier' | 'text' | 'released' | 'at_ms'>,
): { call: Call; problem: Refusal | undefined } {
  const { method = '', url: path = '', headers } = request;
  const known = ROUTES.flatMap((route) => {
    const match = route.pattern.exec(path.split('?')[0] ?? '');
    return match === null ? [] : { route, fields: match.groups ?? {} };
  });
  const found = known.find(({ route }) => route.method === method);
  const allowed = known.map(({ route }) => route.method).join(', ');
  let problem =
    found !== undefined || allowed === ''
      ? undefined
      : new Refusal('METHOD_NOT_ALLOWED', { headers: { Allow: allowed } });
  let params: Record<string, string> = {};
  try {
    params = Object.fromEntries(
      Object.entries(found?.fields ?? {}).map(([name, value]) => [name, decodeURIComponent(value)]),
    );
  } catch {
    problem = new Refusal('INVALID_REQUEST');
  }
  const operation = (found?.route.id ?? 'unknown') as Operation;
  const call = { ...rest, operation, method, path, params, headers };
  return { call: { ...call, body: undefined, answer: undefined }, problem };
}

export function toSendable(answer: Answer) {
  const { body } = answer;
  const plain = body === undefined || typeof body === 'string' || body instanceof Uint8Array;
  const bytes = plain ? Buffer.from(body ?? '') : Buffer.from(JSON.stringify(body));
  const headers: Record<string, string | string[]> = plain
    ? {}
    : { 'Content-Type': 'application/json; charset=utf-8' };
  for (const [name, value] of Object.entries(answer.headers ?? {})) {
    headers[name] = typeof value === 'string' ? value : [...value];
  }
  return { status: answer.status, headers, body: bytes };
}

export function rawBytes(answer: Answer, fixed: Readonly<Record<string, string>>): Buffer {
  const { status, headers, body } = toSendable(answer);
  const lines = [`HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? 'Unknown'}`];
  const all = { ...fixed, 'Content-Length': String(body.length), ...headers };
  for (const [name, value] of Object.entries(all)) {
    for (const one of [value].flat()) lines.push(`${name}: ${one}`);
  }
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), body]);
}

/** The body of an answer as text. */
export const textOf = (answer: Answer): string => toSendable(answer).body.toString();
