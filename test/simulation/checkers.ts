/**
 * What must hold for any history, whatever the faults were. Each checker takes a history and returns the violations it finds, in words;
 * checkers.test.ts gives each a forged history that it must refuse.
 */
import { isTerminal } from '@duebridge/contract';
import type { Ending, Event, PlatformRow } from './history.ts';

/** What the checkers look at. */
export interface Evidence {
  readonly events: readonly Event[];
  readonly end: Ending;
  /** Partners that lose accepted payments and accept them again under another payment_id. */
  readonly forgetful: ReadonlySet<string>;
  /** Partners that answer wrongly, so that their payments may rightly end in review. */
  readonly wrong: ReadonlySet<string>;
}

/** One violation; `rule` is the guarantee that it breaks. */
export interface Violation {
  readonly rule: string;
  readonly what: string;
}

type Checker = (evidence: Evidence) => Violation[];

/** PL1, EE1: what was confirmed still exists, once. */
const nothingIsLost: Checker = ({ events, end }) => {
  const rows = countBy(end.platform, (row) => row.id);
  const confirmed = of(events, 'confirmed');
  const known = new Set(confirmed.map(({ id }) => id));
  return [
    ...confirmed
      .filter(({ id }) => rows.get(id) !== 1)
      .map(({ id }) => ({
        rule: 'PL1',
        what: `${id} was confirmed and is there ${rows.get(id) ?? 0} times`,
      })),
    ...end.partner
      .filter(({ id }) => !known.has(id))
      .map(({ id, partner }) => ({
        rule: 'PL1',
        what: `${partner} has ${id}, which nobody confirmed`,
      })),
  ];
};

/** KT3, RU5: what a partner answered with 200 exists afterwards. */
const noAnswerIsTakenBack: Checker = ({ events, end }) => {
  const kept = new Set(end.partner.map(({ id }) => id));
  return unique(of(events, 'answered').filter(({ answer }) => answer.http === 200))
    .filter((id) => !kept.has(id))
    .map((id) => ({ rule: 'KT3', what: `${id} was answered with 200 and is not there` }));
};

/** KT2: a payment is posted once at most, with the amount that was confirmed, and only when it succeeded. */
const postedOnce: Checker = ({ events, end }) => {
  const cents = new Map(of(events, 'confirmed').map((event) => [event.id, event.cents]));
  const status = new Map(end.partner.map((row) => [row.id, row.status]));
  const count = countBy(end.postings, ({ id }) => id);
  return [
    ...[...count]
      .filter(([, times]) => times > 1)
      .map(([id, times]) => ({ rule: 'KT2', what: `${id} was posted ${times} times` })),
    ...end.postings
      .filter(({ id, cents: posted }) => posted !== cents.get(id))
      .map(({ id, cents: posted }) => ({
        rule: 'KT2',
        what: `${id} was posted with ${posted} instead of ${cents.get(id) ?? 'nothing'}`,
      })),
    ...end.partner
      .filter((row) => (row.status === 'succeeded') !== (count.get(row.id) ?? 0) > 0)
      .map(({ id }) => ({
        rule: 'KT6',
        what: `${id} is ${status.get(id) ?? ''}, posted ${count.get(id) ?? 0} times`,
      })),
  ];
};

