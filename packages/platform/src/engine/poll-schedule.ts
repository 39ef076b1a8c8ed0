/**
 * When to poll next (decision 23). Pure: everything is computed from the ages, samples and random number passed in.
 *
 * Until a partner is known: 1 s, x1.6, capped at 60 s in the first hour, 15 min in the first day, then hourly. Once enough of its
 * payments have ended, their times form a distribution, and polls are placed where they reduce the expected detection delay most
 * per poll: an inspection schedule. A payment is never given up: after 24 h it stands on the operator's list.
 */

/** First delay after acceptance, in milliseconds. */
export const FIRST_POLL_MS = 1_000;
/** Growth from one delay to the next: five polls in the first ten seconds, where most payments end. */
const GROWTH = 1.6;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Longest delay by age: a customer may wait within the first hour and an operator within the first day; after that nobody does. */
const CAPS: readonly (readonly [olderThanMs: number, capMs: number])[] = [
  [DAY_MS, HOUR_MS],
  [HOUR_MS, 15 * 60_000],
  [0, 60_000],
];

/** After this age a payment that has not ended stands on the operator's list (F39); it is never failed for it. */
export const OVERDUE_AFTER_MS = DAY_MS;

/** Delay before the first retry of an unknown outcome: short, because most failures concern a single connection (F06). */
export const FIRST_RETRY_MS = 250;
/** Longest delay between tries of one payment, and between trials of a partner that is down. */
export const MAX_RETRY_MS = 60_000;

