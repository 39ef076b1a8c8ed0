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
/** After this age a payment that has not ended stands on the operator's list (F39); it is never failed for it. */
export const OVERDUE_AFTER_MS = DAY_MS;

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
const DEFAULT_POLLS_PER_PAYMENT = 5;
/**
 * A poll must lower the expected delay by at least this much. Less is lost in the network anyway, so a partner whose times are known
 * to the millisecond is not asked more often.
 */
const LEAST_GAIN_MS = 2;
/** Ended payments needed before the distribution is trusted: with fewer, one outlier would distort it. */
const ENOUGH_SAMPLES = 50;
/** Times remembered for each partner, the latest: a partner's settlement times change. 4 kB. */
const SAMPLES = 1_024;
/** New times after which the polls are planned anew, as a fraction of those known. Planning takes a millisecond or two. */
const NEWS = 0.25;
/** Edges of the plan at quantiles of the known times, so that it is as fine as they are. */
const QUANTILES = 128;
/** No two edges within the known times are further apart than this factor. */
const EDGE_GROWTH = 1.05;
/** Beyond all known times polls are this factor apart, or less if long times are usual: a partner that stalls must not be flooded. */
const TAIL_GROWTH = 1.25;
/** A time stands for a range of at most this fraction of itself to both sides. */
const MAX_SMEAR = 2 / 3;
/** A planned poll is delayed by up to this fraction of the time to the next planned one, */
const JITTER = 0.04;
/** and by up to this fraction of the payment's age. */
const AGE_JITTER = 0.002;

/** The longest gap between two learnt polls, by age: a change in the partner's settlement times is seen within it. */
function learntCapMs(ageMs: number): number {
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
  /** Poll times in milliseconds of age; undefined until they are first computed. */
  plan: readonly number[] | undefined;
}

/** The state of a partner about which nothing is known. */
export function newSettlementTimes(): SettlementTimes {
  return { times: new Float32Array(SAMPLES), count: 0, next: 0, fresh: 0, plan: undefined };
}

/** Notes that a payment ended `ms` after its acceptance. */
export function learn(settlements: SettlementTimes, ms: number): void {
  if (!Number.isFinite(ms) || ms < 0) return;
  settlements.times[settlements.next] = ms;
  settlements.next = (settlements.next + 1) % SAMPLES;
  settlements.count = Math.min(SAMPLES, settlements.count + 1);
  settlements.fresh += 1;
}

/**
 * Notes that a payment ended between two ages: after it was found processing, and before the next poll was due. `random` in [0, 1).
 * The age at which its end was noticed must not be taken for its time: it is always later, polls are planned by it, and the end of
 * the next payment is then noticed later again, without end.
 */
export function learnBetween(
  settlements: SettlementTimes,
  afterMs: number,
  untilMs: number,
  random: number,
): void {
  learn(settlements, afterMs + Math.max(0, untilMs - afterMs) * random);
}

/** True when the partner is known well enough for a learnt schedule. */
export function isKnown(settlements: SettlementTimes): boolean {
  return settlements.count >= ENOUGH_SAMPLES;
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
  if (settlements.plan === undefined || settlements.fresh > settlements.count * NEWS) {
    settlements.plan = planPolls(
      settlements.times.subarray(0, settlements.count),
      options.pollsPerPayment ?? DEFAULT_POLLS_PER_PAYMENT,
    );
    settlements.fresh = 0;
  }
  const { plan } = settlements;
  const index = firstAfter(plan, ageMs);
  const at = plan[index];
  // After the plan the payment is older than a day, and was polled at ever longer gaps.
  if (at === undefined) return capMs(ageMs) * (0.9 + random * 0.2);
  // Jitter only later, and little, because planned polls lie just after the usual end times. It keeps a thousand payments from
  // polling at the same instant.
  const gap = (plan[index + 1] ?? at * TAIL_GROWTH) - at;
  const spread = Math.min(gap * JITTER, at * AGE_JITTER) * random;
  return Math.min(at + spread - ageMs, learntCapMs(ageMs) * (1 + random * JITTER)) + MARGIN_MS;
}

