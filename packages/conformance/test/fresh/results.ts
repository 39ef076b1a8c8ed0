/** The verdicts on the fresh wrong peers, before and after the missing checks were added, and the page that lists them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { FOURTH_CALLERS } from './fourth-callers.ts';
import { FOURTH_PARTNERS } from './fourth-partners.ts';
import { FOURTH_PLATFORMS } from './fourth-platforms.ts';
import { RIGHT_CALLERS_4, RIGHT_PARTNERS_4, RIGHT_PLATFORMS_4 } from './fourth-right.ts';
import { SECOND_CALLERS, SECOND_PARTNERS, SECOND_PLATFORMS } from './second-set.ts';
import { RIGHT_CALLERS, THIRD_CALLERS } from './third-callers.ts';
import { RIGHT_PARTNERS, THIRD_PARTNERS } from './third-partners.ts';
import { RIGHT_PLATFORMS, THIRD_PLATFORMS } from './third-platforms.ts';
import { WRONG_CALLERS, type WrongCaller } from './wrong-callers.ts';
import { WRONG_PARTNERS, type WrongPartner } from './wrong-partners.ts';
import { WRONG_PLATFORMS, type WrongPlatform } from './wrong-platforms.ts';

export const FILE = join(import.meta.dirname, 'results.json');
export const PAGE = join(import.meta.dirname, '../../../../docs/fresh-peers.md');

export type Kind = 'partners' | 'platforms' | 'callers';

/** The checks that failed, and those that only warned. */
interface Verdicts {
  readonly failed: readonly string[];
  readonly warned: readonly string[];
}

/** Results by "kind name"; `before`, the first run, is missing for the second set (WRITTEN_AFTER). */
export interface Kept {
  readonly before?: Verdicts;
  readonly now: Verdicts;
}

type Peer = WrongPartner | WrongPlatform | WrongCaller;
type SetNumber = 1 | 2 | 3 | 4;

export interface Fresh {
  readonly kind: Kind;
  readonly name: string;
  readonly defect: number;
  readonly breaks: string;
  readonly how: string;
  readonly set: SetNumber;
  readonly peer: Peer;
}

/** The wrong peers of each kind, by set. */
const WRONG: Readonly<Record<Kind, Readonly<Record<SetNumber, readonly Peer[]>>>> = {
  partners: { 1: WRONG_PARTNERS, 2: SECOND_PARTNERS, 3: THIRD_PARTNERS, 4: FOURTH_PARTNERS },
  platforms: { 1: WRONG_PLATFORMS, 2: SECOND_PLATFORMS, 3: THIRD_PLATFORMS, 4: FOURTH_PLATFORMS },
  callers: { 1: WRONG_CALLERS, 2: SECOND_CALLERS, 3: THIRD_CALLERS, 4: FOURTH_CALLERS },
};
const KINDS = ['partners', 'platforms', 'callers'] as const;
const SETS = [1, 2, 3, 4] as const;

/** The second set was written to test checks that existed: it has no first run. */
export const WRITTEN_AFTER = 2;

/** Every wrong peer of all sets. */
export function fresh(): readonly Fresh[] {
  return KINDS.flatMap((kind) => SETS.flatMap((set) => listed(kind, set, WRONG[kind][set])));
}

/** Correct peers of unusual shape, written together with the third set and the fourth. */
export function unusual(): readonly Fresh[] {
  return [
    ...listed('partners', 3, RIGHT_PARTNERS),
    ...listed('platforms', 3, RIGHT_PLATFORMS),
    ...listed('callers', 3, RIGHT_CALLERS),
    ...listed('partners', 4, RIGHT_PARTNERS_4),
    ...listed('platforms', 4, RIGHT_PLATFORMS_4),
    ...listed('callers', 4, RIGHT_CALLERS_4),
  ];
}

function listed(kind: Kind, set: SetNumber, peers: readonly Peer[]): Fresh[] {
  return peers.map((peer) => {
    const { name, defect, breaks, how } = peer;
    return { kind, name, defect, breaks, how, set, peer };
  });
}

/** The peer of an earlier set that has the same fault; the peer then extends its class. */
function earlierOf({ set, peer }: Fresh): string | undefined {
  const base: unknown = Object.getPrototypeOf(peer.make);
  return fresh().find((one) => one.set < set && one.peer.make === base)?.name;
}

export function kept(): Readonly<Record<string, Kept>> {
  return JSON.parse(readFileSync(FILE, 'utf8')) as Record<string, Kept>;
}

