/**
 * What a check can report: findings, or a reason why it could not judge, and the resulting verdict. A must-finding makes a check
 * FAIL, a should-finding WARN.
 */
import type { ClauseId, Json } from '@duebridge/contract';
import { asObject, isSuccess, show, tell, type Exchange, type Reply } from './http.ts';

/** must: the interface or money is broken. should: a warning. */
export type Severity = 'must' | 'should';

/** contract: only what the interface states. strict: also the decisions where the interface is silent. */
export type Profile = 'contract' | 'strict';

/** How a rule counts. strict: a should that only the strict profile has, because a decision adds it. */
export type Level = Severity | 'strict';

/** One defect found. */
export interface Finding {
  readonly severity: Severity;
  /** What was expected. */
  readonly expected: string;
  /** What was received. */
  readonly got: string;
  /** The rule that it breaks, when not the first of its check. */
  readonly clause?: ClauseId;
  /** The usual cause, when it differs from the check's own. */
  readonly cause?: string;
  /** The exchange that shows it; absent when no single one does. */
  readonly exchange?: Exchange;
}

/** PASS all held; FAIL a must was broken; WARN a should was; SKIP not judged; CONFIG the target is not reachable as declared. */
export type Verdict = 'PASS' | 'FAIL' | 'WARN' | 'SKIP' | 'CONFIG';

/**
 * Why a check was not judged. `nothing to judge` does not count against the run. `wanting` names what the target file must
 * declare first; the run then counts as judged in part.
 */
export type SkipKind = 'nothing to judge' | 'wanting';

/** Thrown by a context when the precondition of a check is not met; the runner reports it as SKIP. */
export class Skipped extends Error {
  override readonly name = 'Skipped';
  readonly kind: SkipKind;
  constructor(reason: string, kind: SkipKind = 'nothing to judge') {
    super(reason);
    this.kind = kind;
  }
}

/** The rest of a finding. `got`: what was received, when it is not simply the reply that shows it. */
export type More = Partial<Pick<Finding, 'got' | 'clause' | 'cause'>>;

/** The same, with how the rule counts: a must unless given. */
export type MoreAt = More & { readonly level?: Level };

/** The findings of one check. `At`: what can show one. */
export class Findings<At extends object = Reply | Exchange> {
  readonly all: Finding[] = [];
  /** Remarks that are not breaches, such as a value that could not be measured. */
  readonly notes: string[] = [];
  /** What the target must declare so that the rest of the check can be judged. */
  readonly wanting: string[] = [];
  readonly profile: Profile;

  constructor(profile: Profile) {
    this.profile = profile;
  }

  /** Raises a must-finding unless `holds`. Returns `holds`, so that a check can continue or stop. */
  must(holds: boolean, expected: string, at?: At, more?: More): boolean {
    return this.#raise('must', holds, expected, at, more);
  }

  /** Raises a should-finding unless `holds`. */
  should(holds: boolean, expected: string, at?: At, more?: More): boolean {
    return this.#raise('should', holds, expected, at, more);
  }

  /** Raises a should-finding unless `holds`, in the strict profile only: a rule that a decision adds. */
  strict(holds: boolean, expected: string, at?: At, more?: More): boolean {
    return this.#raise('strict', holds, expected, at, more);
  }

  /** Raises a finding when anything bad was found; the first shows it. `got` tells of it, and of how many there are. */
  none<T extends At>(
    found: readonly T[],
    expected: string,
    got?: (one: T, count: number) => string,
    { level = 'must', ...more }: MoreAt = {},
  ): boolean {
    const [one] = found;
    if (one === undefined) return true;
    const told = got === undefined ? more : { got: got(one, found.length), ...more };
    return this.#raise(level, false, expected, one, told);
  }

  /** Raises a finding unless one field of the answer's object is right; it says what the field is. */
  field(
    reply: At & Reply,
    name: string,
    expected: string,
    holds: (value: Json | undefined) => boolean,
    { level = 'must', ...more }: MoreAt = {},
  ): boolean {
    const fields = isSuccess(reply) ? asObject(reply.json) : undefined;
    const got = fields === undefined ? tell(reply) : `${name} is ${show(fields[name])}`;
    return this.#raise(level, holds(fields?.[name]), expected, reply, { got, ...more });
  }

  /** Raises a finding unless one field of the answer's object has this value. `note` follows it in the expectation. */
  equals(
    reply: At & Reply,
    name: string,
    wanted: Json | undefined,
    { note = '', ...more }: MoreAt & { readonly note?: string } = {},
  ): boolean {
    return this.field(reply, name, `${name} ${show(wanted)}${note}`, (got) => got === wanted, more);
  }

  /** Says what this run could not look at. In the strict profile it counts as judged in part: what nobody saw is no proof. */
  unseen(what: string): void {
    if (this.profile === 'strict') this.wanting.push(what);
    else this.notes.push(`${what}.`);
  }

  /** Ends the check as SKIP unless `holds`: its precondition. */
  given(holds: boolean, reason: string): asserts holds {
    if (!holds) throw new Skipped(reason);
  }

  /** The exchange that shows a finding, and what was received. */
  protected shown(at: At): { readonly exchange: Exchange; readonly got: string } {
    if ('exchange' in at) return { exchange: at.exchange as Exchange, got: tell(at as Reply & At) };
    return { exchange: at as Exchange & At, got: '' };
  }

  #raise(
    level: Level,
    holds: boolean,
    expected: string,
    at: At | undefined,
    more: More = {},
  ): boolean {
    if (holds || (level === 'strict' && this.profile !== 'strict')) return true;
    const severity = level === 'must' ? level : 'should';
    const { got, exchange } = at === undefined ? { got: '' } : this.shown(at);
    this.all.push({ severity, expected, got, ...more, ...(exchange && { exchange }) });
    return false;
  }
}
