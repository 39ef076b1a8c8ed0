/**
 * How the judge uses each scenario of the sandbox partner: how it applies the fault, and what the platform must do.
 *
 * A table: one entry per scenario, read by id.
 */
import type { ClauseId } from '@duebridge/contract';

/** A fault of calls about one payment; it uses its own payments and runs concurrently with other checks. */
export interface PaymentRule {
  readonly by: 'payments';
  /** Variants of the fault, one payment each; 1 unless given. */
  readonly variants?: number;
  /** The calls that get the faulty answer: the PUT unless given. */
  readonly on?: 'PUT' | 'GET' | 'both';
  /** Faulty answers for each payment and method; 1 unless given. */
  readonly times?: number;
  /** How many of them must be delivered before the platform is judged: by default all, or one if `times` is infinite. */
  readonly enough?: number;
  /** Each faulty answer is the next variant. */
  readonly inTurn?: true;
  /**
   * `processing`, unless given: the payment ends only after the judge has seen how the platform handles the fault. `ended`: it ends as
   * usual, so that responses can contradict its end.
   */
  readonly payment?: 'processing' | 'ended';
  /**
   * What must follow. `goes_on`: further calls. `may_stop`: the platform may leave the payment to an operator. `frozen`: the
   * responses are contradictory, so they must not end the payment. `stops`: no call after the end.
   */
  readonly after: 'goes_on' | 'may_stop' | 'frozen' | 'stops';
  /** The platform must learn the end and show it to the customer; without this, the next call shows that the platform continues. */
  readonly ends?: true;
  /** Seconds of the Retry-After that the faulty answer carries. */
  readonly retry_after_seconds?: number;
  readonly clauses: readonly [ClauseId, ...ClauseId[]];
  /** Only a decision requires it, not the interface. */
  readonly strict?: true;
  /** The platform may pause the partner afterwards. */
  readonly last?: true;
}

/** A fault of the token endpoint. It affects every call, so no other check runs at the same time. */
export interface TokenRule {
  readonly by: 'tokens';
  readonly variants: number;
  /** True when a call with the returned token is correct; then each variant has its own payment. */
  readonly usable?: true;
  /** A timer must not fetch tokens again, so the platform is observed for a while. */
  readonly watched?: true;
  /** The platform gets no usable token until the check ends. */
  readonly until_healed?: true;
  readonly clauses: readonly [ClauseId, ...ClauseId[]];
  readonly last?: true;
}

/** A rule with its own function. */
export interface OwnRule {
  readonly by: 'own';
  readonly clauses: readonly [ClauseId, ...ClauseId[]];
}

/** The rule for one scenario. */
export type ScenarioRule = PaymentRule | TokenRule | OwnRule;

const unknown = {
  by: 'payments',
  after: 'goes_on',
  clauses: ['RU5', 'ST3'],
} as const satisfies PaymentRule;
const garbled = { ...unknown, on: 'both', clauses: ['ST3', 'RU5', 'RU4'] } as const;
const redirected = {
  ...unknown,
  on: 'both',
  after: 'may_stop',
  clauses: ['S3', 'ST3', 'RU5'],
} as const satisfies PaymentRule;
const contradicted = {
  by: 'payments',
  on: 'GET',
  times: Infinity,
  payment: 'ended',
  after: 'frozen',
  clauses: ['PF6', 'PF2'],
} as const satisfies PaymentRule;
const expiry = { by: 'tokens', usable: true, clauses: ['OA3', 'OA4'] } as const;
const refused = { by: 'tokens', clauses: ['OA3', 'ST3'] } as const;