/** The classes of faults, by the number that the tables of wrong peers give. */
const CLASSES: Readonly<Record<number, string>> = {
  1: 'partners: an operation that is open, or carried out before it is refused',
  2: 'partners: the first response differs from the stored payment',
  3: 'partners: amounts that a number type rounds, wraps or clamps',
  4: 'partners: terminal payments change',
  5: 'partners: effects on the balance',
  6: 'partners: credentials and scopes that are almost right',
  7: 'partners: concurrency, replicas and caches',
  8: 'partners: identifiers folded, truncated, or issued twice',
  9: 'partners: state lost in a restart',
  10: 'partners: times and reasons',
  13: 'platforms: the token endpoint',
  15: 'callers: responses misread',
  16: 'callers: wrong requests',
};

/** Why a peer that no check fails is only warned of, or cannot be seen. */
export const EXPLAINED: Readonly<Record<string, string>> = {
  'partners ScopeAsClaimed':
    'a warning: a token for paying that may also read endangers no money (SC1)',
  'partners LostUpdate':
    'a warning: a balance that falls by less than was paid may also have been charged anew meanwhile',
  'partners LastOfTheTickWins':
    'a warning: a balance that falls by less than was paid may also have been charged anew meanwhile',
  'partners FoldedAccounts': 'a warning: only decision 13 compares account ids byte by byte',
  'partners TrimmedAccounts': 'a warning: only decision 13 compares account ids byte by byte',
  'platforms TokenIsHash': 'a warning: the interface does not say that tokens cannot be guessed',
  'platforms TokenCounts': 'a warning: the interface does not say that tokens cannot be guessed',
  'platforms TokenHoldsCustomer': 'a warning: the interface does not say what a token may hold',
  'platforms BrokenJsonIs500':
    'a warning: the interface leaves other statuses than 404 and 500 open',
  'platforms NullBodyIs500': 'a warning: the interface leaves other statuses than 404 and 500 open',
  'platforms LongNamesAre500': 'a warning: the interface sets no length, and allows a 500',
  'platforms EmptyIsThere': 'a warning: an empty text is a text; only the strict profile objects',
  'platforms EmptyAddressParts':
    'a warning: an empty text is a text; only the strict profile objects',
  'platforms ClientFolded': 'a warning: the id is not secret, and the key is compared as it is',
  'platforms CharsetRefused': 'a warning: A1 can be read as that text and no other',
  'platforms TypeCaseMatters': 'a warning: A1 can be read as that text and no other',
  'platforms AnyTypeRead': 'a warning: the caller sent what the interface forbids',
  'callers PutIgnoresRetryAfter': 'a warning: the interface has no rate limits; decision 23 has',
  'callers DatesOfRetryAfter': 'a warning: the interface has no rate limits; decision 23 has',
  'callers RetryAfterInMs': 'a warning: the interface has no rate limits; decision 23 has',
  'callers RetryDatesOfToday': 'a warning: the interface has no rate limits; decision 23 has',
  'callers NoBackoff': 'a warning: the interface has no rate limits; decision 25 has',
  'callers TokenForEachCall':
    'a warning: the interface lets a caller fetch as many tokens as it likes',
  'callers TokenHerd': 'a warning: the interface lets a caller fetch as many tokens as it likes',
  'callers RefusedTokenStays':
    'a warning: the interface does not say how a token is renewed; payments stand still, and none is wrong',
  'partners SecondEndsAtOnce': 'a warning: the end is right, and shown at once',
  'partners CancelledWithTwoL': 'a warning: only an operator cancels, and the word ends nothing',
  'partners NothingIsAnAmount': 'a warning: the interface sets no smallest amount',
  'partners NewYorkWithZ': 'a warning: the interface does not say how exact a clock must be',
  'partners AnyGrantType':
    'a warning: a token for another grant needs the right secret all the same',
  'partners TokensLiveForever': 'a warning: the interface sets no bound on the life of a token',
  'partners ParserIs500': 'a warning: the interface leaves the errors of a partner open',
  'partners NoFieldOfTomorrow': 'a warning: the interface does not show the whole body of the PUT',
  'platforms NoKeyIs500': 'a warning: the interface leaves other statuses than 404 and 500 open',
  'platforms NullBreaks': 'a warning: the interface leaves other statuses than 404 and 500 open',
  'platforms ParserBreaks': 'a warning: the interface leaves other statuses than 404 and 500 open',
  'platforms TextIsJson': 'a warning: the caller sent what the interface forbids',
  'platforms BareTypeOnly': 'a warning: A1 can be read as that text and no other',
  'platforms DateIsADatetime':
    'a warning: a date is an ISO 8601 text, and no payment depends on it',
  'platforms NoNewAddressFields': 'a warning: only decision 17 lets the interface grow',
  'platforms SixthIsTooMany': 'a warning: the interface has no rate limits; decision 5 has',
  'platforms GetIsFine': 'a warning: the interface does not say what another method gets',
  'platforms LargeIsAPage': 'a warning: a proxy in front of the platform may refuse a large body',
  'platforms QuotesWhatItRefuses':
    'a warning: the interface does not say what a message may contain',
  'platforms BodyFirst': 'a warning: only decision 6 says what is checked first',
  'platforms AlwaysZipped': 'a warning: HTTP lets a server ignore Accept-Encoding',
  'platforms ExpiresWhenIssued': 'a warning: the header is ours (decision 8)',
  'platforms ChunksAreEmpty': 'a warning: few callers send a body in chunks',
  'callers PollsWithoutPause': 'a warning: the interface lets a platform poll frequently',
  'callers RetryAfterUnread': 'a warning: the interface has no rate limits; decision 23 has',
  'callers OneAfterAnother':
    'a warning: the interface does not say how many payments a platform makes at once',
  'callers CustomerInTheBody': 'a warning: the interface does not show the whole body of the PUT',
  'callers LifeInMilliseconds':
    'a warning: the interface lets a caller fetch as many tokens as it likes',
  'callers DeadTokenRepeated':
    'a warning: the interface does not say how a token is renewed; payments stand still, and none is wrong',
  'partners SeenBeforeChecked':
    'a warning: only decision 10 says that a refused request leaves nothing behind',
  'platforms DollarIsBeforeNewline': 'a warning: a lenient platform may trim white space',
  'platforms TypeStartsWithJson': 'a warning: the caller sent what the interface forbids',
  'callers PollerKeepsItsToken':
    'a warning: the interface does not say how a token is renewed; payments stand still, and none is wrong',
  'callers RenewsForReadOnly':
    'a warning: the interface does not say how a token is renewed; payments stand still, and none is wrong',
  'callers ConfirmsOnce':
    'not tried: one read after the end may be a reconciliation, so the judge lets one pass',
  'platforms CredentialsInQuery':
    'not tried: the judge would write the key of the platform into the logs of every proxy on the way',
};

