/**
 * No statement that serves a caller of one partner can read or write another partner's rows: each names the partner, or a secret, a
 * flow or a client that belongs to one (decision 136). What serves operators and the engine stands for all partners and is not meant.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { statementsOf } from './support/statements.ts';

/** Tables with rows of several partners. The kit has one caller. */
const TABLES: readonly string[] = [
  'payments',
  'tokens',
  'sessions',
  'flows',
  'flow_payments',
  'customers',
  'clients',
  'client_keys',
];

/** What ties a row to one tenant: the column is compared with something, or written. */
const TIES = /\b(?:partner_id|client_id|flow_id|token_hash|session_hash) *(?:=|,|\))/;

/**
 * Stages that a caller of one tenant reaches. Retention, mail and the look for lost payments are sweeps over all partners, which no
 * caller starts.
 */
const SERVES = /^checkout\/(?!retention|mail|lost-payments)/;

/** Statements without a tie, each by its beginning, with the reason. A new one needs a reason, too. */
const WITHOUT: readonly (readonly [file: string, begins: string, why: string])[] = [
  [
    'checkout/confirm.ts',
    'UPDATE duebridge_platform.customers',
    'the id is the session’s own, read by its hash',
  ],
  [
    'checkout/flow.ts',
    'SELECT count(*)::int AS stored',
    'counts which ids of the session’s own flow are stored, and reads nothing of them',
  ],
];

test('each statement that serves a caller names whose rows it reads', () => {
  const used = new Set<number>();
  let seen = 0;
  const table = new RegExp(`duebridge_platform\\.(${TABLES.join('|')})\\b`);
  for (const { file, text } of statementsOf('platform')) {
    const isOne =
      SERVES.test(file) && table.test(text) && /\b(SELECT|INSERT|UPDATE|DELETE)\b/.test(text);
    if (!isOne) continue;
    seen += 1;
    if (TIES.test(text)) continue;
    const index = WITHOUT.findIndex(([of, begins]) => of === file && text.startsWith(begins));
    assert.ok(index >= 0, `${file} names no partner: ${text}`);
    used.add(index);
  }
  assert.ok(seen >= 20, `${seen} statements were found`);
  assert.equal(used.size, WITHOUT.length, 'an exception that is not needed any more');
});

test('a customer’s payment is named by the flow and read by partner and account', () => {
  const ofFlow = statementsOf('platform').filter(({ file }) => file === 'checkout/flow.ts');
  const named = ofFlow.filter(({ text }) =>
    /(?:FROM|JOIN) duebridge_platform\.flow_payments\b/.test(text),
  );
  assert.ok(named.length >= 2);
  for (const { text } of named) assert.match(text, /\bflow_id = \$/, text);
  const read = ofFlow.filter(({ text }) =>
    /(?:FROM|JOIN) duebridge_platform\.payments p\b/.test(text),
  );
  assert.ok(read.length > 0);
  for (const { text } of read) {
    assert.match(text, /p\.partner_id = \$/, text);
    assert.match(text, /p\.account_id = \$/, text);
  }
});
