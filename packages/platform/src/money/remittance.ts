/**
 * Remittances: what each biller is owed for a batch, and its transfer.
 *
 * enters: a batch that is closed and compared without an open difference.  leaves: one remittance for each of its billers, whose money is
 *         transferred through a channel, or carried into the biller's next one.
 * holds:  a batch is remitted once, and a payment is in one batch: no payment is remitted twice, and none is left out. Sending is like a PUT:
 *         the intent is committed with its row of the book before the channel is called; a remittance whose send has no answer is looked up
 *         by its id, and is never sent under another one.
 * next:   statement.ts tells the biller; people carry transfers to banks (desk.ts), stripe-transfers.ts is the channel of Stripe Connect.
 *
 * The life of a remittance, by `state`: `due` waits for its day, for the biller's account, or for the end of a hold; `sending`: the
 * channel may have it; `sent`: the channel has it, or people do; `paid`; `returned`: it was refused, or sent back. A `carried` one has
 * nothing to transfer: what is below the biller's minimum or below zero goes into the next one, as does what came back.
 */
import { conflict, formatCents, type Mode, type RemittanceView } from '@duebridge/contract';
import { messageOf, sql, type Database } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import type { Partner } from '../partners/registry.ts';
import { windowDay } from '../reconciliation/batch.ts';
import type { Services } from '../services.ts';
import { note } from '../store/audit.ts';
import { IN_THE_BOOK } from '../store/money-book.ts';
import type { Queryable } from '../store/payments.ts';
import { bankDayFrom, dayAfter, dayOf } from './bank-days.ts';
import { MAX_NACHA_CENTS } from './bank-file.ts';
import { openCreditor, type Creditor } from './payouts.ts';

/** A remittance as a channel gets it. */
export interface RemittanceOrder {
  /** Ours, forever: by it the channel knows an order that it has had before. */
  readonly remittance_id: string;
  readonly amount_in_cents: number;
  /** Test money does not exist: no channel transfers it with live money. */
  readonly mode: Mode;
  readonly creditor: Creditor;
}

/** What a channel says of an order. */
export type Sent =
  | { readonly kind: 'sent'; readonly reference?: string }
  /** Certain: the money has not left, and will not under this id. */
  | { readonly kind: 'refused'; readonly reason: string };

/** What became of a transfer. */
export type Transferred =
  | { readonly kind: 'under_way' }
  | { readonly kind: 'paid'; readonly reference?: string }
  | { readonly kind: 'returned'; readonly reason: string };

/**
 * Through which money reaches billers over the network. A call that throws is unknown: the money may be on its way. `send` may be called
 * again with the same order, and transfers it once.
 */
export interface RemittanceChannel {
  send(order: RemittanceOrder): Promise<Sent>;
  /** What it has under our id; undefined when it certainly has nothing. */
  find(remittance_id: string): Promise<Sent | undefined>;
  /** What became of it. */
  state(remittance_id: string): Promise<Transferred>;
}

/** What remitting stands on. */
interface Remitting extends Pick<Services, 'database' | 'sealer' | 'clock' | 'log'> {
  readonly registry: Pick<Services['registry'], 'get'>;
  /** That of Stripe; undefined while it is not configured. */
  readonly channel: RemittanceChannel | undefined;
  /** Compares a batch with its partner (reconciliation/reconcile.ts). */
  readonly compare: (platform_batch_id: string) => Promise<unknown>;
}

/** Batches, and transfers, that one round takes at most; the rest waits for the next. */
const AT_ONCE = 500;
/** Closing a day of a million payments reads each of them. */
const MAKE_TIMEOUT_MS = 300_000;
const ACTOR = 'remittance';

// Making ----------------------------------------------------------------------------------------------------------------------

/**
 * `$1`: those that wait for people, who resolve their differences; apart, so that they do not hide the others behind the limit. The others in any
 * order: the batch of a partner that is gone is never compared, and must not hide them either.
 */
