/**
 * When to poll next (decision 23). Pure: everything is computed from the ages, times and random numbers passed in.
 *
 * Until a partner is known: 1 s, x1.6, capped at 60 s in the first hour, 15 min in the first day, then hourly. Once fifty of its
 * payments have ended, polls follow the distribution of their times. A payment is never given up: after 24 h it stands on the
 * operator's list.
 */

/** First delay after acceptance, in milliseconds. */
export const FIRST_POLL_MS = 1_000;
/** Growth from one delay to the next: five polls in the first ten seconds, where most payments end. */
const GROWTH = 1.6;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Delay before the first retry of an unknown outcome: short, because most failures concern a single connection (F06). */
export const FIRST_RETRY_MS = 250;
/** Longest delay between tries of one payment, and between trials of a partner that is down. */
export const MAX_RETRY_MS = 60_000;

/**
 * The longest delay for a payment of this age: a customer may wait within the first hour and an operator within the first day; after
 * that nobody does.
 */
function capMs(ageMs: number): number {
  if (ageMs >= DAY_MS) return HOUR_MS;
  return ageMs >= HOUR_MS ? 15 * 60_000 : 60_000;
}

/** Delay until the same PUT or GET is tried again after an unknown outcome; `tries` counts those that failed in a row. */
export function retryMs(tries: number, random: number, firstMs: number, maxMs: number): number {
  const grown = firstMs * 2 ** Math.min(Math.max(tries, 1) - 1, 30);
  return Math.min(grown, maxMs) * (0.5 + random * 0.5);
}

/**
 * Polls a payment costs on average, without those that bridge a long lull, which add up to two: what the default schedule spends on one
 * that takes ten seconds.
 */
const POLLS_PER_PAYMENT = 4;
/** Ended payments needed before the distribution is trusted: with fewer, one outlier would distort it. */
const ENOUGH_SAMPLES = 50;
/** Times remembered for each partner, the latest: a partner's settlement times change. 4 kB. */
const SAMPLES = 1_024;
/** New times after which the polls are planned anew, as a fraction of those known. Planning takes less than a millisecond. */
const NEWS = 0.25;
/** The distribution is taken as even between this many quantiles. */
const QUANTILES = 64;
/** Between two quantiles whose ages differ by this factor hardly any payment ends. */
const LULL = 2;
/** Planned polls are at least this far apart: partners have to handle ten a second for one payment, and the network bunches some. */
const LEAST_GAP_MS = 125;
/** Beyond the longest known time, each age at which to poll is longer by this factor: a partner that stalls is not flooded. */
const TAIL_GROWTH = 1.15;
/** The plan ends here; a payment of this age is polled hourly. */
const PLANNED_MS = 2 * DAY_MS;
/** A planned poll is delayed by up to this fraction of the time to the next one, so that a thousand payments do not poll at once, */
const JITTER = 0.04;
/** and by up to this fraction of the payment's age. */
const AGE_JITTER = 0.001;
/** A poll is due in whole milliseconds and must not come before the time it was planned for. */
const MARGIN_MS = 0.5;

/** The longest gap between two planned polls, by age: a change in the partner's settlement times is seen within it. */
function plannedCapMs(ageMs: number): number {
  return ageMs >= HOUR_MS ? HOUR_MS : 15 * 60_000;
}

/** The latest times from acceptance to the end of one partner's payments. */
export class SettlementTimes {
  /** In milliseconds, the latest SAMPLES; the next one replaces the oldest. */
  readonly times: number[] = [];
  /** How many were learned in all. */
  count = 0;
  /** How many had been when the plan was made. */
  planned = 0;
  /** Poll times in milliseconds of age, ascending. */
  plan: readonly number[] = [];
}

/** Notes that a payment ended `ms` after its acceptance. */
export function learn(settlements: SettlementTimes, ms: number): void {
  if (!Number.isFinite(ms) || ms < 0) return;
  settlements.times[settlements.count % SAMPLES] = ms;
  settlements.count += 1;
}

