/** A request of the scripted partner as a call, and an answer as what goes over the wire. */
import http from 'node:http';
import { partnerRoutes, Refusal, type Route } from '@duebridge/contract';
import type { Answer, Call, Operation } from './behaviour.ts';

/** Finds the operation of a request and its path fields; `problem` when there is none. */
export function toCall(
  request: http.IncomingMessage,
  connection: { readonly number: number; readonly requests: number },
  rest: Pick<Call, 'number' | 'text' | 'released' | 'at_ms'>,
): { call: Call; problem: Refusal | undefined } {
  const method = request.method ?? '';
  const path = request.url ?? '';
  let operation: Operation = 'unknown';
  let params: Record<string, string> = {};
  let problem: Refusal | undefined;
  const allowed: string[] = [];
  for (const route of Object.values(partnerRoutes) as Route[]) {
    const fields = matchPath(route.path, path.split('?')[0] ?? '');
    if (fields === undefined) continue;
    allowed.push(route.method);
    if (route.method !== method) continue;
    operation = route.id as Operation;
    if (fields === 'undecodable') problem = new Refusal('INVALID_REQUEST');
    else params = fields;
  }
  if (operation === 'unknown' && allowed.length > 0) {
    problem = new Refusal('METHOD_NOT_ALLOWED', { headers: { Allow: allowed.join(', ') } });
  }
  const call: Call = {
    ...rest,
    connection: connection.number,
    earlier: connection.requests,
    operation,
    method,
    path,
    params,
    headers: request.headers,
    body: undefined,
    scopes: undefined,
    answer: undefined,
  };
  return { call, problem };
}

function matchPath(template: string, path: string) {
  const [wanted, given] = [template.split('/'), path.split('/')];
  if (wanted.length !== given.length) return undefined;
  const fields: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? '';
    if (!part.startsWith('{')) {
      if (part !== value) return undefined;
      continue;
    }
    try {
      fields[part.slice(1, -1)] = decodeURIComponent(value);
    } catch {
      return 'undecodable';
    }
  }
  return fields;
}

export function toSendable(answer: Answer) {
  const { body } = answer;
  const plain = body === undefined || typeof body === 'string' || body instanceof Uint8Array;
  const bytes = plain ? (body ?? '') : JSON.stringify(body);
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
  const bytes = Buffer.from(body as string);
  const lines = [`HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? 'Unknown'}`];
  const all = { ...fixed, 'Content-Length': String(bytes.length), ...headers };
  for (const [name, value] of Object.entries(all)) {
    for (const one of [value].flat()) lines.push(`${name}: ${one}`);
  }
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), bytes]);
}

export function bodyText(body: string | Uint8Array): string {
  return typeof body === 'string' ? body : Buffer.from(body).toString('utf8');
}
