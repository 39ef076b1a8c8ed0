/** One payment, one trace: both sides make their spans in it, and none of them says more than an id, a method and a status. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import test, { after } from 'node:test';
import type { AddressInfo } from 'node:net';
import { openTracing, silentLog, type Log, type Tracing } from '@duebridge/runtime';
import { InMemorySpanExporter, type ReadableSpan } from '@opentelemetry/sdk-trace';
import { BothSides, gasCompany } from './support/both-sides.ts';
import { createToken, openSession, type Client } from './support/customer.ts';

const sides = new BothSides();
after(() => sides.stop());

const secret = 'the-key-that-the-biller-chose';
const csv =
  'biller_id,account_id,status,first_name,last_name,amount_due,due_date\n' +
  'gas,ACCOUNT-17,active,Ada,Lovelace,120.50,2026-12-01\n';

/** The traces of one server, kept in memory. */
function kept(service: string): { readonly open: () => Promise<Tracing>; spans(): ReadableSpan[] } {
  const exporter = new InMemorySpanExporter();
  return {
    open: () => openTracing({ endpoint: 'http://127.0.0.1:9', service, exporter }),
    spans: () => exporter.getFinishedSpans(),
  };
}

async function pay(client: Client): Promise<string> {
  const { body } = await createToken(client, { account_id: 'ACCOUNT-17' });
  const browser = await openSession(client.platformUrl, body.token);
  const { body: payment } = await browser.confirm(9_876_543);
  const id = payment.platform_payment_id;
  assert.equal((await browser.ended(id, 60_000)).status, 'succeeded');
  return id;
}

async function bothSides(
  ofPlatform: (() => Promise<Tracing>) | undefined,
  ofPartner: (() => Promise<Tracing>) | undefined,
  log: Log = silentLog,
): Promise<Client> {
  const partner = await sides.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [secret] },
    tracing: ofPartner,
  });
  await partner.importAccounts(csv);
  const { register } = await sides.platform({ tracing: ofPlatform, log });
  return register(gasCompany(partner.server.url, secret));
}

test('confirm, calls, acceptance and posting of a payment are one trace, and one log line for each attempt, without personal data or secrets [PL15]', async () => {
  const platform = kept('platform');
  const partner = kept('partner');
  const lines: Record<string, unknown>[] = [];
  const debug = (details: object, message: string): void => {
    if (message === 'a partner was called') lines.push({ ...details, message });
  };
  const log = { ...silentLog, debug, info: debug };
  const client = await bothSides(platform.open, partner.open, log);
  const id = await pay(client);
  const traceId = id.replaceAll('-', '');
  const of = (spans: readonly ReadableSpan[], name: string): ReadableSpan[] =>
    spans.filter((span) => span.name === name && span.spanContext().traceId === traceId);

  const [confirm, ...more] = of(platform.spans(), 'confirm payment');
  assert(confirm);
  assert.deepEqual(more, []);
  assert.equal(confirm.parentSpanContext, undefined);
  const [put] = of(platform.spans(), 'PUT payment');
  assert(put);
  assert.equal(put.parentSpanContext?.spanId, confirm.spanContext().spanId);
  assert.equal(put.attributes['http.response.status_code'], 200);
  const [accept] = of(partner.spans(), 'accept payment');
  assert(accept);
  assert.equal(accept.parentSpanContext?.spanId, put.spanContext().spanId);
  const [post] = of(partner.spans(), 'post payment');
  assert(post);
  assert.equal(post.parentSpanContext?.spanId, accept.spanContext().spanId);
  assert.equal(post.attributes['duebridge.result'], 'done');
  const polls = of(platform.spans(), 'GET payment').map((span) => span.spanContext().spanId);
  const reads = of(partner.spans(), 'read payment');
  assert(reads.length > 0);
  for (const read of reads) assert(polls.includes(read.parentSpanContext?.spanId ?? ''));

  // The same calls stand in the log: one line each, with what finds them in the partner's logs.
  const calls = [put, ...of(platform.spans(), 'GET payment')];
  assert.deepEqual(
    new Set(
      lines.map(
        (line) =>
          `${String(line['call'])} ${String(line['platform_payment_id'])} ${String(line['request_id'])}`,
      ),
    ),
    new Set(
      calls.map((span) => `${span.name} ${id} ${String(span.attributes['duebridge.request_id'])}`),
    ),
  );
  assert.equal(lines.length, calls.length);
  assert(lines.every((line) => line['status'] === 200 && typeof line['ms'] === 'number'));

  const exported = JSON.stringify([
    lines,
    [...platform.spans(), ...partner.spans()].map(({ name, attributes, events, status }) => ({
      name,
      attributes,
      events,
      status,
    })),
  ]);
  for (const datum of [
    'ACCOUNT-17',
    'Ada',
    'Lovelace',
    secret,
    client.api_key,
    '9876543',
    '98765.43',
  ]) {
    assert(!exported.includes(datum), `a span holds ${datum}`);
  }
});

test('a configured collector gets the spans when a server stops, and an unreachable one delays no stop', async () => {
  const bodies: string[] = [];
  const collector = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      bodies.push(`${request.url ?? ''} ${body}`);
      response.setHeader('content-type', 'application/json').end('{}');
    });
  });
  await new Promise<void>((resolve) => collector.listen(0, '127.0.0.1', resolve));
  after(() => new Promise((resolve) => collector.close(resolve)));
  const { port } = collector.address() as AddressInfo;
  const id = '0197c1de-7f7e-7c3a-8d0a-3f2d7a5b9c11';
  for (const endpoint of [`http://127.0.0.1:${port}`, 'http://127.0.0.1:9']) {
    const tracing = await openTracing({ endpoint, service: 'duebridge-platform' });
    tracing.began(id, 'confirm payment', Date.now(), { 'duebridge.partner_id': 'gas' });
    tracing.call(id, 'PUT payment', {}).end();
    const began = Date.now();
    await tracing.close();
    assert(Date.now() - began < 120_000);
  }
  assert.equal(bodies.length, 1);
  const [sent = ''] = bodies;
  assert(sent.startsWith('/v1/traces '));
  assert(sent.includes(id.replaceAll('-', '')));
  assert(sent.includes('duebridge-platform'));
});

test('whether a payment is traced depends on its id alone, on both sides', async () => {
  const ids = Array.from({ length: 400 }, () => crypto.randomUUID());
  const traced = async (): Promise<Set<string>> => {
    const exporter = new InMemorySpanExporter();
    const tracing = await openTracing({ endpoint: 'http://x', service: 's', ratio: 0.5, exporter });
    for (const id of ids) tracing.call(id, 'PUT payment', {}).end();
    const spans = exporter.getFinishedSpans();
    return new Set(spans.map((span) => span.spanContext().traceId));
  };
  const [first, second] = [await traced(), await traced()];
  assert.deepEqual(first, second);
  assert(first.size > 100 && first.size < 300, `${first.size} of 400`);
});