/**
 * Delay until the next poll of a payment of this age, planned or, until enough is known, by default. `polls` counts those done;
 * `random` is in [0, 1).
 */
export function nextPollMs(
  settlements: SettlementTimes,
  ageMs: number,
  polls: number,
  random: number,
  firstMs: number = FIRST_POLL_MS,
): number {
  const { times, count, planned } = settlements;
  const spread = 0.9 + random * 0.2;
  if (times.length < ENOUGH_SAMPLES) {
    // The exponent is bounded so that the power stays finite; the cap has long taken over by then.
    return Math.min(firstMs * GROWTH ** Math.min(polls, 60), capMs(ageMs)) * spread;
  }
  if (planned === 0 || count - planned > times.length * NEWS) {
    settlements.plan = planPolls(times);
    settlements.planned = count;
  }
  const { plan } = settlements;
  // A few dozen ages, and most payments end at the first few.
  const index = plan.findIndex((at) => at > ageMs);
  const at = plan[index];
  if (at === undefined) return capMs(ageMs) * spread;
  // Later, never earlier: a planned poll falls just after the time at which many payments end.
  const gapMs = (plan[index + 1] ?? at * TAIL_GROWTH) - at;
  return at - ageMs + Math.min(gapMs * JITTER, at * AGE_JITTER) * random + MARGIN_MS;
}

/**
 * The ages at which to poll so that a payment costs about POLLS_PER_PAYMENT on average, ascending. `known` are times from acceptance to
 * the end, in any order.
 *
 * Where payments end at a rate of h for each one that is left, polls a gap g apart cost 1/g and are g/2 late: the sum is least where
 * g is in proportion to 1/sqrt(h) (Keller's rule for inspections). Between two quantiles h is their mass, divided by their distance
 * and by what is left.
 */
function planPolls(known: readonly number[]): number[] {
  const times = known.toSorted((a, b) => a - b);
  const steps = Array.from({ length: QUANTILES }, (_, step) => {
    const [from, to] = [step, step + 1].map((one) =>
      Math.max(1, times[Math.round((one / QUANTILES) * (times.length - 1))] ?? 1),
    ) as [number, number];
    const left = 1 - step / QUANTILES;
    return { from, to, left, weight: Math.sqrt((to - from) / (QUANTILES * left)) };
  });
  // The polls of a step are made for what is left at it.
  const cost = steps.reduce((sum, { left, weight }) => sum + left * weight, 0);
  const plan: number[] = [];
  const add = (age: number): void => {
    for (let last = plan.at(-1) ?? 0; age - last > plannedCapMs(last); last = plan.at(-1) ?? age) {
      plan.push(last + plannedCapMs(last));
    }
    // One that comes too soon after the last is put off, not dropped: it may be the only one before a lull.
    const last = plan.at(-1) ?? -Infinity;
    if (age > Math.max(0, last)) plan.push(Math.max(age, last + LEAST_GAP_MS));
  };
  /** Polls that are due by the rule, of which the whole ones have been placed. */
  let due = 0;
  for (const { from, to, weight } of steps) {
    // The last chance to find all that ended before nothing does for a while.
    if (to > from * LULL) add(from);
    const polls = Math.min((POLLS_PER_PAYMENT / cost) * weight, (to - from) / LEAST_GAP_MS);
    // Closer together at the beginning where the quantiles are far apart: long times are rarer, the longer they are.
    const [low, high] = [Math.sqrt(from), Math.sqrt(to)];
    for (let next = 1 - due; next <= polls; next += 1)
      add((low + ((high - low) * next) / polls) ** 2);
    due = (due + polls) % 1;
  }
  const longest = steps.at(-1)?.to ?? 1;
  for (let age = longest; age < PLANNED_MS; age = Math.max(age * TAIL_GROWTH, age + LEAST_GAP_MS))
    add(age);
  return plan;
}
