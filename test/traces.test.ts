/** One payment, one trace: both sides make their spans in it, and none of them says more than an id, a method and a status. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { silentLog } from '@duebridge/runtime';
import { trace } from '@opentelemetry/api';
import {
  InMemorySpanExporter,
  SimpleSpanProcessor,
  TracerProvider,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace';
import { BothSides, gasCompany } from './support/both-sides.ts';
import { createToken, openSession, type Client } from './support/customer.ts';

const sides = new BothSides();
after(() => sides.stop());

const secret = 'the-key-that-the-biller-chose';
const csv =
  'biller_id,account_id,status,first_name,last_name,amount_due,due_date\n' +
  'gas,ACCOUNT-17,active,Ada,Lovelace,120.50,2026-12-01\n';

// What `node --import` does with the SDK (docs/operations.md), for both sides in this process.
const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(
  new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }),
);

async function pay(client: Client): Promise<string> {
  const { body } = await createToken(client, { account_id: 'ACCOUNT-17' });
  const browser = await openSession(client.platformUrl, body.token);
  const { body: payment } = await browser.confirm(9_876_543);
  const id = payment.platform_payment_id;
  assert.equal((await browser.ended(id)).status, 'succeeded');
  return id;
}

test('confirm, calls, acceptance and posting of a payment are one trace, and one log line for each attempt, without personal data or secrets [PL15]', async () => {
  const lines: Record<string, unknown>[] = [];
  const debug = (details: object, message: string): void => {
    if (message === 'a partner was called') lines.push({ ...details, message });
  };
  const log = { ...silentLog, debug, info: debug };
  const partner = await sides.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [secret] },
  });
  await partner.importAccounts(csv);
  const { register } = await sides.platform({ log });
  const client = await register(gasCompany(partner.server.url, secret));
  const id = await pay(client);
  const traceId = id.replaceAll('-', '');
  const of = (name: string): ReadableSpan[] =>
    exporter
      .getFinishedSpans()
      .filter((span) => span.name === name && span.spanContext().traceId === traceId);

  const [confirm, ...more] = of('confirm payment');
  assert(confirm);
  assert.deepEqual(more, []);
  const [put] = of('PUT payment');
  assert(put);
  assert.equal(put.parentSpanContext?.spanId, confirm.parentSpanContext?.spanId);
  assert.equal(put.attributes['http.response.status_code'], 200);
  const [accept] = of('accept payment');
  assert(accept);
  assert.equal(accept.parentSpanContext?.spanId, put.spanContext().spanId);
  const [post] = of('post payment');
  assert(post);
  assert.equal(post.parentSpanContext?.spanId, confirm.parentSpanContext?.spanId);
  assert.equal(post.attributes['duebridge.result'], 'done');
  const polls = of('GET payment').map((span) => span.spanContext().spanId);
  const reads = of('read payment');
  assert(reads.length > 0);
  for (const read of reads) assert(polls.includes(read.parentSpanContext?.spanId ?? ''));

  // The same calls stand in the log: one line each, with what finds them in the partner's logs.
  const calls = [put, ...of('GET payment')];
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
    exporter.getFinishedSpans().map(({ name, attributes, events, status }) => ({
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