/** PL7, EE1: funds are reserved before a PUT, captured exactly for what succeeded, and never both captured and released. */
const fundsFollowTheEnd: Checker = ({ events, end }) => {
  const acts = Map.groupBy(end.funds, ({ id }) => id);
  const putAt = new Map<string, number>();
  for (const { id, method, at } of of(events, 'sent')) {
    if (method === 'PUT' && !putAt.has(id)) putAt.set(id, at);
  }
  return end.platform.flatMap((row): Violation[] => {
    const mine = acts.get(row.id) ?? [];
    const captured = mine.filter(({ act }) => act === 'capture').length;
    const released = mine.filter(({ act }) => act === 'void').length;
    const found: Violation[] = [];
    if (captured > 1) found.push({ rule: 'PL7', what: `${row.id} was captured ${captured} times` });
    if (captured > 0 && released > 0)
      found.push({ rule: 'PL7', what: `${row.id} was captured and released` });
    const isReserved = row.collection === undefined || row.collection === 'reserved';
    if (captured > 0 && isReserved && !mine.some(({ act }) => act === 'authorize')) {
      found.push({ rule: 'PL7', what: `${row.id} was captured and never authorized` });
    }
    const sentAt = putAt.get(row.id) ?? Infinity;
    const holds = mine.filter(({ act }) => act === 'authorize');
    if (isReserved && (holds[0]?.at ?? 0) > sentAt) {
      found.push({ rule: 'PL7', what: `${row.id} was sent before its funds were reserved` });
    }
    const hold = holds.findLast(({ at = 0 }) => at <= sentAt);
    if (isReserved && hold?.until !== undefined && sentAt < Infinity && hold.until < sentAt) {
      found.push({ rule: 'PL7', what: `${row.id} was sent after its hold had expired` });
    }
    if (captured > 0 && row.status !== 'succeeded') {
      found.push({ rule: 'EE1', what: `${row.id} was captured and is ${row.status}` });
    }
    if (released > 0 && (row.status === 'processing' || row.status === 'succeeded')) {
      found.push({ rule: 'PL7', what: `${row.id} was released and is ${row.status}` });
    }
    const isTaken = row.collection !== 'elsewhere';
    if (!isTaken && mine.length > 0) {
      found.push({
        rule: 'PL7',
        what: `${row.id} is collected elsewhere, and its processor was asked`,
      });
    }
    if (row.settled && row.status === 'succeeded' && isTaken && captured === 0) {
      found.push({ rule: 'EE1', what: `${row.id} succeeded, is settled, and was not captured` });
    }
    return found;
  });
};

/**
 * PL5, PL6, EE2: what has ended here ended the same way at the partner, unless its funds failed before anything was sent. A database that
 * lost its tail may not know that something was: then the partner must not have it.
 */
const bothSidesAgree: Checker = ({ events, end, wrong }) => {
  const there = new Map(end.partner.map((row) => [row.id, row]));
  const sent = new Set(of(events, 'sent').map(({ id }) => id));
  const isRewound = of(events, 'rewound').length > 0;
  const isUnsent = (id: string): boolean => !sent.has(id) || (isRewound && !there.has(id));
  const unfunded = new Set(
    end.funds.flatMap(({ id, act }) =>
      (act === 'decline' || act === 'void') && isUnsent(id) ? [id] : [],
    ),
  );
  return end.platform
    .filter(
      (row) => row.status !== 'processing' && !unfunded.has(row.id) && !wrong.has(row.partner),
    )
    .filter((row) => there.get(row.id)?.status !== row.status)
    .map((row) => ({
      rule: 'EE2',
      what: `${row.id} is ${row.status} here and ${there.get(row.id)?.status ?? 'unknown'} at ${row.partner}`,
    }));
};

/** EE3: money that was captured equals money that was posted, to the cent, once everything is settled. */
const moneyAddsUp: Checker = ({ end, wrong }) => {
  const partner = new Map(end.platform.map((row) => [row.id, row.partner]));
  const settled = new Set(
    end.platform.flatMap((row) => (row.settled && row.collection !== 'elsewhere' ? [row.id] : [])),
  );
  const counts = (id: string): boolean => settled.has(id) && !wrong.has(partner.get(id) ?? '');
  const captured = sum(end.funds.filter(({ id, act }) => act === 'capture' && counts(id)));
  const posted = sum(end.postings.filter(({ id }) => counts(id)));
  return captured === posted
    ? []
    : [{ rule: 'EE3', what: `${captured} cents were captured and ${posted} posted` }];
};

/** PL4, RU2: a row that has ended stays as it is, unless the database itself lost the end. */
const terminalStays: Checker = ({ events }) => {
  const ended = new Map<string, string>();
  return events.flatMap((row): Violation[] => {
    if (row.kind === 'rewound') ended.clear();
    if (row.kind !== 'row') return [];
    const before = ended.get(row.id);
    if (before !== undefined && before !== row.status) {
      return [{ rule: 'PL4', what: `${row.id} went from ${before} to ${row.status}` }];
    }
    if (isTerminal(row.status)) ended.set(row.id, row.status);
    return [];
  });
};

