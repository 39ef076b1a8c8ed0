/** The verdicts on the fresh wrong peers, before and after the missing checks were added, and the page that lists them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SECOND_CALLERS, SECOND_PARTNERS, SECOND_PLATFORMS } from './second-set.ts';
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

/** Results by "kind name"; `before` is missing for the second set, which was written later. */
export interface Kept {
  readonly before?: Verdicts;
  readonly now: Verdicts;
}

interface Fresh {
  readonly kind: Kind;
  readonly name: string;
  readonly defect: number;
  readonly breaks: string;
  readonly how: string;
  readonly second: boolean;
  readonly peer: WrongPartner | WrongPlatform | WrongCaller;
}

/** Every wrong peer of both sets. */
export function fresh(): readonly Fresh[] {
  const of = (kind: Kind, second: boolean, peers: readonly Fresh['peer'][]): Fresh[] =>
    peers.map((peer) => {
      const { name, defect, breaks, how } = peer;
      return { kind, name, defect, breaks, how, second, peer };
    });
  return [
    ...of('partners', false, WRONG_PARTNERS),
    ...of('partners', true, SECOND_PARTNERS),
    ...of('platforms', false, WRONG_PLATFORMS),
    ...of('platforms', true, SECOND_PLATFORMS),
    ...of('callers', false, WRONG_CALLERS),
    ...of('callers', true, SECOND_CALLERS),
  ];
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
  'platforms CredentialsInQuery':
    'not tried: the judge would write the key of the platform into the logs of every proxy on the way',
};

const word = (verdicts: Verdicts | undefined): 'failed' | 'warned' | 'missed' =>
  (verdicts?.failed.length ?? 0) > 0
    ? 'failed'
    : (verdicts?.warned.length ?? 0) > 0
      ? 'warned'
      : 'missed';

/** docs/fresh-peers.md. */
export function page(results: Readonly<Record<string, Kept>>): string {
  const peers = fresh().map((one) => ({ ...one, kept: results[`${one.kind} ${one.name}`] }));
  const tally = (some: readonly (Verdicts | undefined)[]): string =>
    (['failed', 'warned', 'missed'] as const)
      .map((wanted) => String(some.filter((one) => word(one) === wanted).length))
      .join(' | ');
  const first = peers.filter(({ second }) => !second);
  const rows = Object.entries(CLASSES).map(([number, text]) => {
    const own = peers.filter(({ defect }) => defect === Number(number));
    const [one, two] = [own.filter(({ second }) => !second), own.filter(({ second }) => second)];
    return `| ${number} | ${text} | ${String(one.length)} | ${tally(one.map(({ kept }) => kept?.before))} | ${tally(one.map(({ kept }) => kept?.now))} | ${String(two.length)} | ${tally(two.map(({ kept }) => kept?.now))} |`;
  });
  const second = peers.filter((one) => one.second);
  const open = peers.filter(({ kept }) => word(kept?.now) !== 'failed');
  const lines = peers.map(({ kind, name, breaks, how, second, kept }) => {
    const found = [...(kept?.now.failed ?? []), ...(kept?.now.warned ?? []).map((id) => `(${id})`)];
    const before = second ? 'written after' : word(kept?.before);
    return `| ${kind.slice(0, -1)} | ${name} | ${how} | ${breaks} | ${before} | ${found.join(' ')} |`;
  });
  return `# Wrong peers that nobody wrote a check against

The peers of [the kill matrix](kill-matrix.md) were made by people who know the checks, and
[mutants](mutation.md) are made by a machine. These were written in a third way: from the interface
alone, by somebody who had not read a check, with the mistakes of a competent engineer in a hurry.
Each is a simple correct peer with one method changed; the correct peers pass without a warning. All are
judged in the strict profile, at the usual pace, by \`npm run fresh\`, which writes this page.

"Before" is the first run, before anything was changed. Every miss that can be seen from outside was
then closed by a check of its whole class, and a second set was written to prove it: another fault
of each class in which something had been missed. \`npm test\` judges a few of both sets again.

<!-- prettier-ignore -->
| class | what is wrong | peers | before: failed | warned | missed | now: failed | warned | missed | second set | failed | warned | missed |
| --: | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |
${rows.join('\n')}
| | all | ${String(first.length)} | ${tally(first.map(({ kept }) => kept?.before))} | ${tally(first.map(({ kept }) => kept?.now))} | ${String(second.length)} | ${tally(second.map(({ kept }) => kept?.now))} |

"Failed" means that a must-check failed and the run ends with exit code 1; "warned" that the report
names it, and the run passes.

## What is not failed, and why

<!-- prettier-ignore -->
| peer | wrong | said by | why |
| --- | --- | --- | --- |
${open.map(({ kind, name, how, kept }) => `| ${name} | ${how} | ${kept?.now.warned.join(' ') ?? ''} | ${EXPLAINED[`${kind} ${name}`] ?? ''} |`).join('\n')}

## All of them

A check in brackets warned.

<!-- prettier-ignore -->
| | peer | wrong | breaks | before | found now by |
| --- | --- | --- | --- | --- | --- |
${lines.join('\n')}
`;
}
