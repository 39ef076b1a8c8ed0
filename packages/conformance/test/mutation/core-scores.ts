/**
 * The results for the mutants of the core (core-results.json), why some survive, and the section of docs/mutation.md about them.
 *
 * One file because most of it is the list of reasons, which the section prints and which has to fit the results.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CORE } from './core.ts';
import type { Fate } from './fate.ts';

/** The outcome of one file of the core. */
export interface CoreScore {
  /** All mutants of the file at the time of the run. */
  readonly mutants: number;
  /** Seed of the sample; absent when all were tried. */
  readonly seed?: number;
  readonly killed: number;
  /** How many each killer was the first to kill. */
  readonly by: Readonly<Record<string, number>>;
  /** Mutation.name of those that no test killed. */
  readonly survivors: readonly string[];
  /** Mutation.name of those in code that no test runs. */
  readonly unreached: readonly string[];
}

export const CORE_RESULTS = join(import.meta.dirname, 'core-results.json');

/** The stored outcomes, by file path. */
export function keptCore(): Readonly<Record<string, CoreScore>> {
  return JSON.parse(readFileSync(CORE_RESULTS, 'utf8')) as Record<string, CoreScore>;
}

/** Sums up the fates of one file. `mutants` is the number of all its mutants, `seed` that of the sample. */
export function coreScore(fates: readonly Fate[], mutants: number, seed: number): CoreScore {
  const names = (chosen: (fate: Fate) => boolean): string[] =>
    fates.filter(chosen).map(({ name }) => name);
  const by: Record<string, number> = {};
  for (const { caught } of fates) for (const one of caught) by[one] = (by[one] ?? 0) + 1;
  return {
    mutants,
    ...(fates.length < mutants ? { seed } : {}),
    killed: fates.filter(({ caught }) => caught.length > 0).length,
    by,
    survivors: names(({ caught, reached }) => reached && caught.length === 0),
    unreached: names(({ reached }) => !reached),
  };
}

/** Why some mutants of a file survive. */
interface Explanation {
  readonly why: string;
  readonly places: readonly RegExp[];
}

/** Occurs in several statements. */
const HAS_NOT_ENDED: Explanation = {
  why: 'That it has not ended is said twice: by its stage too, and the table admits no other pair (payments_ended).',
  places: [/^WHERE p\.platform_payment_id = .* \| AND p\.status = 'processing' -> nothing$/],
};

/** Occurs in several files. */
const UNDER_ITS_LOCK: Explanation = {
  why: 'The row was read under its lock just before, so the statement finds it.',
  places: [/^assert\(\w+, 'a payment changed under its lock'\);/],
};

/** Where rows are sorted before they are inserted. */
const ORDER_OF_IDS: Explanation = {
  why: 'Which number of one sign a comparison returns, and what it returns for one id twice: they are distinct.',
  places: [
    /one\.platform_payment_id < other\.platform_payment_id \? .* (?:< -> <=|1 -> 2|1 -> 2 \(2\))$/,
  ],
};

/** In both ways of posting. */
const SECOND_LOOK: Explanation = {
  why: 'A second look at the queues in one turn of the event loop finds nothing to do.',
  places: [/^if \(isScheduled\) return;/, /^isScheduled = true;/],
};
const TOLD_TWICE: Explanation = {
  why: 'Whoever waited for idleness is told of it a second time, which changes nothing.',
  places: [/^(?:whenIdle|idle) = \[\];/],
};
const ONE_FOR_EACH: Explanation = {
  why: 'The answer has been checked to hold one outcome for each payment.',
  places: [/^assert\(outcome\);/],
};