/** The longest delay for a payment of this age. */
export function capMs(ageMs: number): number {
  return CAPS.find(([olderThanMs]) => ageMs >= olderThanMs)?.[1] ?? 60_000;
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
const DEFAULT_POLLS_PER_PAYMENT = 5;
/** Ended payments needed before the distribution is trusted: with fewer, one outlier would distort it. */
const ENOUGH_SAMPLES = 50;
/** After this many samples the weight of old ones is halved: a partner's settlement times change. */
const HALVE_AT = 2_000;
/** Bins grow by this factor: a time is known to 5 %, and 400 bins span 10 ms to a month. */
const BIN_GROWTH = 1.05;
const FIRST_BIN_MS = 10;
const BINS = 400;
/** Longest gap between two learnt polls, by age: a change in its settlement times is seen within it. */
const LEARNT_CAPS: readonly (readonly [olderThanMs: number, capMs: number])[] = [
  [HOUR_MS, HOUR_MS],
  [0, 15 * 60_000],
];

/** The distribution of one partner's times from acceptance to the end, as weights of growing bins. */
export interface SettlementTimes {
  readonly weights: Float64Array;
  total: number;
  /** Poll times in milliseconds of age, computed from the weights; undefined when they have to be computed anew. */
  plan: readonly number[] | undefined;
  /** `total` when the plan was computed. */
  plannedAt: number;
}

/** The state of a partner about which nothing is known. */
export function newSettlementTimes(): SettlementTimes {
  return { weights: new Float64Array(BINS), total: 0, plan: undefined, plannedAt: 0 };
}

/** Upper edge of a bin in milliseconds. */
function edgeMs(bin: number): number {
  return FIRST_BIN_MS * BIN_GROWTH ** bin;
}

function binOf(ms: number): number {
  if (ms <= FIRST_BIN_MS) return 0;
  return Math.min(BINS - 1, Math.ceil(Math.log(ms / FIRST_BIN_MS) / Math.log(BIN_GROWTH)));
}

/** Notes that a payment ended `ms` after its acceptance. */
export function learn(settlements: SettlementTimes, ms: number): void {
  if (!Number.isFinite(ms) || ms < 0) return;
  const bin = binOf(ms);
  settlements.weights[bin] = (settlements.weights[bin] ?? 0) + 1;
  settlements.total += 1;
  if (settlements.total >= HALVE_AT) {
    for (let index = 0; index < BINS; index += 1)
      settlements.weights[index] = (settlements.weights[index] ?? 0) / 2;
    settlements.total /= 2;
    settlements.plannedAt /= 2;
  }
}

/** True when the partner is known well enough for a learnt schedule. */
export function isKnown(settlements: SettlementTimes): boolean {
  return settlements.total >= ENOUGH_SAMPLES;
}

/**
 * Delay until the next poll of a payment of this age, learnt or, until enough is known, by default. `polls` counts those done.
 * `pollsPerPayment` is the budget that the learnt schedule is placed under; `firstMs` begins the default one.
 */
export function nextPollMs(
  settlements: SettlementTimes,
  ageMs: number,
  polls: number,
  random: number,
  options: { readonly pollsPerPayment?: number; readonly firstMs?: number } = {},
): number {
  if (!isKnown(settlements)) return defaultPollMs(ageMs, polls, random, options.firstMs);
  // A fifth more samples move the plan little; computing it costs about a millisecond.
  if (
    settlements.plan === undefined ||
    settlements.total > settlements.plannedAt * 1.2 ||
    settlements.total < settlements.plannedAt * 0.6
  ) {
    settlements.plan = planPolls(
      settlements.weights,
      options.pollsPerPayment ?? DEFAULT_POLLS_PER_PAYMENT,
    );
    settlements.plannedAt = settlements.total;
  }
  const at = settlements.plan.find((time) => time > ageMs * 1.001 + 1);
  const gap = at === undefined ? defaultPollMs(ageMs, polls, 0.5, options.firstMs) : at - ageMs;
  const cap = LEARNT_CAPS.find(([olderThanMs]) => ageMs >= olderThanMs)?.[1] ?? 15 * 60_000;
  // Jitter only later, and little, because planned polls lie just after the usual end times. It keeps a thousand payments from
  // polling at the same instant.
  return Math.min(gap, cap) * (1 + random * 0.02) + 1;
}

/**
 * The poll times that minimise the expected delay of detection when a payment costs `budget` polls on average. Returns ages in
 * milliseconds, ascending. `weights` are those of a SettlementTimes.
 */
export function planPolls(weights: Float64Array, budget: number): number[] {
  const times: number[] = [];
  const mass: number[] = [];
  weights.forEach((weight, bin) => {
    if (weight <= 0) return;
    times.push(edgeMs(bin));
    mass.push(weight);
  });
  if (times.length === 0) return [];
  // The cost of a poll in milliseconds of delay: a higher cost means fewer polls. Found by a search on a logarithmic scale.
  let [cheap, dear] = [1e-3, edgeMs(BINS)];
  let best = cheapestPlan(times, mass, dear);
  for (let round = 0; round < 30; round += 1) {
    const price = Math.sqrt(cheap * dear);
    const plan = cheapestPlan(times, mass, price);
    if (plan.expectedPolls > budget) {
      cheap = price;
    } else {
      dear = price;
      best = plan;
    }
  }
  return best.times;
}

/** Dynamic programming from the last possible end backwards: `cost[i]` is what is to come after a poll at `times[i]` found nothing. */
function cheapestPlan(
  times: readonly number[],
  mass: readonly number[],
  price: number,
): { times: number[]; expectedPolls: number } {
  const count = times.length;
  const next = new Int32Array(count + 1);
  const cost = new Float64Array(count + 1);
  // Index i stands for "nothing found up to and with bin i - 1"; all is unnormalised, which saves dividing by the survivors.
  for (let from = count - 1; from >= 0; from -= 1) {
    let survivors = 0;
    for (let bin = from; bin < count; bin += 1) survivors += mass[bin] ?? 0;
    let waited = 0;
    let seen = 0;
    let least = Number.POSITIVE_INFINITY;
    for (let to = from; to < count; to += 1) {
      // Moving the poll one bin later delays the detection of everything that ended before it.
      if (to > from) waited += seen * ((times[to] ?? 0) - (times[to - 1] ?? 0));
      seen += mass[to] ?? 0;
      const whole = price * survivors + waited + (cost[to + 1] ?? 0);
      if (whole < least) {
        least = whole;
        next[from] = to + 1;
      }
      if (waited > least) break;
    }
    cost[from] = least;
  }
  const total = mass.reduce((sum, weight) => sum + weight, 0);
  const plan: number[] = [];
  let expectedPolls = 0;
  let left = total;
  for (let at = 0; at < count;) {
    expectedPolls += left / total;
    const to = next[at] ?? count;
    plan.push(times[to - 1] ?? 0);
    for (let bin = at; bin < to; bin += 1) left -= mass[bin] ?? 0;
    at = to;
  }
  return { times: plan, expectedPolls };
}