/**
 * The age at which the poll before this one found the payment processing, at least, as far as the schedule tells: no memory is spent
 * on it, since a worker holds a million payments. `dueMs` is the age at which this poll was due, `polls` counts this one as well.
 */
export function lastFoundMs(
  settlements: SettlementTimes,
  dueMs: number,
  polls: number,
  firstMs: number = FIRST_POLL_MS,
): number {
  if (polls < 2) return 0;
  if (!isKnown(settlements) || settlements.plan === undefined) {
    return Math.max(0, dueMs - defaultPollMs(dueMs, polls - 1, 1, firstMs));
  }
  // This poll was planned at the last age before `dueMs`, so the one before it came at the age before that, or later.
  return settlements.plan[firstAfter(settlements.plan, dueMs) - 2] ?? 0;
}

/** A poll is due in whole milliseconds and must not come before the time it was planned for. */
const MARGIN_MS = 0.5;

/** Index of the first planned poll after an age. */
function firstAfter(plan: readonly number[], ageMs: number): number {
  let [low, high] = [0, plan.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((plan[middle] ?? 0) > ageMs) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * The poll times that minimise the expected delay of detection when a payment costs `budget` polls on average. `known` are times
 * from acceptance to the end, in any order. Returns ages in milliseconds, ascending, to beyond a day.
 *
 * The density is estimated from the times themselves: each stands for the range around it that holds its nearest neighbours,
 * narrow where times are many and wide in a sparse tail. One more payment is assumed beyond the longest, at ever longer times.
 * Polls then fall where payments are likely to end next, whether they always take five seconds or some take a night.
 */
export function planPolls(known: Float32Array, budget: number): number[] {
  const times = known.toSorted();
  if (times.length === 0) return [];
  const edges = edgesOf(times);
  const mass = massIn(edges, times);
  // The price of a poll in milliseconds of delay: a higher price means fewer polls. Found by a search on a logarithmic scale.
  let [cheap, dear] = [LEAST_GAIN_MS, 100 * DAY_MS];
  let best = cheapestPlan(edges, mass, cheap);
  if (best.expectedPolls <= budget) return best.times;
  best = cheapestPlan(edges, mass, dear);
  for (let round = 0; round < 24; round += 1) {
    const price = Math.sqrt(cheap * dear);
    const plan = cheapestPlan(edges, mass, price);
    if (plan.expectedPolls > budget) {
      cheap = price;
    } else {
      dear = price;
      best = plan;
    }
  }
  return best.times;
}

/** The ages at which a poll may be planned: fine where known times are, never far apart, and to beyond a day. `times` are sorted. */
export function edgesOf(times: Float32Array): number[] {
  const edges: number[] = [];
  const extendTo = (age: number, growth: number): void => {
    for (let edge = edges.at(-1); edge !== undefined && edge * growth < age;) {
      edge *= growth;
      edges.push(edge);
    }
  };
  const count = Math.min(QUANTILES, times.length);
  for (let quantile = 0; quantile <= count; quantile += 1) {
    const age = Math.max(1, times[Math.round((quantile / count) * (times.length - 1))] ?? 1);
    if (age <= (edges.at(-1) ?? 0)) continue;
    extendTo(age, EDGE_GROWTH);
    edges.push(age);
  }
  extendTo(2 * DAY_MS, tailGrowth(times));
  return edges;
}

/**
 * The factor between polls beyond the longest known time. Where the longest times are many times as long as the rest, still longer
 * ones are to be expected, and polls stay close; where all are alike, a payment that takes longer has met something new.
 */
function tailGrowth(times: Float32Array): number {
  const longest = Math.max(1, times.at(-1) ?? 1);
  const usual = Math.max(1, times[Math.floor(times.length * 0.9)] ?? longest);
  return 1 + (TAIL_GROWTH - 1) / (1 + Math.log(longest / usual));
}

/** How much of the distribution lies before each edge and after the one before it. `times` are sorted. */
export function massIn(edges: readonly number[], times: Float32Array): Float64Array {
  const mass = new Float64Array(edges.length);
  const count = times.length;
  const neighbours = Math.ceil(Math.sqrt(count) / 2);
  const longest = times[count - 1] ?? 0;
  let [low, high, from] = [0, Math.min(neighbours, count - 1), 0];
  for (let index = 0; index < count; index += 1) {
    const time = times[index] ?? 0;
    // The window of nearest neighbours moves upwards with the time.
    while (high < count - 1 && (times[high + 1] ?? 0) - time < time - (times[low] ?? 0)) {
      low += 1;
      high += 1;
    }
    const reach = Math.max(time - (times[low] ?? 0), (times[high] ?? 0) - time);
    const half = Math.min(reach, time * MAX_SMEAR);
    // Beyond the longest time there is the tail, and nothing else.
    const [begin, end] = [time - half, Math.min(time + half, longest)];
    // No range begins before that of an earlier time: the farthest neighbour comes no nearer than the time moves on.
    while (from < edges.length - 1 && (edges[from] ?? 0) < begin) from += 1;
    let left = begin;
    for (let cell = from; cell < edges.length; cell += 1) {
      const right = Math.min(end, edges[cell] ?? end);
      mass[cell] =
        (mass[cell] ?? 0) + (end > begin ? Math.max(0, right - left) / (end - begin) : 1);
      left = Math.max(left, right);
      if ((edges[cell] ?? 0) >= end) break;
    }
  }
  // One payment among those that are longer than any known: half of them longer than twice the longest, and so on.
  for (let cell = firstAfter(edges, longest); cell < edges.length; cell += 1) {
    const before = Math.max(1, longest, edges[cell - 1] ?? 0);
    const start = Math.max(1, longest);
    mass[cell] = (mass[cell] ?? 0) + start / before - start / (edges[cell] ?? before);
  }
  return mass;
}

/**
 * The polls that cost least when each costs `price` milliseconds of delay. `mass` is how many payments end before each edge and
 * after the one before it. Dynamic programming from the last edge backwards: `cost[i]` is what is to come after a poll at the edge
 * before `i` found nothing. The later that poll, the later the next one, which bounds the search.
 */
export function cheapestPlan(
  edges: readonly number[],
  mass: Float64Array,
  price: number,
  longestGapMs: (ageMs: number) => number = learntCapMs,
): { times: number[]; expectedPolls: number } {
  const count = edges.length;
  const next = new Int32Array(count + 1);
  const cost = new Float64Array(count + 1);
  // Index i stands for "nothing found up to and with edge i - 1"; all is unnormalised, which saves dividing by the survivors.
  let survivors = 0;
  let furthest = count;
  for (let from = count - 1; from >= 0; from -= 1) {
    survivors += mass[from] ?? 0;
    const asked = edges[from - 1] ?? 0;
    const latest = asked + longestGapMs(asked);
    let waited = 0;
    let seen = 0;
    let least = Number.POSITIVE_INFINITY;
    for (let to = from; to < furthest; to += 1) {
      if (to > from) {
        if ((edges[to] ?? 0) > latest) break;
        // Moving the poll one edge later delays the detection of everything that ended before it.
        waited += seen * ((edges[to] ?? 0) - (edges[to - 1] ?? 0));
      }
      seen += mass[to] ?? 0;
      const whole = price * survivors + waited + (cost[to + 1] ?? 0);
      if (whole < least) {
        least = whole;
        next[from] = to + 1;
      }
      if (waited > least) break;
    }
    cost[from] = least;
    furthest = next[from] ?? count;
  }
  const plan: number[] = [];
  let expectedPolls = 0;
  let left = survivors;
  for (let at = 0; at < count;) {
    expectedPolls += left / survivors;
    const to = next[at] ?? count;
    plan.push(edges[to - 1] ?? 0);
    for (let cell = at; cell < to; cell += 1) left -= mass[cell] ?? 0;
    at = to;
  }
  return { times: plan, expectedPolls };
}