const closedStatement = sql(`
   SELECT * FROM (
   SELECT b.platform_batch_id, b.partner_id, b.cutoff_at,
          EXISTS (SELECT 1 FROM duebridge_platform.comparisons c WHERE c.platform_batch_id = b.platform_batch_id AND c.compared_at >= b.closed_at) AS is_compared,
          EXISTS (SELECT 1 FROM duebridge_platform.differences d WHERE d.platform_batch_id = b.platform_batch_id AND d.resolved_at IS NULL) AS differs
     FROM duebridge_platform.batches b
    WHERE b.closed_at IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM duebridge_platform.remitted_batches r WHERE r.platform_batch_id = b.platform_batch_id)) AS closed
    WHERE (differs AND is_compared) = $1 ORDER BY CASE WHEN NOT $1 THEN random() END, cutoff_at, platform_batch_id LIMIT ${AT_ONCE}`);
const claimStatement = sql(`
   INSERT INTO duebridge_platform.remitted_batches (platform_batch_id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1 AS one`);
/** What the payments say and what the book says, apart, a payment counted once whatever its rows: they must agree before money leaves. */
const owedStatement = sql(`
   SELECT s.biller_id, count(*)::int AS payments, sum(s.gross)::bigint AS gross, sum(s.booked)::bigint AS booked
     FROM (SELECT p.platform_payment_id, p.biller_id, p.amount_in_cents AS gross, coalesce(sum(t.amount_in_cents), 0) AS booked
             FROM duebridge_platform.payments p
             LEFT JOIN duebridge_platform.transfers t ON t.id = p.platform_payment_id AND t.credit = 'owed' AND t.act IN ('settled', 'word')
            WHERE p.platform_batch_id = $1 AND p.status = 'succeeded' AND ${IN_THE_BOOK}
            GROUP BY 1, 2, 3) AS s
    GROUP BY s.biller_id ORDER BY s.biller_id`);
const digestStatement = sql(`
   SELECT statement ->> 'sha256' AS sha256 FROM duebridge_platform.batches WHERE platform_batch_id = $1`);
/**
 * Remittances of shares, `$5`, with what earlier remittances carried, and less what is taken off. One below the minimum of its biller is carried
 * itself, unless `$6`: the biller has no next one.
 */
const makeStatement = sql(`
   WITH u AS (
     SELECT u.*, coalesce(o.minimum_in_cents, 1) AS least
       FROM jsonb_to_recordset($5::jsonb) AS u (id text, biller_id text, payments int, gross bigint)
       LEFT JOIN duebridge_platform.payouts o ON o.partner_id = $2 AND o.biller_id = u.biller_id
   ), carried AS (
     UPDATE duebridge_platform.remittances AS r SET carried_to = u.id FROM u
      WHERE r.partner_id = $2 AND r.biller_id = u.biller_id AND r.state IN ('carried', 'returned') AND r.carried_to IS NULL
      RETURNING u.id, r.net_in_cents AS cents
   ), deducted AS (
     UPDATE duebridge_platform.deductions AS d SET remittance_id = u.id FROM u
      WHERE d.partner_id = $2 AND d.biller_id = u.biller_id AND d.remittance_id IS NULL
      RETURNING u.id, d.amount_in_cents AS cents
   ), s AS (
     SELECT u.*, coalesce(d.cents, 0) AS deducted, coalesce(c.cents, 0) AS carried, u.gross - coalesce(d.cents, 0) + coalesce(c.cents, 0) AS net
       FROM u LEFT JOIN (SELECT id, sum(cents)::bigint AS cents FROM carried GROUP BY id) AS c USING (id)
       LEFT JOIN (SELECT id, sum(cents)::bigint AS cents FROM deducted GROUP BY id) AS d USING (id)
   ), made AS (
     INSERT INTO duebridge_platform.remittances AS made (remittance_id, platform_batch_id, partner_id, biller_id, payments, gross_in_cents,
            deducted_in_cents, carried_in_cents, net_in_cents, sha256, due_on, state)
     SELECT s.id, $1, $2, s.biller_id, s.payments, s.gross, s.deducted, s.carried, s.net, $3, $4::date,
            CASE WHEN s.net >= s.least OR ($6 AND s.net > 0) THEN 'due' ELSE 'carried' END FROM s
     RETURNING made.net_in_cents
   )
   SELECT made.net_in_cents FROM made`);

interface ClosedBatch {
  readonly platform_batch_id: string;
  readonly partner_id: string;
  readonly cutoff_at: string;
  readonly is_compared: boolean;
}

