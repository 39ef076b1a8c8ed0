/**
 * A small paying platform in plain Node, written from the interface alone: it shares no code with the
 * judge.
 *
 *   PARTNER_URL=… PARTNER_KEY=… node caller.mjs            static key in x-api-key
 *   PARTNER_URL=… CLIENT_ID=… CLIENT_SECRET=… node caller.mjs   OAuth client credentials
 *
 * POST /pay {biller_id, account_id, amount_in_cents} starts a payment; GET /payments/ID returns its status.
 */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

const { PARTNER_URL, PARTNER_KEY, CLIENT_ID, CLIENT_SECRET, PORT = '0' } = process.env;
const payments = new Map();
const ENDS = new Set(['succeeded', 'failed', 'canceled']);
const batch = `batch-${new Date().toISOString().slice(0, 10)}`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let token;

async function fetchToken() {
  const answer = await fetch(`${PARTNER_URL}/oauth/token`, {
    method: 'POST',
    redirect: 'manual',
    body: new URLSearchParams({
      grant_type: 'client_credentials',
      client_id: CLIENT_ID,
      client_secret: CLIENT_SECRET,
      scope: 'read write',
    }),
    signal: AbortSignal.timeout(5_000),
  });
  const given = answer.status === 200 ? await answer.json() : {};
  // Reject a token that cannot be sent in a header.
  if (!/^[\x21-\x7e]{1,4096}$/.test(given?.access_token ?? '')) throw new Error('no token');
  if (!/^bearer$/i.test(given.token_type)) throw new Error('no bearer token');
  return given.access_token;
}

async function credential(refused) {
  if (PARTNER_KEY) return { 'x-api-key': PARTNER_KEY };
  // Concurrent calls share one token request; a refused token is renewed once.
  if (token === undefined || token === refused) token = fetchToken();
  const held = token;
  try {
    return { authorization: `Bearer ${await held}` };
  } catch (error) {
    if (token === held) token = undefined;
    throw error;
  }
}

/** Retry-After is a number of seconds or a date. */
function secondsOf(text) {
  return /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1_000;
}

/** Makes one call. Returns the payment's record, or how long to wait before the next attempt. */
async function call(method, payment, again) {
  let wait = payment.delay;
  payment.delay = Math.min(payment.delay * 1.5, 5_000);
  try {
    const held = again ?? token;
    const path = `/biller/${encodeURIComponent(payment.biller_id)}/account/${encodeURIComponent(payment.account_id)}/payment/${payment.id}`;
    const answer = await fetch(PARTNER_URL + path, {
      method,
      redirect: 'manual',
      headers: {
        ...(await credential(again)),
        ...(method === 'PUT' ? { 'content-type': 'application/json' } : {}),
      },
      ...(method === 'PUT' ? { body: payment.bytes } : {}),
      signal: AbortSignal.timeout(5_000),
    });
    const text = await answer.text();
    if (answer.status === 401 && !PARTNER_KEY && again === undefined) {
      return await call(method, payment, held ?? token);
    }
    const seconds = secondsOf(answer.headers.get('retry-after') ?? 'none');
    if (seconds > 0) wait = Math.max(wait, Math.min(seconds, 900) * 1_000);
    if (answer.status !== 200) return { wait };
    const record = JSON.parse(text);
    if (record?.platform_payment_id === undefined) return { wait };
    return { record, wait };
  } catch {
    // No response, half of one, or an unreadable one: the outcome is unknown, so retry.
    return { wait };
  }
}

async function drive(payment) {
  for (;;) {
    const { record, wait } = await call('PUT', payment);
    if (record !== undefined) break;
    await pause(wait);
  }
  payment.delay = 150;
  while (payment.status === 'processing') {
    await pause(payment.delay);
    const { record, wait } = await call('GET', payment);
    if (record !== undefined && ENDS.has(record.status)) {
      const mine =
        record.platform_payment_id === payment.id &&
        record.amount_in_cents === payment.amount_in_cents;
      if (!mine) return; // For a person to look at: the books differ.
      payment.status = record.status;
      return;
    }
    if (wait > payment.delay) await pause(wait - payment.delay);
  }
}

function begin({ biller_id, account_id, amount_in_cents }) {
  const id = randomUUID();
  const payment = {
    id,
    biller_id,
    account_id,
    amount_in_cents,
    status: 'processing',
    delay: 250,
    bytes: JSON.stringify({ amount_in_cents, platform_batch_id: batch, platform_payment_id: id }),
  };
  payments.set(id, payment);
  void drive(payment);
  return { platform_payment_id: id };
}

async function serve(request, response) {
  let text = '';
  for await (const piece of request) text += piece;
  const payment = payments.get(request.url.split('/').at(-1));
  const body =
    request.method === 'POST'
      ? begin(JSON.parse(text))
      : { status: payment === undefined ? 'unknown' : payment.status };
  response.setHeader('content-type', 'application/json').end(JSON.stringify(body));
}

const server = createServer((request, response) => void serve(request, response));
server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`Platform at http://127.0.0.1:${server.address().port}`);
});
