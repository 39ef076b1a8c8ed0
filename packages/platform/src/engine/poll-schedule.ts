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
export function capMs(ageMs: number): number {
  if (ageMs >= DAY_MS) return HOUR_MS;
  return ageMs >= HOUR_MS ? 15 * 60_000 : 60_000;
}

/** Delay until the next poll of a partner that is not known yet; `polls` counts those done. `random` in [0, 1). */
export function defaultPollMs(
  ageMs: number,
  polls: number,
  random: number,
  firstMs: number = FIRST_POLL_MS,
): number {
  // The exponent is bounded so that the power stays finite; the cap has long taken over by then.
  const grown = firstMs * GROWTH ** Math.min(polls, 60);
  return Math.min(grown, capMs(ageMs)) * (0.9 + random * 0.2);
}

/** Delay until the same PUT or GET is tried again after an unknown outcome; `tries` counts those that failed in a row. */
export function retryMs(
  tries: number,
  random: number,
  firstMs: number = FIRST_RETRY_MS,
  maxMs: number = MAX_RETRY_MS,
): number {
  const grown = firstMs * 2 ** Math.min(Math.max(tries, 1) - 1, 30);
  return Math.min(grown, maxMs) * (0.5 + random * 0.5);
}

/** Polls a payment may cost on average: what the default schedule spends on one that takes ten seconds. */
const POLLS_PER_PAYMENT = 5;
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

/** The longest gap between two planned polls, by age: a change in the partner's settlement times is seen within it. */
function plannedCapMs(ageMs: number): number {
  return ageMs >= HOUR_MS ? HOUR_MS : 15 * 60_000;
}

/** The latest times from acceptance to the end of one partner's payments. */
export interface SettlementTimes {
  /** In milliseconds; a ring, of which the first `count` are filled. */
  readonly times: Float32Array;
  count: number;
  /** Where the next time is put. */
  next: number;
  /** Times added since the plan was computed. */
  fresh: number;
  /** Poll times in milliseconds of age, ascending. */
  plan: readonly number[];
}

/** The state of a partner about which nothing is known. */
export function newSettlementTimes(): SettlementTimes {
  return { times: new Float32Array(SAMPLES), count: 0, next: 0, fresh: SAMPLES, plan: [] };
}

/** Notes that a payment ended `ms` after its acceptance. */
export function learn(settlements: SettlementTimes, ms: number): void {
  if (!Number.isFinite(ms) || ms < 0) return;
  settlements.times[settlements.next] = ms;
  settlements.next = (settlements.next + 1) % SAMPLES;
  settlements.count = Math.min(SAMPLES, settlements.count + 1);
  settlements.fresh += 1;
}

/** How old a payment was, in milliseconds, at the call that found its end. */
export interface CallAge {
  /** When the poll was due; undefined if it was another call, or had failed before. */
  readonly dueMs: number | undefined;
  /** After a read that was held until the end; undefined for any other call. */
  readonly heldMs: number | undefined;
}

/**
 * Learns how long the partner took for a payment that has ended. Both of its times come from its own clock, so their difference is
 * exact whatever that clock shows. It is believed if it lies between the poll that last found the payment processing and the time at
 * which this one was due: some partners date a posting back, and some by the poll that asks for it, which polls planned by it would make
 * later and later.
 */
export function learnEnd(
  settlements: SettlementTimes,
  processingMs: number,
  { posted_at, initiated_at }: { posted_at: string | null; initiated_at: string | null },
  { dueMs, heldMs }: CallAge,
): void {
  if (heldMs !== undefined) learn(settlements, heldMs);
  if (heldMs !== undefined || posted_at === null || initiated_at === null) return;
  const toldMs = Date.parse(posted_at) - Date.parse(initiated_at);
  if (toldMs >= processingMs && toldMs < (dueMs ?? Infinity)) learn(settlements, toldMs);
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
  { firstMs }: { readonly firstMs?: number } = {},
): number {
  if (settlements.count < ENOUGH_SAMPLES) return defaultPollMs(ageMs, polls, random, firstMs);
  if (settlements.fresh > settlements.count * NEWS) {
    settlements.plan = planPolls(settlements.times.subarray(0, settlements.count));
    settlements.fresh = 0;
  }
  const { plan } = settlements;
  // A few dozen ages, and most payments end at the first few.
  const index = plan.findIndex((at) => at > ageMs);
  const at = plan[index];
  if (at === undefined) return capMs(ageMs) * (0.9 + random * 0.2);
  // Later, never earlier: a planned poll falls just after the time at which many payments end.
  const gapMs = (plan[index + 1] ?? at * TAIL_GROWTH) - at;
  return at - ageMs + Math.min(gapMs * JITTER, at * AGE_JITTER) * random + MARGIN_MS;
}