/** Why a batch is not remitted yet, in words for `money`; undefined when it is. */
async function makeOf(
  { database, registry, compare, clock }: Remitting,
  batch: ClosedBatch,
): Promise<string | undefined> {
  if (!batch.is_compared) {
    await compare(batch.platform_batch_id);
    return 'it is being compared with its partner';
  }
  const partner = await registry.get(batch.partner_id);
  if (partner === undefined) return 'its partner is not registered';
  return database.transaction((tx) => makeIn(tx, partner, batch, clock.now()), {
    statementTimeoutMs: MAKE_TIMEOUT_MS,
  });
}

async function makeIn(
  tx: Queryable,
  partner: Partner,
  { platform_batch_id, partner_id, cutoff_at }: ClosedBatch,
  now: number,
): Promise<string | undefined> {
  interface Share {
    readonly biller_id: string;
    readonly payments: number;
    readonly gross: number;
    readonly booked: number;
  }
  const owed = await tx.query<Share>(owedStatement, [platform_batch_id]);
  const wrong = owed.find(({ gross, booked }) => gross !== booked);
  // Funds are captured after the batch has closed, too.
  if (wrong !== undefined) {
    return `payments of biller ${wrong.biller_id} are ${formatCents(wrong.gross)}, of which the book has ${formatCents(wrong.booked)}`;
  }
  if ((await tx.query(claimStatement, [platform_batch_id])).length === 0) return undefined;
  const [digest] = await tx.query<{ sha256: string }>(digestStatement, [platform_batch_id]);
  const shares = owed.map((one) => ({ ...one, id: uuidv7({ msecs: now }) }));
  const due_on =
    // Money of a test registration goes to no bank: nobody has to wait for its days.
    partner.mode === 'test'
      ? dayOf(now)
      : bankDayFrom(dayAfter(windowDay(partner, Date.parse(cutoff_at))));
  const of = [platform_batch_id, partner_id, digest?.sha256 ?? '', due_on];
  await tx.query(makeStatement, [...of, JSON.stringify(shares), false]);
  const detail = { platform_batch_id, billers: shares.length };
  await note(tx, { actor: ACTOR, event: 'batch_remitted', partner_id, detail });
  return undefined;
}

/** A batch of the partner that is not remitted, its open one among them, and holds what the biller is owed, or will be. */
const holdingStatement = sql(`
   SELECT p.platform_batch_id FROM duebridge_platform.payments p
    WHERE p.platform_batch_id = ANY($1::text[]) AND p.biller_id = $2 AND p.status IN ('processing', 'succeeded') LIMIT 1`);
const unremittedStatement = sql(`
   SELECT b.platform_batch_id FROM duebridge_platform.batches b
    WHERE b.partner_id = $1 AND NOT EXISTS (SELECT 1 FROM duebridge_platform.remitted_batches r WHERE r.platform_batch_id = b.platform_batch_id)
    ORDER BY b.cutoff_at`);

/**
 * What a biller that has left is still owed: carried from earlier remittances or sent back, less what is taken off. It has no next batch, so
 * that this makes a remittance of its own for it, whatever its minimum. Returns its id. Throws Refusal CONFLICT while a batch with
 * payments of this biller is not remitted, and when nothing is owed.
 */
export function payOut(
  database: Database,
  { partner_id }: Pick<Partner, 'partner_id'>,
  biller_id: string,
  { reason, actor, now }: { readonly reason: string; readonly actor: string; readonly now: number },
): Promise<string> {
  type Batch = Pick<ClosedBatch, 'platform_batch_id'>;
  return database.transaction(async (tx) => {
    const open = await tx.query<Batch>(unremittedStatement, [partner_id]);
    const ids = open.map((one) => one.platform_batch_id);
    const [batch] = await tx.query<Batch>(holdingStatement, [ids, biller_id]);
    if (batch !== undefined) {
      throw conflict(
        `Batch ${batch.platform_batch_id} is not remitted yet: what the biller is owed is part of its remittance`,
      );
    }
    const id = uuidv7({ msecs: now });
    const none = JSON.stringify([{ id, biller_id, payments: 0, gross: 0 }]);
    // No batch: an id of the same form, which no batch has.
    const of = [`rest-${id}`, partner_id, '', dayOf(now), none, true];
    const [rest] = await tx.query<{ net_in_cents: number }>(makeStatement, of);
    const { net_in_cents = 0 } = rest ?? {};
    if (net_in_cents === 0) throw conflict('This biller is owed nothing');
    if (net_in_cents < 0) {
      throw conflict(
        `This biller has received ${formatCents(-net_in_cents)} too much: it pays that back outside the platform`,
      );
    }
    const detail = { remittance_id: id, biller_id, net_in_cents, reason };
    await note(tx, { actor, event: 'rest_paid_out', partner_id, detail });
    return id;
  });
}