export const CORE_SURVIVORS: Readonly<Record<string, readonly Explanation[]>> = {
  'packages/partner/src/handler.ts': [
    {
      why: 'The server behind it writes neither header: its answers are whole, and on no connection.',
      places: [/^'keep-alive', \| /, /^'transfer-encoding', \| /],
    },
    {
      why: 'An option that is undefined is one that was not given.',
      places: [
        /^\.\.\.\(clock === undefined .* \| clock === undefined -> false$/,
        /^\.\.\.\(metrics === undefined .* \| metrics === undefined -> false$/,
      ],
    },
    {
      why: 'The first part of a path is the same, however many parts are kept.',
      places: [/^const path = url\.split\(.* \| 1 -> 2$/],
    },
  ],
  'packages/partner/src/apply.ts': [
    TOLD_TWICE,
    {
      why: 'A bound of memory that a hundred thousand payments reach.',
      places: [
        /^const MAX_IN_HAND = /,
        /^retries\.delete\(id\); \|/,
        /^if \(retries\.size > MAX_IN_HAND\)/,
        /^if \(place !== '' && inHand\.size < MAX_IN_HAND\) continue; \| < -> <=$/,
        /^if \(inHand\.size < MAX_IN_HAND\) void apply/,
      ],
    },
    {
      why: 'A first value that is set before it is read.',
      places: [/^let triedAt = 0;/],
    },
    {
      why: 'Nobody is told of an empty list.',
      places: [/^if \(ended\.length === 0\) return;/],
    },
    {
      why: 'A window of one millisecond to cancel in.',
      places: [
        /^aheadMs: holdMs > 0 \? null : least, \| 0 -> 1$/,
        /^if \(holdMs > 0 \|\| stopped\.signal\.aborted\) return; \| 0 -> 1$/,
      ],
    },
  ],
  'packages/partner/src/accounts-by-sql.ts': [
    {
      why: 'What stands above the first name belongs to no statement.',
      places: [/^if \(name !== undefined\) found\.set/],
    },
    {
      why: 'The name under which a statement is checked has to differ for another text, no more.',
      places: [/^const own = createHash/],
    },
    {
      why: 'Which number of one sign a comparison returns.',
      places: [/^\.toSorted\(.* \| 1 -> 2/],
    },
  ],
  'packages/partner/src/statement.ts': [
    {
      why: 'PostgreSQL keeps the order in which these rows come; the clause makes it certain.',
      places: [
        /^SELECT string_agg\(.* \| ORDER BY platform_payment_id -> nothing$/,
        /^GROUP BY page ORDER BY page`; \| ORDER BY page -> nothing$/,
        /^ORDER BY page\.platform_batch_id DESC`; \|/,
      ],
    },
    {
      why: 'The first page has two rows fewer.',
      places: [/^\(row_number\(\) .* \| - -> \+$/],
    },
  ],
  'packages/partner/src/business-rules.ts': [
    {
      why: 'No payment has the id of another.',
      places: [/^OR \(other\.initiated_at, .* \| < -> <=$/],
    },
  ],
  'packages/partner/src/credentials.ts': [
    {
      why: 'What is valid is worked out anew from the same rows, with the same result.',
      places: [
        /^if \(at < last\.until\) return last\.valid; \| .* -> false$/,
        /^return \{ rows, readAt, .* until: .* \| \+ -> -$/,
      ],
    },
  ],
  'packages/partner/src/auth.ts': [
    {
      why: 'The very microsecond at which a token ends, or has ended for a day.',
      places: [/ expires_at [<>] clock_timestamp\(\).* \| (?:> -> >=|< -> <=)$/],
    },
    {
      why: 'An empty client id is refused in any case: none is configured.',
      places: [/^if \(colon < 0\) throw invalidClient\(\); \| (?:< -> <=|0 -> 1)$/],
    },
  ],
  'packages/partner/src/call-places.ts': [
    {
      why: 'A biller of whom nothing waits is passed over all the same; there are no more of them than billers.',
      places: [/^if \(accounts\.size > 0\) .* \| (?:accounts\.size > 0 -> true|> -> >=)$/],
    },
  ],
  'packages/platform/src/engine/worker.ts': [
    {
      why: 'Where the turns begin.',
      places: [/^#nextNew = 0;/],
    },
    {
      why: 'Nobody waits for this.',
      places: [/^void this\.#dispatcher\.leave\(/],
    },
    {
      why: 'One call more in an estimate that is rounded up to a power of two.',
      places: [/\.started = 0; \| 0 -> 1$/],
    },
    {
      why: 'Less than the least that is claimed in any case.',
      places: [
        /^const calls = Math\.max\(MIN_NEED.* \| 0 -> 1$/,
        /^backlog \? callsPerSecond : 0, \| 0 -> 1$/,
        /^return 2 \*\* .* \| 1 -> 2$/,
      ],
    },
    {
      why: 'A pause of no time.',
      places: [/^if \(pause > 0\) .* \| (?:pause > 0 -> true|> -> >=|0 -> 1)$/],
    },
  ],
  'packages/platform/src/engine/records.ts': [
    {
      why: 'A bound above what a worker holds.',
      places: [/^const MAX_QUEUED = /],
    },
    {
      why: 'A settlement that is absent is written as none either way.',
      places: [/ \| step\.settled -> true$/],
    },
  ],
  'packages/platform/src/engine/review.ts': [
    {
      why: 'Two cases that only say what happens to whatever is not named: it goes on.',
      places: [/^case '(?:not_found|mismatch)': \| '\w+' -> '\w+'$/],
    },
  ],
  'packages/partner/src/accept.ts': [
    {
      why: 'Of an empty list nothing is handed over.',
      places: [/^if \(made\.size > 0\) handOver.* \| (?:made\.size > 0 -> true|> -> >=)$/],
    },
    {
      why: 'A shorter way to the same answer: what is missing is looked up, and nothing is.',
      places: [
        / \| made\.size === requests\.length -> false$/,
        / \| missing\.length === 0 -> false$/,
      ],
    },
    {
      why: 'The conflicting rows are committed, and no payment is ever deleted.',
      places: [/^assert\(row, 'an id was neither inserted nor found'\);/],
    },
    {
      why: 'Without lines, the statement is sent and writes none.',
      places: [/^if \(lines\.length > 0\) await writeAudit/],
    },
    {
      why: 'Without this error the next line throws one: the PUT is answered with 500, accepts nothing, and quotes nobody.',
      places: [/^throw new WrongAnswer\(`newPaymentIds failed/],
    },
  ],
  'packages/partner/src/cancel.ts': [UNDER_ITS_LOCK],
  'packages/partner/src/settle.ts': [
    UNDER_ITS_LOCK,
    {
      why: 'JSON leaves out a reason that is undefined.',
      places: [/ \| reason === undefined -> false$/],
    },
  ],
  'packages/partner/src/store.ts': [
    {
      why: 'The very microsecond at which a payment is due, or a lease ends.',
      places: [/ clock_timestamp\(\).* \| (?:<= -> <|> -> >=)$/],
    },
    {
      why: 'A count always gives a row.',
      places: [/^assert\(row\);/],
    },
    {
      why: 'The work list is a shorter way to the same payments.',
      places: [/^if \(filter\.status === 'processing'\) \{/, /^conditions\.push\( \| .* -> ;$/],
    },
    ORDER_OF_IDS,
  ],
  'packages/partner/src/claims.ts': [
    {
      why: 'The very microsecond at which a lease ends, or has ended for a day.',
      places: [/clock_timestamp\(\).* \| (?:< -> <=|> -> >=)$/],
    },
    {
      why: 'The order in which claims lock payments: without it two may deadlock, and one is tried again.',
      places: [/^ORDER BY platform_payment_id FOR UPDATE \| ORDER BY /],
    },
  ],
  'packages/partner/src/former-payments.ts': [
    ORDER_OF_IDS,
    {
      why: 'Of no rows nothing is written, and nothing is read.',
      places: [/^if \(made\.length > 0\) \{/, /^if \(rest\.length === 0\) return/],
    },
    {
      why: 'What stands for a time or a status that cannot be read: the file is refused.',
      places: [/^return new Date\(instant \?\? 0\)/, / 'processing' -> 'processingx'$/],
    },
    {
      why: 'An empty page more, which stores nothing.',
      places: [/^for \(let from = 0; from < payments\.length; .* \| < -> <=$/],
    },
  ],
  'packages/partner/src/ledger.ts': [
    {
      why: 'The key of a lock is any number.',
      places: [/^const IMPORT_LOCK = /],
    },
    {
      why: 'Without movements, the statement is sent and writes none.',
      places: [/^if \(movements\.length === 0\) return;/],
    },
    {
      why: 'The database holds both names or neither (account_name_whole).',
      places: [/first_name === null \|\| last_name === null \| \|\| -> &&$/],
    },
    {
      why: 'A maximum is at least 1 (account_maximum_positive): no minimum is as good as one of 1.',
      places: [/^\(\{ min_amount_in_cents: min, .* \| 0 -> 1$/],
    },
  ],
  'packages/partner/src/poster.ts': [
    {
      why: 'What is none of the three ends is no end.',
      places: [/^case 'later': /],
    },
    {
      why: 'The name of an error that is told by its message.',
      places: [/ 'TooLate' -> 'TooLatex'$/],
    },
    {
      why: 'A timer whose error nobody hears any more.',
      places: [/^clearTimeout\(timer\);/],
    },
    {
      why: 'Promise.race has taken the rejection already.',
      places: [/^work\.catch\(/],
    },
  ],
  'packages/partner/src/post-in-own-system.ts': [
    SECOND_LOOK,
    TOLD_TWICE,
    ONE_FOR_EACH,
    {
      why: 'How many payments one claim takes at most: more are claimed just as well.',
      places: [/^const MAX_CLAIMS = /],
    },
    {
      why: 'A bound above what can be in hand (apply.ts).',
      places: [/^maxQueued: 100_000, /],
    },
    {
      why: 'Without payments, the statement is sent and changes none.',
      places: [
        /^failed: refused\.size === 0/,
        /^if \(ids\.length === 0\) return; \| ids\.length === 0 -> false$/,
      ],
    },
    {
      why: 'Any word but the three others says that the call may begin.',
      places: [/ 'known' -> 'knownx'$/],
    },
    {
      why: 'An outcome that is no end is "later" (endOf).',
      places: [/^assert\(outcome\.outcome === 'later'\);/],
    },
    {
      why: 'A timer that holds up the end of the process, which no test waits for.',
      places: [/^giveUp\.unref\(\);/],
    },
    {
      why: 'What is taken during a stop begins no call: it is looked at once more before.',
      places: [/^for \(let free = isStopping \? 0 : .* \| (?:isStopping -> false|0 -> 1)$/],
    },
    {
      why: 'One look more in the very millisecond at which nobody waits any more.',
      places: [/^while \(clock\.monotonic\(\) < until .* < -> <=$/],
    },
  ],
  'packages/partner/src/post-in-transaction.ts': [
    TOLD_TWICE,
    ONE_FOR_EACH,
    {
      why: 'A word in the message of an error.',
      places: [/ 'posting' -> 'postingx'$/],
    },
    {
      why: 'Without payments, the statement is sent and changes none.',
      places: [/^if \(until\.length > 0\)/, /^const ended = ends\.length === 0/],
    },
    {
      why: 'A pause that is as good as none: the first rest is half a second either way.',
      places: [
        /^if \(lock && asked > 0\) lock\.pauseMs = 0; \| 0 -> 1 \(2\)$/,
        /^locks\.set\(account, .* pauseMs: 0(?:, apartMs)? \}\); \| 0 -> 1$/,
        /^locks\.get\(account\) \?\? .* \| 0 -> 1$/,
      ],
    },
    {
      why: 'A group of nothing is not begun.',
      places: [/^if \(!isGroupUnderWay && queue\.length > 0\) \{ \| > -> >=$/],
    },
    {
      why: 'When accounts that were locked long ago are forgotten: sooner changes nothing, because they are no longer skipped.',
      places: [
        /^if \(locks\.size > MAX_BATCH\) \{ \| (?:locks\.size > MAX_BATCH -> true|> -> >=)$/,
      ],
    },
    {
      why: 'A first count that is read only with a time, of which there is none before the first group that takes too long.',
      places: [/^const slowGroups = .* \| 0 -> 1$/],
    },
    {
      why: 'Half of two and of four places, rounded up, is a third of them, rounded up.',
      places: [/>= places \/ 2\) \|\| \| 2 -> 3$/],
    },
    {
      why: 'Where payments are tried alone, the same is asked again.',
      places: [/^if \(isResting\(account\)\) return .* -> false$/],
    },
  ],
  'packages/platform/src/engine/due-heap.ts': [
    {
      why: 'Which of several that are due at the same time comes first.',
      places: [
        /^if \(at > now \|\| at < latestAt\) continue; \| < -> <=$/,
        /above\.at > last\.at\) .* \| > -> >= \(2\)$/,
        /^if \(above === undefined .* \| <= -> <$/,
        /^const lesser = .* \| < -> <=$/,
        /^if \(lesser === undefined .* \| >= -> >$/,
      ],
    },
    {
      why: 'The root has nothing above it, and the first below it is never earlier.',
      places: [
        /^if \(at > 0 && above .* \| (?:> -> >=|0 -> 1)$/,
        /^while \(at > 0\) \{ \| > -> >=$/,
      ],
    },
    {
      why: 'The root is the earliest, so it excludes nothing that is due; behind the last item there is none.',
      places: [
        /^let latestAt = .* \| (?:\?\? -> &&|0 -> 1 \(2\))$/,
        /^for \(let index = .* \| < -> <=$/,
      ],
    },
  ],
  'packages/platform/src/engine/outage.ts': [
    {
      why: 'The very millisecond at which the log repeats itself.',
      places: [/^if \(now - told\.at >= REPEAT_MS\) \{ \| >= -> >$/],
    },
  ],
  'packages/platform/src/engine/call-rate.ts': [
    {
      why: 'Fewer calls than slow a partner down in any case.',
      places: [/^#started = .* \| 0 -> 1 \(3\)$/, /^const before = .* \| 0 -> 1$/],
    },
    {
      why: 'The first millisecond of the process.',
      places: [/^#answers = .* \| 0 -> 1$/],
    },
    {
      why: 'With a whole call saved up there is nothing to wait for either way.',
      places: [/^return this\.#tokens >= 1 .* \| (?:>= -> >|1 -> 2)$/],
    },
  ],
  'packages/platform/src/engine/lease.ts': [
    {
      why: 'An alarm that has rung, or that of a lease that has ended: no other is set for its time.',
      places: [/^alarm = undefined; \| alarm = undefined; -> ;/],
    },
    {
      why: 'The alarm is set anew, for the same time.',
      places: [/^if \(at !== undefined && alarm\?\.at === at\) return;/],
    },
    {
      why: 'For a lease that has ended there is no due time either way.',
      places: [/^case 'ended': \| 'ended' -> 'endedx' \(2\)$/],
    },
    {
      why: 'A renewal that only tests ask for, where none can be sent, or those who waited for it told twice.',
      places: [
        /^if \(state\.kind === 'held' && state\.askedAt === undefined\)/,
        /^answers = \[\]; \| answers = \[\]; -> ;$/,
      ],
    },
  ],
  'packages/platform/src/engine/ownership.ts': [
    {
      why: 'The very microsecond at which a heartbeat is too old, or too far ahead.',
      places: [/heartbeat_at .* \| (?:> -> >=|<= -> <|< -> <=|>= -> >)$/],
    },
  ],
  'packages/platform/src/engine/payment-steps.ts': [
    {
      why: 'Own faults of zero stay zero either way.',
      places: [/^const isSuspected = ownFaults > 0 .* > -> >=$/],
    },
  ],
  'packages/platform/src/engine/partner-queue.ts': [
    {
      why: 'A first value that is set before it is read: by the registration of the worker, or by the first failure.',
      places: [
        /^share = 0;/,
        /^cap = 1;/,
        /^callsPerSecond = 1;/,
        /^#isReached = false;/,
        /tookMs: 0 \}, \| 0 -> 1$/,
      ],
    },
    {
      why: 'A time before which nothing starts, in the first millisecond of the process, or when nothing holds calls back.',
      places: [
        /^#heldUntil = 0;/,
        /^this\.#(?:heldUntil|freshHeldUntil|brokenUntil) = 0; \| 0 -> 1$/,
        /^if \(!this\.onTrial\) return 0;/,
      ],
    },
    {
      why: 'A bound that keeps a power finite: the longest pause has long taken over by then.',
      places: [/ \| 20 -> 21$/],
    },
    {
      why: 'A trial that starts begins the two seconds anew, and one is allowed in any case.',
      places: [/^const trials = .* \| 1 -> 2$/, /^Math\.max\(trials, isFailing .* \| 0 -> 1$/],
    },
    {
      why: 'Turns are only compared with each other: begun later, or twice as far apart, they come in the same order.',
      places: [
        /^#turn = 0;/,
        /^this\.#turns\[lane\] = this\.#turn \+ 1 \/ TURNS\[lane\]; \| 1 -> 2$/,
      ],
    },
    {
      why: 'Sent in the very millisecond in which the last answered one was.',
      places: [
        /^if \(sent\.at >= answered/,
        /^if \(sent !== undefined && sent\.at >= .* \| >= -> >$/,
      ],
    },
  ],
  'packages/platform/src/engine/funding-queue.ts': [
    {
      why: 'A lane that is empty is passed over all the same; there are no more of them than partners.',
      places: [
        /^this\.#lanes\.delete\(key\); \| this\.#lanes\.delete\(key\); -> ;$/,
        /^if \(heap\.size > 0\) this\.#lanes\.set/,
      ],
    },
    {
      why: 'The name of a lane, which nothing else has.',
      places: [/^const key = .* \| '\w+' -> '\w+x'$/],
    },
  ],
  'packages/platform/src/engine/held-payments.ts': [
    {
      why: 'Which of several that are due at the same time comes first.',
      places: [
        /^if \(object\.at >= this\.#waiting\.atOf\(record\)\) return object; \| >= -> >$/,
        /^if \(object !== undefined && object\.at <= .* \| <= -> <$/,
        /^if \(latest === undefined \|\| .* \| >= -> >$/,
        /^if \(place > 0 && .* \| > -> >= \(2\)$/,
        /^if \(this\.#atOf\(parent\) <= at\) break; \| <= -> <$/,
        /^if \(child \+ 1 < this\.#size .* \| < -> <= \(2\)$/,
        /^if \(this\.#atOf\(child\) >= at\) break; \| >= -> >$/,
      ],
    },
    {
      why: 'How large the array of a heap is made.',
      places: [/^#records = new Uint32Array\(16\);/, /^const larger = .* \| 2 -> 3$/],
    },
    {
      why: 'The root has nothing above it, and what is written or read behind the last place of a heap is not looked at.',
      places: [
        /^for \(let place = .* \| < -> <=$/,
        /^if \(place === this\.#size\) return removed; \| .* -> false$/,
        /^if \(place > 0 && .* \| 0 -> 1$/,
      ],
    },
    {
      why: 'The place behind the end of the heap holds the very payment that is being placed.',
      places: [
        /^if \(child >= this\.#size\) break; \| >= -> >$/,
        /^if \(child \+ 1 < this\.#size .* \| (?:\+ -> -|< -> <=)$/,
      ],
    },
  ],
  'packages/platform/src/engine/engine.ts': [
    {
      why: 'What there is not has been proven a millisecond ago, or has stalled for one.',
      places: [/^(?:lease|calls): .* \| 0 -> 1$/],
    },
    {
      why: 'A worker that is finished, or was dropped, owns and drives nothing.',
      places: [/^this\.#worker = undefined; \|/],
    },
    {
      why: 'The outage is made at the start, before the lease.',
      places: [/^assert\(this\.#outage !== undefined\);/],
    },
    {
      why: 'The look itself begins with the same question.',
      places: [/^if \(signal\.aborted\) return; \| .* -> false \(2\)$/],
    },
    {
      why: 'Without a worker nothing is looked at, however often.',
      places: [/^if \(this\.#worker === undefined \|\| .* return false; \| false -> true$/],
    },
    {
      why: 'What changes in the same turn is told in more reads.',
      places: [/^await immediate\(\);/],
    },
  ],
  'packages/platform/src/engine/waiting.ts': [
    {
      why: 'How much memory is set aside at a time, and when it grows.',
      places: [
        /^const SEGMENT_BITS = /,
        /^id: new Uint32Array\(4 \* SEGMENT\), \| 4 -> 5$/,
        /^#table = new Uint32Array\(2 \* SEGMENT\); \| 2 -> 3$/,
        /^this\.#used \+= 1; \| 1 -> 2$/,
        /^this\.#table = new Uint32Array\(2 \* this\.#table\.length\); \| 2 -> 3$/,
        /^if \(2 \* records <= this\.#table\.length\) return; \| (?:2 -> 3|<= -> <|.* -> false)$/,
        /^const CHUNK = 1 << 20;/,
        /^readonly #free = .* \| 1 -> 2$/,
        /^if \(this\.#end \+ units > UNITS_PER_CHUNK\) \{ \| > -> >=$/,
        /^this\.#end = 0; \| 0 -> 1$/,
        /^return Math\.max\(1, Math\.ceil\(length \/ UNIT\)\); \| 1 -> 2$/,
      ],
    },
    {
      why: 'Texts of 2,033 bytes and more, which no payment has, leave their place unused.',
      places: [/^readonly #free = .* \| \+ -> -$/],
    },
    {
      why: 'Which number stands for a slot that there is not.',
      places: [/^const NO_SLOT = /],
    },
    {
      why: 'A payment at the very limit stays an object.',
      places: [/ > MAX_(?:TEXT|COUNT|GRACE) .* \| > -> >=/],
    },
    {
      why: 'No lane names a record that is free, or that there is not: the errors are for a bug.',
      places: [
        /^if \(columns === undefined\) throw /,
        /^if \(group === undefined\) throw /,
        /^if \(chunk === undefined\) throw /,
        /^this\.#groups\[record\] = undefined;/,
      ],
    },
    {
      why: 'The hyphen that follows ends the number.',
      places: [/^words\[0\] = .* \| 8 -> 9$/, /^words\[1\] = .* \| 18 -> 19$/],
    },
    {
      why: 'Where in the table an id is, not whether it is found: every probe goes on until it meets it.',
      places: [/^return \(ids\[from \+ 3\] /, /^while \(table\[gap\] !== record \+ 1\) /],
    },
    {
      why: 'A word that is listed twice is found at its first place, and one that is absent has no place.',
      places: [
        /^if \(payment\.anomaly !== undefined\) \{ \| .* -> true$/,
        /^if \(!this\.#anomalies\.includes/,
      ],
    },
  ],
  'packages/platform/src/engine/calls.ts': [
    {
      why: 'What is undefined is not written either way.',
      places: [/^return \{ kind: 'funds_settled', .* \| settled -> true$/],
    },
    {
      why: 'The listener is removed when the call has ended.',
      places: [/^signal\.addEventListener\('abort', abort, \{ once: true \}\); \| true -> false$/],
    },
    {
      why: 'What is not a PUT is counted as a GET.',
      places: [/^options\.counted\('poll', .* \| 'poll' -> 'pollx'$/],
    },
    {
      why: 'An answer that did not come has neither a status nor a wish for a rest.',
      places: [
        /^status: answer\.kind === 'reply' .* \| answer\.kind === 'reply' -> true$/,
        /^retryAfterMs: .* \| (?:answer\.kind === 'no_reply' -> false|'no_reply' -> 'no_replyx')$/,
      ],
    },
  ],
  'packages/platform/src/engine/active-payment.ts': [
    {
      why: 'Any number that is no slot.',
      places: [/^const GONE = /],
    },
    {
      why: 'Whoever makes a payment sets it; whether one that waits is an object or bytes is a matter of memory.',
      places: [/^isNew = false; /],
    },
  ],
  'packages/platform/src/engine/dispatcher.ts': [
    {
      why: 'Payments of one partner, biller, batch and method share what they have in common, which saves memory alone.',
      places: [
        /^const MAX_GROUPS = /,
        /^if \(group === undefined\) \{ \| group === undefined -> true$/,
        /^if \(this\.#groups\.size >= MAX_GROUPS\)/,
        /^this\.#groups\.set\(key, group\);/,
      ],
    },
    {
      why: 'Whether a payment that waits is an object or bytes is a matter of memory and time.',
      places: [/^payment\.isNew = /, /^this\.#saving\.delete\(payment\);/],
    },
    {
      why: 'A payment that the partner has not accepted has no age yet, and one whose acceptance was just read begins now.',
      places: [/^const age = isLoaded \? /],
    },
    {
      why: 'What is cleared here is not read any more.',
      places: [/^this\.#(?:timers|funding|unsaved)\.clear\(\);/],
    },
    {
      why: 'A timer that rings during a stop starts nothing, and ends with it.',
      places: [
        /^for \(const timer of this\.#timers\.values\(\)\) timer\.cancel\.abort\(\); .*\(2\)$/,
      ],
    },
    {
      why: 'Every write is part of a step or of a save, for whose end the stop has waited.',
      places: [/^await this\.#records\.drain\(\);/],
    },
    {
      why: 'A queue drops what is not driven any more, and none is asked after the end.',
      places: [/^if \(this\.#ended \|\| !payment\.isCurrent\) return; /],
    },
    {
      why: 'Nothing is kept under undefined.',
      places: [
        /^if \(object !== undefined\) this\.#unsaved\.delete\(object\); \| object !== undefined -> true$/,
      ],
    },
    {
      why: 'An array of numbers holds one at every slot.',
      places: [/^this\.#underWayIn\[slot\] = \(this\.#underWayIn\[slot\] \?\? 0\) .* \| 0 -> 1$/],
    },
    {
      why: 'An empty queue says neither a time nor that it is short.',
      places: [/^if \(turn\.kind === 'empty'\) return; /],
    },
    {
      why: 'A queue that is asked anew gives its earliest time, so a timer is replaced by one for the same time or the right one.',
      places: [/^if \(timer !== undefined && timer\.at <= at\) return; /],
    },
    {
      why: 'Only an authorization asks whether the partner is open.',
      places: [
        /^: this\.#apply\(payment, undefined, event, false\); /,
        /^return this\.#apply\(payment, partner, event, true, call\.sent\); /,
      ],
    },
    {
      why: 'The queue rests for seconds in any case.',
      places: [/^return 0; \| 0 -> 1 \(2\)$/],
    },
    {
      why: 'Without a partner nothing is read.',
      places: [/^\(partner\?\.budget\.wait_seconds \?\? 0\) > 0 .* \| 0 -> 1$/],
    },
    {
      why: 'An end that the partner did not tell has no times to learn from.',
      places: [
        /^if \(write\.by === 'partner'\) \{ \| write\.by === 'partner' -> true$/,
        /^else if \(dueMs !== undefined\) learnBetween.* \| dueMs !== undefined -> true$/,
      ],
    },
    {
      why: 'Nothing follows in the switch, or in memory, either way.',
      places: [/^case 'given_up': /, /^case 'settle': /],
    },
    {
      why: 'Only acceptances come here, and each carries its record.',
      places: [
        /^if \(acceptance\.kind === 'advance' && acceptance\.acceptance !== undefined\) \{ /,
      ],
    },
    {
      why: 'After a settlement the decision itself forgets the payment.',
      places: [
        /^if \(written\.kind === 'end'\) return written\.settles .* \| written\.kind === 'end' -> true$/,
        /^return written\.kind === 'settle'; /,
      ],
    },
  ],
  'packages/platform/src/engine/shares.ts': [
    {
      why: 'The very microsecond at which a heartbeat is too old, or too far ahead.',
      places: [/heartbeat_at .* \| (?:> -> >=|<= -> <)$/],
    },
    {
      why: 'Every claim was made from a demand.',
      places: [/^if \(demand === undefined\) continue;/],
    },
    {
      why: 'No two workers have the same id, and how far apart a comparison puts them is not looked at.',
      places: [/^needs\.sort\(/],
    },
    {
      why: 'When as much is left as there are hungry workers, each gets one either way.',
      places: [/^if \(left < hungry\.length\) \{ \| < -> <=$/],
    },
  ],
  'packages/platform/src/engine/poll-schedule.ts': [
    {
      why: 'A bound that keeps a power finite: the cap has long taken over by then.',
      places: [/ \| (?:60 -> 61|30 -> 31)$/],
    },
    {
      why: 'How fine the plan is: polls fall a little elsewhere.',
      places: [
        /^const LEAST_GAIN_MS = /,
        /^return ageMs >= HOUR_MS \? HOUR_MS : 15 \* 60_000; \| (?:>= -> >|15 -> 16)$/,
        /learntCapMs\(ageMs\) \* \(1 \+ random \* JITTER\)\) \+ MARGIN_MS; \| \+ -> - \(2\)$/,
        /^let waited = 0;/,
        /^if \(whole < least\) \{ \| < -> <=$/,
      ],
    },
    {
      why: 'Planned anew one payment sooner, or from one time less of a thousand.',
      places: [
        /^return \{ times: new Float32Array.* \| 0 -> 1 \(3\)$/,
        /settlements\.fresh > settlements\.count \* NEWS\) \{ \| > -> >=$/,
        /^settlements\.times\.subarray\(0, settlements\.count\), \| 0 -> 1$/,
      ],
    },
    {
      why: 'How closely the search comes to the price of a poll; it also finds the plan that needs no search.',
      places: [
        /^let \[cheap, dear\] = /,
        /^if \(best\.expectedPolls <= budget\) return best\.times; \| (?:<= -> <|.* -> false)$/,
        /^for \(let round = 0;/,
        /^if \(plan\.expectedPolls > budget\) \{ \| > -> >=$/,
      ],
    },
    {
      why: 'Behind the last edge, which lies beyond all known times, there is nothing: arrays read as undefined there and ignore writes.',
      places: [
        /^while \(from < edges\.length - 1 .* \| (?:< -> <=|- -> \+|1 -> 2)$/,
        /^for \(let cell = .* \| < -> <=$/,
        /^const (?:next|cost) = new /,
      ],
    },
    {
      why: 'A time without neighbours stands for itself alone; of two that are equally far, either is a neighbour.',
      places: [
        /^let \[low, high, from\] = .* \| - -> \+$/,
        /^while \(high < count - 1 .* \| < -> <= \(2\)$/,
      ],
    },
    {
      why: 'How far the search looks: further on it finds nothing cheaper.',
      places: [/^if \(waited > least\) break;/, /^furthest = next\[from\] \?\? count;/],
    },
    {
      why: 'It is a millisecond at least in any case.',
      places: [/^const before = Math\.max\(1, longest, .* \| 0 -> 1$/],
    },
  ],
  'packages/platform/src/engine/slots.ts': [
    {
      why: 'Which slot it is whose owner deals out the arrivals.',
      places: [/^export const ARRIVALS_KEEPER = /],
    },
    {
      why: 'Which of two workers that own equally many comes first: all workers compute the same.',
      places: [/^const byOwned = .* \| (?:a < b -> (?:true|false)|< -> <=|1 -> 2 \(2\))$/],
    },
    {
      why: 'The very microsecond at which a heartbeat, or a look at the slots, is too old or too far ahead.',
      places: [/ now\(\) [-+] \$1 .* \| (?:> -> >=|<= -> <)$/],
    },
    {
      why: 'Locks are taken in one order everywhere, whichever it is.',
      places: [/^const sorted = .* \| - -> \+$/],
    },
    {
      why: 'Without slots, or without arrivals, the statements are sent and change none.',
      places: [
        /^if \(slots\.length (?:===|>) 0\)/,
        /^if \(arrived\.length === 0 \|\| slots\.length === 0\)/,
      ],
    },
    {
      why: 'How many payments one statement reads.',
      places: [/^export const PAGE = /],
    },
    {
      why: 'What this statement reads too many, the next one refuses, which has the same conditions.',
      places: [/^WHERE p\.slot = \$\{ARRIVALS\} .* \| AND -> OR$/],
    },
  ],
  'packages/platform/src/store/payments.ts': [
    HAS_NOT_ENDED,
    {
      why: 'An insert that neither fails nor returns its row: PostgreSQL has no such answer.',
      places: [/^if \(row === undefined\) throw new Error\('an insert gave no row'\)/],
    },
    {
      why: 'A detail that is absent is written as null either way.',
      places: [/ \| step\.detail === undefined -> false$/],
    },
    {
      why: 'A shorter way to the same answer, for the usual case.',
      places: [/^if \(changed\.length === asked\.length\) return .* -> false$/],
    },
  ],
  'packages/platform/src/store/terminal.ts': [
    {
      why: 'A payment that has ended is neither in review nor paused: whatever ends it moves it to another slot.',
      places: [/ OR p\.slot = .* \| AND p\.status = 'processing' -> nothing$/],
    },
    HAS_NOT_ENDED,
    {
      why: 'A reason for a review stands only in a row that is in review (payments_review).',
      places: [/ AND p\.review_reason = \$4 \| AND p\.stage = 'review' -> nothing$/],
    },
  ],
};

/** Returns why a mutant of a core file may survive; undefined if nothing explains it. */
export function coreExplanationOf(file: string, mutant: string): string | undefined {
  return CORE_SURVIVORS[file]?.find(({ places }) => places.some((place) => place.test(mutant)))
    ?.why;
}

/** Files whose survivors have met no world of the simulator. */
const TESTS_ALONE = [
  'dispatcher.ts',
  'active-payment.ts',
  'calls.ts',
  'waiting.ts',
  'held-payments.ts',
  'funding-queue.ts',
  'shares.ts',
  'partner-queue.ts',
  'poll-schedule.ts',
  'slots.ts',
  'due-heap.ts',
  'call-rate.ts',
  'records.ts',
  'worker.ts',
  'engine.ts',
  'payments.ts',
  'terminal.ts',
];

/** The section of docs/mutation.md. */
export function coreSection(scores: Readonly<Record<string, CoreScore>>): string {
  const rows = Object.entries(scores).map(([file, score]) => {
    const { mutants, seed, killed, by, survivors, unreached } = score;
    const tried = killed + survivors.length + unreached.length;
    const open = survivors.filter((one) => coreExplanationOf(file, one) === undefined).length;
    const killers = Object.entries(by).map(([who, count]) => `${count} ${who}`);
    return `| \`${file}\` | ${mutants} | ${seed === undefined ? 'all' : `${tried}, seed ${seed}`} | ${killed} | ${survivors.length} | ${open} | ${unreached.length} | ${killers.join(', ')} |`;
  });
  const reasons = Object.entries(scores).flatMap(([file, { survivors, unreached }]) => {
    const explained = (CORE_SURVIVORS[file] ?? []).flatMap(({ why, places }) => {
      const own = survivors.filter((one) => places.some((place) => place.test(one)));
      return own.length === 0 ? [] : [`- ${own.length}: ${why}`];
    });
    const open = survivors.filter((one) => coreExplanationOf(file, one) === undefined);
    const lines = [
      ...explained,
      ...open.map((one) => `- not yet killed: \`${one}\``),
      ...unreached.map((one) => `- no test leads there: \`${one}\``),
    ];
    return lines.length === 0 ? [] : [`### ${file}\n\n${lines.join('\n')}\n`];
  });
  const untried = Object.keys(CORE).filter((file) => scores[file] === undefined);
  return `## The core

The same operators change our own core: engine, store and partner kit. Each mutant has to be killed by a test, by a world of the
simulator or by the database; what survives is a hole in the tests, or is explained here. \`npm run mutation -- core --file lease\`
tries all mutants of one file again, \`--count 40 --seed 7\` forty of them; \`core.ts\` beside the operators says which tests are run
over which file. The tree is not touched: the changed text is put in the place of the file while it is loaded. Of a test file only the
tests that run the changed place are tried, the quick ones first, two mutants at a time, and the first that fails ends them; so does one that twice takes
eight times as long as over the right code and at least fifteen seconds. Tests that need no server share one process, which loads the
changed file anew for each mutant; there the processor time counts, which a busy machine does not change. Numbers above 100 are limits and times: they are made ten times as
large. With \`--results FILE\` a long run can be split into several.

Where not all mutants of a file were tried, they are a sample by the seed, or the beginning of one in the order of the file: what is said
of them is not said of the rest. Over ${TESTS_ALONE.map((name) => `\`${name}\``).join(', ')} the tests
beside the file alone were tried (\`--tests-only\`): a world of the simulator, or a test of the whole engine, may kill more of what
survives there.

<!-- prettier-ignore -->
| file | mutants | tried | killed | survive | of these unexplained | not reached | killed first by |
| --- | --: | --: | --: | --: | --: | --: | --- |
${rows.join('\n')}

${untried.length === 0 ? '' : `Not tried yet, so that nothing is said of them: ${untried.map((file) => `\`${file}\``).join(', ')}.\n\n`}${reasons.join('\n')}`;
}