/** Keyed by the scenario's full name. */
export const SCENARIO_RULES: Readonly<Record<string, ScenarioRule>> = {
  'F01-timeout-before-commit': unknown,
  'F02-timeout-after-commit': unknown,
  'F03-connection-refused': { by: 'own', clauses: ['RU5', 'ST3'] },
  'F04-reset-before-answer': { ...unknown, variants: 2 },
  'F05-reset-in-body': garbled,
  'F06-keep-alive-closed': { ...unknown, on: 'GET', clauses: ['RU4', 'ST3'] },
  'F07-server-error-before-commit': { ...unknown, variants: 4 },
  'F08-server-error-after-commit': { ...unknown, variants: 4, on: 'both' },
  'F09-retry-after-seconds': {
    ...unknown,
    variants: 3,
    on: 'both',
    retry_after_seconds: 1,
    clauses: ['LI1', 'RU5', 'RU4'],
  },
  // The seventh variant asks for 10^12 seconds: a platform may pause the partner for a long time, and no later check could run.
  'F10-odd-retry-after': { ...unknown, variants: 6 },
  'F11-rejected': { ...unknown, variants: 2, times: Infinity, after: 'may_stop', strict: true },
  'F12-unauthorized': {
    ...unknown,
    times: Infinity,
    after: 'may_stop',
    clauses: ['ST3', 'OA4'],
    last: true,
  },
  'F13-forbidden': { ...unknown, after: 'may_stop', clauses: ['ST3', 'SC1'], last: true },
  'F14-put-not-found': { ...unknown, ends: true },
  'F15-accepted-then-not-found': { ...unknown, on: 'GET' },
  'F16-timed-out-then-not-found': unknown,
  'F17-conflict': { ...unknown, variants: 3, on: 'both', ends: true },
  'F18-not-implemented': { ...unknown, variants: 3 },
  'F19-redirect-to-other-host': { ...redirected, variants: 4 },
  'F20-see-other': redirected,
  // The other variants redirect to addresses that are visible only from the platform's own network.
  'F21-redirect-inside': redirected,
  'F22-html': { ...garbled, variants: 2 },
  'F23-wrong-content-type': { ...garbled, variants: 2, after: 'may_stop' },
  // Success, and yet no record: whoever asks again may get it forever.
  'F24-malformed-json': { ...garbled, variants: 6, after: 'may_stop' },
  'F25-truncated-body': garbled,
  'F26-dangerous-keys': { ...garbled, variants: 2, after: 'may_stop', strict: true },
  'F27-wrong-payment': { ...contradicted, clauses: ['PF2', 'PF6'] },
  'F28-wrong-amount': { ...contradicted, variants: 3 },
  'F29-amount-as-text': { ...garbled, variants: 3, after: 'may_stop', clauses: ['S5', 'ST3'] },
  'F30-wrong-account-or-batch': {
    ...contradicted,
    variants: 2,
    clauses: ['PF3', 'PF9'],
    strict: true,
  },
  'F31-payment-id-changes': { ...contradicted, clauses: ['PF1'], strict: true },
  'F32-unknown-status': {
    ...garbled,
    variants: 5,
    times: 2,
    after: 'may_stop',
    clauses: ['PF4', 'RU4'],
  },
  'F33-missing-fields': { ...garbled, variants: 3, after: 'may_stop' },
  'F34-extra-fields': { ...garbled, times: Infinity, ends: true, clauses: ['PF9', 'RU4'] },
  'F35-fields-against-status': {
    ...garbled,
    on: 'GET',
    times: 2,
    // The second comes with the end.
    enough: 1,
    ends: true,
    clauses: ['PF8', 'RU4'],
  },
  'F36-status-goes-back': {
    by: 'payments',
    on: 'both',
    times: Infinity,
    inTurn: true,
    payment: 'ended',
    after: 'stops',
    clauses: ['RU2', 'RU4'],
  },
  'F37-stale-read': {
    ...garbled,
    on: 'GET',
    times: 2,
    enough: 1,
    payment: 'ended',
    ends: true,
    clauses: ['RU4', 'B5'],
  },
  'F38-two-nodes': {
    ...garbled,
    on: 'GET',
    times: 3,
    enough: 1,
    inTurn: true,
    payment: 'ended',
    ends: true,
    clauses: ['RU4', 'ST3'],
  },
  'F39-forever-processing': {
    ...garbled,
    on: 'GET',
    times: 3,
    ends: true,
    clauses: ['RU4', 'RU1'],
  },
  'F40-huge-body': unknown,
  'F41-zip-bomb': unknown,
  'F42-slow-drip': unknown,
  'F43-huge-headers': { ...unknown, variants: 3 },
  'F44-broken-framing': { ...unknown, variants: 3 },
  'F45-odd-statuses': { ...unknown, variants: 5 },
  'F46-other-protocol': { ...unknown, variants: 2 },
  'F47-bad-certificate': { by: 'own', clauses: ['S3'] },
  'F50-crossed-answers': { ...contradicted, clauses: ['PF2', 'PF6'] },
  'F51-no-expiry': { ...expiry, variants: 2 },
  'F52-expiry-as-text': { ...expiry, variants: 1 },
  'F53-expiry-not-positive': { ...expiry, variants: 2 },
  'F54-expiry-too-long': { ...expiry, variants: 2, watched: true },
  'F55-expiry-unreadable': { ...expiry, variants: 3 },
  'F56-expiry-not-a-number': { ...expiry, variants: 2 },
  'F57-early-revocation': { ...expiry, variants: 1 },
  'F58-expiry-beyond-timers': { ...expiry, variants: 1, watched: true },
  'F59-token-type': { ...refused, variants: 3 },
  'F60-scope-shrunk': {
    ...refused,
    variants: 1,
    until_healed: true,
    clauses: ['SC1', 'ST3'],
    last: true,
  },
  'F61-unusable-token': { ...refused, variants: 4 },
  'F62-client-refused': { ...refused, variants: 2, until_healed: true, last: true },
  'F63-token-endpoint-down': { ...refused, variants: 3 },
  'F64-token-html': { ...refused, variants: 2 },
  'F65-herd-on-expiry': { by: 'own', clauses: ['OA4', 'OA3'] },
  'F68-token-redirect': { ...refused, variants: 2, clauses: ['S3', 'ST3'] },
};
