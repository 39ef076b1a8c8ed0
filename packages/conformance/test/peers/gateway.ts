/** A gateway between the judge and a partner: takes each request on, and may change how the answer is written. */
import http from 'node:http';
import { request } from 'undici';
import { pause } from '../../src/clock.ts';
import { closeAll, listen } from '../../src/scripted/listeners.ts';
import { VIRTUAL_CLOCK as CLOCK } from '../virtual-clock.ts';

export interface Gateway {
  /** The path below which the partner is. */
  readonly prefix?: string;
  readonly latency_ms?: number;
  /** Changes an answer before it leaves. */
  readonly answer?: (answer: GatewayAnswer) => GatewayAnswer;
}

interface GatewayAnswer {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: Buffer;
}

/** Opens a gateway in front of a partner. */
export async function openGateway(
  url: string,
  gateway: Gateway,
): Promise<{ readonly url: string; readonly stop: () => Promise<void> }> {
  const server = http.createServer((incoming, response) => {
    void pass(incoming, response).catch(() => response.destroy());
  });

  async function pass(
    incoming: http.IncomingMessage,
    response: http.ServerResponse,
  ): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
    const came = await inner(incoming, Buffer.concat(chunks));
    const answer = gateway.answer?.(came) ?? came;
    if (gateway.latency_ms !== undefined) await pause(CLOCK, gateway.latency_ms);
    response.writeHead(answer.status, answer.headers).end(answer.body);
  }

  async function inner(incoming: http.IncomingMessage, body: Buffer): Promise<GatewayAnswer> {
    const {
      host: _host,
      connection: _kept,
      'content-length': _length,
      ...headers
    } = incoming.headers;
    const answer = await request(url + (incoming.url ?? '').slice((gateway.prefix ?? '').length), {
      method: incoming.method ?? 'GET',
      headers: headers as Record<string, string>,
      ...(body.length === 0 ? {} : { body }),
    });
    const {
      connection: _c,
      'keep-alive': _k,
      'content-length': _l,
      'transfer-encoding': _t,
      ...given
    } = answer.headers;
    return {
      status: answer.statusCode,
      headers: given as Record<string, string>,
      body: Buffer.from(await answer.body.arrayBuffer()),
    };
  }

  const port = await listen(server);
  return { url: `http://127.0.0.1:${port}${gateway.prefix ?? ''}`, stop: () => closeAll(server) };
}