/** PL6: while a partner reports another amount, nothing it says ends a payment. Funds may, before anything is sent. */
const wrongAnswersEndNothing: Checker = ({ events, wrong }) => {
  const partner = new Map(of(events, 'confirmed').map((event) => [event.id, event.partner]));
  const sent = new Set(of(events, 'sent').map(({ id }) => id));
  const healedAt = of(events, 'healed')[0]?.at ?? Number.POSITIVE_INFINITY;
  return of(events, 'row')
    .filter((row) => row.at < healedAt && isTerminal(row.status))
    .filter(({ id }) => sent.has(id) && wrong.has(partner.get(id) ?? ''))
    .map((row) => ({
      rule: 'PL6',
      what: `${row.id} is ${row.status} by an answer about another amount`,
    }));
};

/** RU4: a payment may be polled often, never in a tight loop. */
const noTightLoop: Checker = ({ events }) => {
  const recent = new Map<string, number[]>();
  const loops = new Set<string>();
  for (const { id, at } of of(events, 'sent')) {
    const times = [...(recent.get(id) ?? []), at].filter((time) => time > at - LOOP_WINDOW_MS);
    recent.set(id, times);
    if (times.length > MAX_CALLS_IN_WINDOW) loops.add(id);
  }
  return [...loops].map((id) => ({ rule: 'RU4', what: `${id} was asked for in a tight loop` }));
};

const LOOP_WINDOW_MS = 10_000;
/** Several workers may poll a payment that changes hands; each polls a few times in its first seconds. */
const MAX_CALLS_IN_WINDOW = 60;

/** RU4: what the partner accepts each time it is put, and denies when it is read, is put again ever more rarely, and not for ever. */
const noEndlessPuts: Checker = ({ events }) => {
  const puts = new Set(
    of(events, 'sent').flatMap(({ call, method }) => (method === 'PUT' ? [call] : [])),
  );
  const accepted = of(events, 'answered').filter(
    ({ call, answer }) => answer.http === 200 && puts.has(call),
  );
  return [...countBy(accepted, ({ id }) => id)]
    .filter(([, times]) => times > MAX_ACCEPTED_PUTS)
    .map(([id, times]) => ({
      rule: 'RU4',
      what: `${id} was put again after ${times} PUTs that were accepted`,
    }));
};

/** A worker gives up after twelve losses; several may take the payment over, each anew, and the network loses and doubles calls. */
const MAX_ACCEPTED_PUTS = 60;

/** PL2: every PUT of a payment carries the same. */
const samePutAlways: Checker = ({ events }) => {
  const first = new Map<string, string>();
  return of(events, 'sent').flatMap(({ id, method, payload, partner }): Violation[] => {
    if (method !== 'PUT') return [];
    const whole = `${partner} ${payload}`;
    const before = first.get(id);
    first.set(id, before ?? whole);
    return before === undefined || before === whole
      ? []
      : [{ rule: 'PL2', what: `${id} was put as ${before}, then as ${whole}` }];
  });
};

/** PL8: once the end is recorded, no further call begins. `row` events are written when the change is committed. */
const silenceAfterTheEnd: Checker = ({ events }) => {
  const endedAt = new Map<string, number>();
  return events.flatMap((event): Violation[] => {
    if (event.kind === 'rewound') endedAt.clear();
    if (event.kind === 'row' && isTerminal(event.status) && !endedAt.has(event.id)) {
      endedAt.set(event.id, event.at);
    }
    if (event.kind !== 'sent') return [];
    const end = endedAt.get(event.id);
    // Another worker that was paused, or has not heard yet, may be late by a lease; its write then changes nothing.
    return end !== undefined && event.at > end + LEASE_SLACK_MS
      ? [
          {
            rule: 'PL8',
            what: `${event.by} sent ${event.method} ${event.id} ${event.at - end} ms after its end`,
          },
        ]
      : [];
  });
};

/** The lease, and the pause that may stretch it. */
const LEASE_SLACK_MS = 30_000;

/**
 * EE4: for each id there is one order of events that explains all answers. Creation is unique and status only advances, so it is
 * enough that no call which began after an answer shows less than that answer did, and that lasting fields never change.
 */