/** A poll is due in whole milliseconds and must not come before the time it was planned for. */
const MARGIN_MS = 0.5;

/**
 * The ages at which to poll so that a payment costs POLLS_PER_PAYMENT on average, ascending. `known` are times from acceptance to
 * the end, in any order.
 *
 * Where payments end at a rate of h for each one that is left, polls a gap g apart cost 1/g and are g/2 late: the sum is least where
 * g is in proportion to 1/sqrt(h) (Keller's rule for inspections). Between two quantiles h is their mass, divided by their distance
 * and by what is left.
 */
function planPolls(known: Float32Array): number[] {
  const times = known.toSorted();
  let [few, many] = [0, 1];
  while (expectedPolls(place(times, many), times) < POLLS_PER_PAYMENT && many < 1_000) many *= 2;
  for (let round = 0; round < 16; round += 1) {
    const middle = (few + many) / 2;
    if (expectedPolls(place(times, middle), times) > POLLS_PER_PAYMENT) many = middle;
    else few = middle;
  }
  return place(times, few);
}

/** Polls by the rule above, `density` times as many as one for each square root of a millisecond. `times` are sorted. */
function place(times: Float32Array, density: number): number[] {
  const plan: number[] = [];
  const add = (age: number): void => {
    for (let last = plan.at(-1) ?? 0; age - last > plannedCapMs(last); last = plan.at(-1) ?? age) {
      plan.push(last + plannedCapMs(last));
    }
    // One that comes too soon after the last is put off, not dropped: it may be the only one before a lull.
    if (age > (plan.at(-1) ?? 0))
      plan.push(Math.max(age, (plan.at(-1) ?? -Infinity) + LEAST_GAP_MS));
  };
  const quantile = (step: number): number =>
    Math.max(1, times[Math.round((step / QUANTILES) * (times.length - 1))] ?? 1);
  /** Polls that are due by the rule, of which the whole ones have been placed. */
  let due = 0;
  for (let step = 0; step < QUANTILES; step += 1) {
    const [from, to] = [quantile(step), quantile(step + 1)];
    const left = 1 - step / QUANTILES;
    // The last chance to find all that ended before nothing does for a while.
    if (to > from * LULL) add(from);
    const polls = Math.min(
      density * Math.sqrt((to - from) / (QUANTILES * left)),
      (to - from) / LEAST_GAP_MS,
    );
    // Closer together at the beginning where the quantiles are far apart: long times are rarer, the longer they are.
    const [low, high] = [Math.sqrt(from), Math.sqrt(to)];
    for (let next = 1 - due; next <= polls; next += 1)
      add((low + ((high - low) * next) / polls) ** 2);
    due = (due + polls) % 1;
  }
  const longest = quantile(QUANTILES);
  for (let age = longest; age < PLANNED_MS; age = Math.max(age * TAIL_GROWTH, age + LEAST_GAP_MS))
    add(age);
  return plan;
}

/** Polls of a payment on average: each is made for those that have not ended before the poll before it. `times` are sorted. */
function expectedPolls(plan: readonly number[], times: Float32Array): number {
  let [polls, ended] = [0, 0];
  for (const age of plan) {
    polls += times.length - ended;
    while (ended < times.length && (times[ended] ?? 0) <= age) ended += 1;
    if (ended === times.length) break;
  }
  return polls / times.length;
}