const word = (verdicts: Verdicts | undefined): 'failed' | 'warned' | 'missed' =>
  (verdicts?.failed.length ?? 0) > 0
    ? 'failed'
    : (verdicts?.warned.length ?? 0) > 0
      ? 'warned'
      : 'missed';

/** How many failed, were warned of and were missed. */
const tally = (some: readonly (Verdicts | undefined)[]): readonly number[] =>
  (['failed', 'warned', 'missed'] as const).map(
    (wanted) => some.filter((one) => word(one) === wanted).length,
  );

/** docs/fresh-peers.md. */
export function page(results: Readonly<Record<string, Kept>>): string {
  const peers = fresh().map((one) => ({ ...one, kept: results[`${one.kind} ${one.name}`] }));
  const of = (set: SetNumber) => peers.filter((one) => one.set === set);
  const row = (title: string, within: (one: Fresh) => boolean): string => {
    const cells = SETS.flatMap((set) => {
      const own = of(set).filter(within);
      const cell = (some: readonly (Verdicts | undefined)[]): string =>
        own.length === 0 ? '' : tally(some).join(' / ');
      const now = cell(own.map(({ kept }) => kept?.now));
      return set === WRITTEN_AFTER ? [now] : [cell(own.map(({ kept }) => kept?.before)), now];
    });
    return `| ${title} | ${cells.join(' | ')} |`;
  };
  const heads = SETS.flatMap((set) =>
    set === WRITTEN_AFTER
      ? [`set ${String(set)}: now`]
      : [`set ${String(set)}: first run`, `set ${String(set)}: now`],
  );
  const rows = Object.entries(CLASSES).map(([number, text]) =>
    row(`${number} | ${text}`, ({ defect }) => defect === Number(number)),
  );
  const repeated = (set: SetNumber): string => {
    const again = of(set).filter((one) => earlierOf(one) !== undefined);
    const unseen = of(set).filter((one) => !again.includes(one));
    const [failed, warned, missed] = tally(unseen.map((one) => one.kept?.before));
    return `Of the ${String(of(set).length)} faults of set ${String(set)}, ${String(again.length)} turned out to be in an earlier set already; those peers share its code, and the
list below names it. Of the other ${String(unseen.length)}, the first run failed ${String(failed)}, warned of ${String(warned)} and missed ${String(missed)}.`;
  };
  const open = peers.filter(({ kept }) => word(kept?.now) !== 'failed');
  const lines = peers.map((one) => {
    const { kind, name, breaks, set, kept } = one;
    const earlier = earlierOf(one);
    const how = earlier === undefined ? one.how : `${one.how} (as ${earlier})`;
    const found = [...(kept?.now.failed ?? []), ...(kept?.now.warned ?? []).map((id) => `(${id})`)];
    const before = set === WRITTEN_AFTER ? 'written after' : word(kept?.before);
    return `| ${kind.slice(0, -1)} | ${name} | ${String(set)} | ${how} | ${breaks} | ${before} | ${found.join(' ')} |`;
  });
  return `# Wrong peers that nobody wrote a check against

The peers of [the kill matrix](kill-matrix.md) were made by people who know the checks. These were written from the interface
alone, by somebody who had not read a check, with the mistakes of a competent engineer in a hurry.
Each is a simple correct peer with one method changed; the correct peers pass without a warning. All are
judged in the strict profile, at the usual pace, by \`npm run fresh\`, which writes this page.

The first run is the one before anything was changed. Every miss of the first set that can be seen from
outside was then closed by a check of its whole class, and a second set was written to prove it: another
fault of each class in which something had been missed. The third set was written in the same blind way as the
first, later and by somebody who had read neither the checks nor the first two sets, and looks for faults
that show only in a combination. \`npm test\` judges a few of each set again.

The fourth set was written in the same way by somebody else, after the checks had been extended for the first
three. Most of what was missed in it shows only for an unusual value (a ZIP code with a leading zero, a batch id with an
ampersand, an account id with a space), for requests at the same time, or after a restart. The checks that were missing
were then added by class: every response of a run is now examined, not only those of a few payments (P60).

${repeated(3)}

${repeated(4)}

Four faults of the third set are not listed. Two are faults only by a decision, not by the interface: a
caller that reads a response of any size, and one that takes succeeded without posted_at. One needs a
second OAuth client of the same partner: a 409 for the other client's id whose body has no code. The first
run missed these three. The fourth, ids in braces, failed in the first run; the base used here shows it only as a
refused PUT (C09).

Each cell counts the peers that failed, those that were only warned of, and those that were missed.

<!-- prettier-ignore -->
| class | what is wrong | ${heads.join(' | ')} |
| --: | --- ${'| --: '.repeat(heads.length)}|
${rows.join('\n')}
${row(' | all', () => true)}

"Failed" means that a must-check failed and the run ends with exit code 1; "warned" that the report
names it, and the run passes.

## What is not failed, and why

<!-- prettier-ignore -->
| peer | wrong | said by | why |
| --- | --- | --- | --- |
${open.map(({ kind, name, how, kept }) => `| ${name} | ${how} | ${kept?.now.warned.join(' ') ?? ''} | ${EXPLAINED[`${kind} ${name}`] ?? ''} |`).join('\n')}

## Right peers of unusual shape

They were written together with the third set and the fourth. Of the third set, the first run accused one of
the partners and one of the callers: an empty balance was warned of (P13), and a path in which more than
necessary is percent-encoded failed (C09). Of the ${String(unusual().filter(({ set }) => set === 4).length)} of the fourth, it accused two: a platform that answers 429 without
Retry-After failed (T19), and a caller whose ids have 150 characters, because the test’s own page did not find them. No
check fails one of them now. In the strict profile some are warned of, each by a decision: errors as web pages, for example.
The scripted partner takes the ids of decision 13 only, so that most checks of that caller are skipped.

<!-- prettier-ignore -->
| | peer | shape |
| --- | --- | --- |
${unusual()
  .map(({ kind, name, how }) => `| ${kind.slice(0, -1)} | ${name} | ${how} |`)
  .join('\n')}

## All of them

A check in brackets warned.

<!-- prettier-ignore -->
| | peer | set | wrong | breaks | first run | found now by |
| --- | --- | --: | --- | --- | --- | --- |
${lines.join('\n')}
`;
}
