/**
 * A partner server in plain Node 24 or later: no framework, no package, one file.
 *
 *   PARTNER_KEY=… node partner.mjs          listens on 127.0.0.1:4400, keeps its books in partner.db
 *
 * It hosts what the platform calls: accounts, balances, payments. Replace the two marked places by
 * your own system. What must stay as it is: the primary key on platform_payment_id, the insert that
 * does nothing when the id is known, and the answer that leaves only after the commit.
 */
import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';
import { DatabaseSync } from 'node:sqlite';

const { PARTNER_KEY, PARTNER_DB = 'partner.db', PORT = '4400' } = process.env;
if (!PARTNER_KEY) throw new Error('Set PARTNER_KEY, the key that the platform sends as x-api-key.');

const MAX_BODY_BYTES = 65_536;
const MAX_AMOUNT_IN_CENTS = 10_000_000; // your own limit for one payment

const database = new DatabaseSync(PARTNER_DB);
database.exec(`
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;  -- an answer that left must survive a power cut
  CREATE TABLE IF NOT EXISTS account (
    biller_id TEXT, account_id TEXT, status TEXT NOT NULL, amount_due_in_cents INTEGER NOT NULL,
    PRIMARY KEY (biller_id, account_id)
  ) STRICT;
  CREATE TABLE IF NOT EXISTS payment (
    platform_payment_id TEXT PRIMARY KEY,  -- over all accounts, forever: this is the whole idempotency
    payment_id TEXT NOT NULL, platform_batch_id TEXT NOT NULL,
    biller_id TEXT NOT NULL, account_id TEXT NOT NULL, amount_in_cents INTEGER NOT NULL,
    status TEXT NOT NULL, initiated_at TEXT NOT NULL, posted_at TEXT, failure_reason TEXT
  ) STRICT;
  -- Your accounts: the first place to replace by your own system.
  INSERT OR IGNORE INTO account VALUES
    ('my-biller', 'A-1', 'active', 12500), ('my-biller', 'A-2', 'active', 9900),
    ('my-biller', 'A-3', 'inactive', 0);
`);
const findAccount = database.prepare(
  'SELECT * FROM account WHERE biller_id = ? AND account_id = ?',
);
const findPayment = database.prepare('SELECT * FROM payment WHERE platform_payment_id = ?');
const acceptPayment = database.prepare(`
  INSERT INTO payment VALUES (?, ?, ?, ?, ?, ?, 'processing', ?, NULL, NULL) ON CONFLICT DO NOTHING`);
const findProcessing = database.prepare(`SELECT * FROM payment WHERE status = 'processing'`);
const endPayment = database.prepare(`
  UPDATE payment SET status = ?, posted_at = ?, failure_reason = ?
  WHERE platform_payment_id = ? AND status = 'processing'`); // what has ended never changes
const takeFromBalance = database.prepare(`
  UPDATE account SET amount_due_in_cents = amount_due_in_cents - ?
  WHERE biller_id = ? AND account_id = ?`);

/** Posts what was accepted: the second place to replace by your own system. */
function applyPayments() {
  for (const payment of findProcessing.all()) {
    const account = findAccount.get(payment.biller_id, payment.account_id);
    let reason = null;
    if (account?.status !== 'active') reason = 'The account was not found or is not active.';
    else if (payment.amount_in_cents > MAX_AMOUNT_IN_CENTS)
      reason = 'The amount is above the maximum that we take.';
    // Status and balance move together, or not at all: if this throws, the process ends and nothing stands.
    database.exec('BEGIN IMMEDIATE');
    if (reason === null) {
      const now = new Date().toISOString();
      endPayment.run('succeeded', now, null, payment.platform_payment_id);
      takeFromBalance.run(payment.amount_in_cents, payment.biller_id, payment.account_id);
    } else {
      endPayment.run('failed', null, reason, payment.platform_payment_id);
    }
    database.exec('COMMIT');
  }
}

/** A refusal: thrown anywhere, answered as JSON. */
class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function checkKey(request) {
  // Digests have one length, so that the comparison takes the same time for every wrong key.
  const digest = (text) => createHash('sha256').update(text).digest();
  const given = digest(request.headers['x-api-key'] ?? '');
  if (!timingSafeEqual(given, digest(PARTNER_KEY)))
    throw new Refusal(401, 'UNAUTHORIZED', 'The key is missing or not valid');
}