const oneOrderExplains: Checker = ({ events, wrong, forgetful }) => {
  const violations: Violation[] = [];
  const calls = new Map<number, Extract<Event, { kind: 'sent' }>>();
  const known = new Map<
    string,
    {
      terminalAt: number;
      status: string | undefined;
      payment_id: string | undefined;
      amount: number | undefined;
      initiated_at: string | undefined;
    }
  >();
  for (const event of events) {
    if (event.kind === 'sent') calls.set(event.call, event);
    if (event.kind !== 'answered' || event.answer.http !== 200) continue;
    const sent = calls.get(event.call);
    if (sent === undefined || wrong.has(sent.partner) || forgetful.has(sent.partner)) continue;
    const { status, payment_id, amount_in_cents, initiated_at } = event.answer;
    const before = known.get(event.id);
    if (before === undefined) {
      known.set(event.id, {
        terminalAt: isTerminal(status) ? event.at : Number.POSITIVE_INFINITY,
        status,
        payment_id,
        amount: amount_in_cents,
        initiated_at,
      });
      continue;
    }
    if (
      before.payment_id !== payment_id ||
      before.amount !== amount_in_cents ||
      before.initiated_at !== initiated_at
    ) {
      violations.push({
        rule: 'EE4',
        what: `two answers of ${sent.partner} tell of ${event.id} differently`,
      });
    }
    if (sent.at > before.terminalAt && status !== before.status) {
      violations.push({
        rule: 'EE4',
        what: `${event.id} was ${before.status ?? ''}, and a later call was told ${status ?? ''}`,
      });
    }
    if (isTerminal(status) && before.terminalAt === Number.POSITIVE_INFINITY) {
      before.terminalAt = event.at;
      before.status = status;
    }
  }
  return violations;
};

/** LV6, EE2: after healing everything has ended, except what only the partner or an operator can end. */
const everythingEnds: Checker = ({ events, end, wrong, forgetful }) => {
  const isForAPerson = (row: PlatformRow): boolean =>
    row.stage === 'review' &&
    (wrong.has(row.partner) ||
      (forgetful.has(row.partner) &&
        row.review_reason === 'mismatch_payment_id' &&
        isNamedUnseen(events, row)));
  return end.platform
    .filter((row) => !row.settled && !isForAPerson(row))
    .map((row) => ({
      rule: 'LV6',
      what: `${row.id} at ${row.partner} is ${row.status}, ${row.stage}${row.review_reason === null ? '' : ` (${row.review_reason})`}, long after everything healed`,
    }));
};

/**
 * Whether a partner that forgot a payment has named it anew, and the platform, whose row has the earlier name, cannot know why. The engine takes
 * another name in answer to a PUT alone that it sends because the partner itself denied the payment. It has sent none where the network
 * delivered a PUT of before once more, or late; and a failover has taken the denial from it, with what was answered after that.
 */
function isNamedUnseen(events: readonly Event[], { id, payment_id }: PlatformRow): boolean {
  const puts = of(events, 'sent').filter((put) => put.id === id && put.method === 'PUT');
  const leftAt = new Map(puts.map(({ call, at }) => [call, at]));
  const answers = of(events, 'answered').filter(
    ({ call, answer }) => leftAt.has(call) && answer.http === 200,
  );
  const named = answers.find(({ answer }) => answer.payment_id === payment_id);
  const anew = answers.find(({ answer }) => answer.payment_id !== payment_id);
  if (named === undefined || anew === undefined || anew.at < named.at) return false;
  const isOfBefore = (leftAt.get(anew.call) ?? Infinity) < named.at;
  return isOfBefore || of(events, 'rewound').some(({ at }) => at > anew.at);
}

export const CHECKERS: Readonly<Record<string, Checker>> = {
  nothingIsLost,
  noAnswerIsTakenBack,
  postedOnce,
  fundsFollowTheEnd,
  bothSidesAgree,
  moneyAddsUp,
  terminalStays,
  wrongAnswersEndNothing,
  noTightLoop,
  noEndlessPuts,
  samePutAlways,
  silenceAfterTheEnd,
  oneOrderExplains,
  everythingEnds,
};

/** All violations in a history. */
export function check(evidence: Evidence): Violation[] {
  return Object.values(CHECKERS).flatMap((checker) => checker(evidence));
}

function of<K extends Event['kind']>(
  events: readonly Event[],
  kind: K,
): Extract<Event, { kind: K }>[] {
  return events.filter((event): event is Extract<Event, { kind: K }> => event.kind === kind);
}

function unique(events: readonly { readonly id: string }[]): string[] {
  return [...new Set(events.map(({ id }) => id))];
}

function countBy<T>(items: readonly T[], key: (item: T) => string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const item of items) counts.set(key(item), (counts.get(key(item)) ?? 0) + 1);
  return counts;
}

function sum(items: readonly { readonly cents: number }[]): number {
  return items.reduce((total, { cents }) => total + cents, 0);
}