// Sending ---------------------------------------------------------------------------------------------------------------------

/** A move of remittances with its rows of the book. `$2` the state before, `$3` after, `$4` the act, `$5` and `$6` the accounts. */
const moveStatement = sql(`
   WITH r AS (
     UPDATE duebridge_platform.remittances AS r
        SET state = $3, reference = coalesce($7, r.reference), reason = coalesce($8, r.reason),
            sent_at = CASE WHEN $3 = 'sending' THEN $9::timestamptz ELSE r.sent_at END,
            ended_at = CASE WHEN $3 IN ('paid', 'returned') THEN $9::timestamptz ELSE r.ended_at END
      WHERE r.remittance_id = ANY($1::text[]) AND r.state = $2 RETURNING r.*
   ), booked AS (
     INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id)
     SELECT r.remittance_id, $4, ($9::timestamptz AT TIME ZONE 'UTC')::date, $5, $6, r.net_in_cents, r.partner_id, r.biller_id
       FROM r WHERE $4::text IS NOT NULL ON CONFLICT (id, act) DO NOTHING
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
     SELECT $10, 'remittance_' || r.state, r.partner_id,
            jsonb_strip_nulls(jsonb_build_object('remittance_id', r.remittance_id, 'biller_id', r.biller_id, 'net_in_cents', r.net_in_cents,
                                                 'reference', $7::text, 'reason', $8::text)) FROM r
   )
   SELECT r.remittance_id FROM r`);

/** The moves, `from to`, and what each books. */
const MOVES = {
  'due sending': ['sent', 'owed', 'remitting'],
  'sending sent': [null, null, null],
  'sending returned': ['came_back', 'remitting', 'owed'],
  'sent paid': ['paid', 'remitting', 'paid'],
  'sent returned': ['came_back', 'remitting', 'owed'],
  'paid returned': ['came_back', 'paid', 'owed'],
} as const;
export type RemittanceMove = keyof typeof MOVES;

/** Moves remittances that are in the state that the move begins in; returns how many. `actor`: whose word it is. */
export async function moveRemittances(
  on: Queryable,
  ids: readonly string[],
  by: RemittanceMove,
  now: number,
  said: {
    readonly reference?: string | undefined;
    readonly reason?: string | undefined;
    readonly actor?: string;
  } = {},
): Promise<number> {
  const moved = await on.query(moveStatement, [
    ids,
    ...by.split(' '),
    ...MOVES[by],
    said.reference?.slice(0, 200) ?? null,
    said.reason?.slice(0, 500) ?? null,
    new Date(now).toISOString(),
    said.actor ?? ACTOR,
  ]);
  return moved.length;
}

const dueStatement = sql(`
   SELECT r.remittance_id FROM duebridge_platform.remittances r JOIN duebridge_platform.payouts o USING (partner_id, biller_id)
    WHERE r.state = 'due' AND r.due_on <= $1::date AND NOT o.held ORDER BY r.due_on, r.remittance_id LIMIT ${AT_ONCE}`);
/**
 * What is to be sent, or asked about: people say what became of the others. Those to be sent first, the others in any order: many that stay
 * under way must not hide one that has ended.
 */
const openStatement = sql(`
   SELECT r.remittance_id, r.partner_id, r.biller_id, r.net_in_cents, r.state, r.tries, r.way, m.mode
     FROM duebridge_platform.remittances r JOIN duebridge_platform.payouts o USING (partner_id, biller_id)
     JOIN duebridge_platform.partners m USING (partner_id)
    WHERE (r.state = 'sending' AND NOT o.held) OR (r.state = 'sent' AND r.way = 'stripe') ORDER BY r.state, random() LIMIT ${4 * AT_ONCE}`);
/**
 * The account as it is now; none while the biller is held. The way is that of the first try, forever: another replica may be sending by it at
 * this moment, and no channel knows what the other one does.
 */