async function readInstruction(request, platform_payment_id) {
  if (!/^application\/json\b/i.test(request.headers['content-type'] ?? ''))
    throw new Refusal(415, 'UNSUPPORTED_MEDIA_TYPE', 'Send application/json');
  let text = '';
  for await (const piece of request.setEncoding('utf8')) {
    text += piece;
    if (text.length > MAX_BODY_BYTES)
      throw new Refusal(413, 'PAYLOAD_TOO_LARGE', 'The body is too large');
  }
  let body;
  try {
    // 1e2 and 1.0 are numbers to JavaScript; an amount is written in digits alone.
    body = JSON.parse(text, (name, value, { source }) =>
      name === 'amount_in_cents' && !/^[0-9]+$/.test(source) ? undefined : value,
    );
  } catch {
    throw new Refusal(400, 'INVALID_REQUEST', 'The body is not JSON');
  }
  const { amount_in_cents, platform_batch_id } = body ?? {};
  if (!Number.isSafeInteger(amount_in_cents) || amount_in_cents < 1)
    throw new Refusal(400, 'INVALID_REQUEST', 'amount_in_cents must be a whole number from 1');
  if (typeof platform_batch_id !== 'string' || platform_batch_id === '')
    throw new Refusal(400, 'INVALID_REQUEST', 'platform_batch_id must be a text');
  if ((body.platform_payment_id ?? platform_payment_id) !== platform_payment_id)
    throw new Refusal(400, 'INVALID_REQUEST', 'platform_payment_id is not the one in the path');
  return { amount_in_cents, platform_batch_id };
}

function paymentRecord(row) {
  const { failure_reason, ...record } = row;
  return failure_reason === null ? record : { ...record, failure_reason };
}

function existingAccount(biller_id, account_id) {
  const account = findAccount.get(biller_id, account_id);
  if (account === undefined) throw new Refusal(404, 'ACCOUNT_NOT_FOUND', 'Account not found');
  return account;
}

function existingPayment(platform_payment_id, belongsHere = () => true) {
  const payment = findPayment.get(platform_payment_id);
  if (payment === undefined || !belongsHere(payment))
    throw new Refusal(404, 'PAYMENT_NOT_FOUND', 'Payment not found');
  return paymentRecord(payment);
}

/** Gives the body of a 200, or throws. */
async function answer(request) {
  checkKey(request);
  // Split first, decode after: an encoded slash belongs to an id, it is no step in the path.
  const [, ...parts] = request.url.split('?')[0].split('/');
  const [first, one, second, two, third, three, ...rest] = parts.map(decodeURIComponent);
  const is = (method, ...words) =>
    request.method === method &&
    rest.length === 0 &&
    [first, second, third].every((word, place) => word === words[place]);

  if (is('GET', 'biller', 'account') && two) {
    const { amount_due_in_cents, ...account } = existingAccount(one, two);
    return { ...account, balance: { amount_due_in_cents } };
  }
  if (is('GET', 'biller', 'account', 'balance') && three === undefined) {
    return { amount_due_in_cents: existingAccount(one, two).amount_due_in_cents };
  }
  if (is('GET', 'biller', 'account', 'payment') && three) {
    const here = (payment) => payment.biller_id === one && payment.account_id === two;
    return existingPayment(three, here);
  }
  if (is('GET', 'payment') && one) return existingPayment(one);
  if (is('PUT', 'biller', 'account', 'payment') && three) {
    const { amount_in_cents, platform_batch_id } = await readInstruction(request, three);
    const now = new Date().toISOString();
    // A known id changes nothing here, whatever else came with it; then both read what is stored.
    acceptPayment.run(three, randomUUID(), platform_batch_id, one, two, amount_in_cents, now);
    return paymentRecord(findPayment.get(three));
  }
  throw new Refusal(404, 'NOT_FOUND', 'There is nothing here');
}

async function serve(request, response) {
  let status = 200;
  let body;
  try {
    body = await answer(request);
  } catch (error) {
    const refusal =
      error instanceof Refusal
        ? error
        : error instanceof URIError
          ? new Refusal(400, 'INVALID_REQUEST', 'The path is not well encoded')
          : new Refusal(500, 'INTERNAL_ERROR', 'An unexpected error occurred');
    if (refusal.status === 500) console.error(error); // for your log, never for the caller
    status = refusal.status;
    body = { code: refusal.code, message: refusal.message };
  }
  response.writeHead(status, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify(body));
}

const server = createServer((request, response) => void serve(request, response));
setInterval(applyPayments, 200);
server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`Partner server at http://127.0.0.1:${server.address().port}`);
});