const triedStatement = sql(`
   UPDATE duebridge_platform.remittances r SET tries = tries + 1, way = coalesce(r.way, o.way) FROM duebridge_platform.payouts o
    WHERE r.remittance_id = $1 AND r.state = 'sending' AND o.partner_id = r.partner_id AND o.biller_id = r.biller_id AND NOT o.held
    RETURNING r.way, o.sealed`);

type OpenRemittance = Pick<
  RemittanceView,
  'remittance_id' | 'partner_id' | 'biller_id' | 'net_in_cents' | 'state'
> & {
  readonly tries: number;
  /** By which it was tried first; null before that. */
  readonly way: string | null;
  readonly mode: Mode;
};

/** Sends one, or asks for it when it may have been sent before. */
async function send(remitting: Remitting, one: OpenRemittance): Promise<void> {
  const { database, sealer, clock } = remitting;
  const { remittance_id, net_in_cents: amount_in_cents, mode } = one;
  const isKnown = one.way === 'stripe' && one.tries > 0;
  const found = isKnown ? await byStripe(remitting).find(remittance_id) : undefined;
  // Noted before the call: after a crash in between, the channel is asked first.
  const [payout] = await database.query<{ way: string; sealed: string }>(triedStatement, [
    remittance_id,
  ]);
  if (payout === undefined) return;
  const creditor = openCreditor(sealer, { ...one, sealed: payout.sealed });
  const sent =
    found ??
    (payout.way === 'stripe'
      ? await byStripe(remitting).send({ remittance_id, amount_in_cents, mode, creditor })
      : toTheDesk(payout.way, amount_in_cents));
  const by = sent.kind === 'sent' ? 'sending sent' : 'sending returned';
  await moveRemittances(database, [remittance_id], by, clock.now(), sent);
}

function byStripe({ channel }: Remitting): RemittanceChannel {
  if (channel === undefined) throw new Error('Stripe is not configured');
  return channel;
}

/** People have it from now on (desk.ts). */
function toTheDesk(way: string, amount_in_cents: number): Sent {
  return way === 'nacha' && amount_in_cents > MAX_NACHA_CENTS
    ? {
        kind: 'refused',
        reason: 'a NACHA entry holds $99,999,999.99 at most: pay this biller another way',
      }
    : { kind: 'sent' };
}

/** Asks what became of one that was sent. */
async function follow(remitting: Remitting, { remittance_id }: OpenRemittance): Promise<void> {
  const state = await byStripe(remitting).state(remittance_id);
  if (state.kind === 'under_way') return;
  const { database, clock } = remitting;
  await moveRemittances(database, [remittance_id], `sent ${state.kind}`, clock.now(), state);
}

/** What a round did not do, and why. */
export type Waiting = Readonly<Record<'what' | 'why', string>>;

/**
 * One round: remittances are made of the batches that are ready, sent when they are due, and followed to their end. Any number of replicas
 * may do it. Returns what it could not do.
 */
export async function remit(remitting: Remitting): Promise<Waiting[]> {
  const { database, clock, log } = remitting;
  const waiting: Waiting[] = [];
  const tried = async (what: string, work: () => Promise<string | undefined | void>) => {
    try {
      const why = await work();
      if (why !== undefined) waiting.push({ what, why });
    } catch (error) {
      waiting.push({ what, why: messageOf(error) });
      log.warn({ what, error: messageOf(error) }, 'a step of a remittance failed; it is repeated');
    }
  };
  const closed = (differ: boolean) => database.query<ClosedBatch>(closedStatement, [differ]);
  for (const { platform_batch_id } of await closed(true)) {
    waiting.push({ what: `batch ${platform_batch_id}`, why: 'it has open differences' });
  }
  for (const batch of await closed(false)) {
    await tried(`batch ${batch.platform_batch_id}`, () => makeOf(remitting, batch));
  }
  type Due = Pick<OpenRemittance, 'remittance_id'>;
  for (const { remittance_id } of await database.query<Due>(dueStatement, [dayOf(clock.now())])) {
    await tried(`remittance ${remittance_id}`, async () => {
      await moveRemittances(database, [remittance_id], 'due sending', clock.now());
    });
  }
  for (const one of await database.query<OpenRemittance>(openStatement)) {
    const what = `remittance ${one.remittance_id}`;
    await tried(what, () =>
      one.state === 'sending' ? send(remitting, one) : follow(remitting, one),
    );
  }
  return waiting;
}
