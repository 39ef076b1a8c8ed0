/**
 * Runs scenarios inside a scripted partner: counts the faulty answers, goes through the steps in order, and heals. A single
 * scenario is a script of one step.
 */
import http from 'node:http';
import type { Clock } from '../clock.ts';
import { findScenario, type FaultTools, type EntryPoint, type Scenario } from './scenarios.ts';
import type { Answer, Behaviour, Call, Insides } from './behaviour.ts';

/** One step of a script: this fault, on these calls, this many times; then the next step. */
export interface ScriptStep {
  /** The calls that it affects; all unless given. */
  readonly match?: {
    readonly operation?: string;
    readonly account_id?: string;
    readonly platform_payment_id?: string;
  };
  /** A scenario by name or number, or an answer to send instead of the partner's. */
  readonly fault: string | ScriptAnswer;
  /** Number of faulty answers; one unless given. */
  readonly times?: number | 'until_healed';
}

/** An answer written into a script. */
export interface ScriptAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** `after`: the partner does its work first and then sends this answer. */
  readonly when?: 'before' | 'after';
}

/** The script cannot be run; the message tells a person which step is wrong and why. */
export class ScriptProblem extends Error {
  override readonly name = 'ScriptProblem';
}

/** The faults of one partner. */
export interface Faults {
  readonly behaviours: readonly Behaviour[];
  /** The scenario, when there is exactly one. */
  readonly scenario: Scenario | undefined;
  readonly entry: EntryPoint;
  /** Faulty answers sent so far. */
  count(): number;
  healed(): boolean;
  /** Ends every fault permanently. */
  heal(): void;
  /** Restarts from the first step. */
  reset(): void;
}

/** Maximum length of a script. */
const MAX_STEPS = 200;

/** A step of the script file, ready to run. */
interface Step {
  readonly scenario: Scenario;
  readonly faults: number | 'until_healed';
  readonly matches: (call: Call) => boolean;
}

/** Parses a script file: a JSON list of steps. Throws ScriptProblem. */
export function readScript(value: unknown): ScriptStep[] {
  if (!Array.isArray(value)) throw new ScriptProblem('a script must be a JSON array of steps');
  if (value.length > MAX_STEPS)
    throw new ScriptProblem(`a script may have at most ${MAX_STEPS} steps`);
  const steps = value as ScriptStep[];
  for (const [index, step] of steps.entries()) {
    const at = `step ${index + 1}`;
    if (typeof step !== 'object' || step === null)
      throw new ScriptProblem(`${at} is not an object`);
    const { times, match, fault } = step;
    const countable = times === undefined || times === 'until_healed' || Number.isInteger(times);
    if (!countable || Number(times ?? 1) < 1) {
      throw new ScriptProblem(`${at}: times must be an integer of at least 1, or "until_healed"`);
    }
    if (match !== undefined && (typeof match !== 'object' || match === null)) {
      throw new ScriptProblem(`${at}: match must be an object`);
    }
    if (typeof fault === 'string') {
      if (findScenario(fault) === undefined) throw new ScriptProblem(`${at}: no scenario ${fault}`);
    } else if (typeof fault !== 'object' || fault === null || !Number.isInteger(fault.status)) {
      throw new ScriptProblem(`${at}: fault must be a scenario's name or a response with a status`);
    }
  }
  return steps;
}

/** Creates the faults. `origin` returns the partner's own address, `stray` that of the other host. */
export function openFaults(options: {
  readonly clock: Clock;
  readonly scenario: string | undefined;
  readonly script: readonly ScriptStep[] | undefined;
  readonly faults: number | 'until_healed' | undefined;
  readonly origin: () => string;
  readonly stray: () => string;
  /** The partner's state; called only once the partner runs. */
  readonly partner: () => Insides;
}): Faults {
  const steps = toSteps(options);
  let at = 0;
  let given = 0;
  let total = 0;
  let over = steps.length === 0;

  const toolsOf = (index: number): FaultTools => ({
    clock: options.clock,
    next() {
      if (over || index !== at) return undefined;
      const turn = given;
      const { faults } = steps[index] ?? { faults: 0 };
      given += 1;
      total += 1;
      if (faults !== 'until_healed' && given >= faults) {
        at += 1;
        given = 0;
        over = at === steps.length;
        running[index]?.healed?.(options.partner());
      }
      return turn;
    },
    healed: () => over || index < at,
    get stray() {
      return options.stray();
    },
    replay: (call) => replay(options.origin(), call),
  });

  const begin = () => steps.map((step, index) => step.scenario.begin(toolsOf(index)));
  let running = begin();

  /** The step that has affected a call: the next step begins with the next call. */
  const spoiltBy = new WeakMap<Call, number>();

  const behaviours = steps.map((step, index): Behaviour => {
    const hooks = () => running[index] ?? {};
    /** Runs a hook of this step, unless the step does not cover the call. */
    const hook = <T>(call: Call, run: () => T): T | undefined => {
      if (!step.matches(call) || (spoiltBy.get(call) ?? index) !== index) return undefined;
      const before = total;
      const result = run();
      if (total > before) spoiltBy.set(call, index);
      return result;
    };
    return {
      receive: (call, partner) => hook(call, () => hooks().receive?.(call, partner)),
      authorize: (call, refusal, partner) => {
        const judged = hook(call, () => {
          const behaviour = hooks();
          return {
            refusal: behaviour.authorize ? behaviour.authorize(call, refusal, partner) : refusal,
          };
        });
        return judged === undefined ? refusal : judged.refusal;
      },
      born: (payment, call, partner) => hook(call, () => hooks().born?.(payment, call, partner)),
      stored: (payment, call, partner) =>
        hook(call, () => hooks().stored?.(payment, call, partner)),
      ended: (payment, partner) => hooks().ended?.(payment, partner),
      answer: (call, answer, partner) => hook(call, () => hooks().answer?.(call, answer, partner)),
    };
  });

  return {
    behaviours,
    scenario: steps.length === 1 ? steps[0]?.scenario : undefined,
    entry: (steps.length === 1 ? steps[0]?.scenario.entry : undefined) ?? 'open',
    count: () => total,
    healed: () => over,
    heal() {
      if (over) return;
      over = true;
      for (const behaviour of running.slice(at)) behaviour.healed?.(options.partner());
    },
    reset() {
      at = 0;
      given = 0;
      total = 0;
      over = steps.length === 0;
      running = begin();
    },
  };
}

function toSteps(options: Parameters<typeof openFaults>[0]): Step[] {
  if (options.scenario !== undefined) {
    const scenario = findScenario(options.scenario);
    if (scenario === undefined) {
      throw new ScriptProblem(
        `there is no scenario ${options.scenario}; see duebridge sandbox partner --list`,
      );
    }
    return [{ scenario, faults: options.faults ?? scenario.faults, matches: () => true }];
  }
  return (options.script ?? []).map((step) => ({
    scenario: toScenario(step.fault),
    faults: step.times ?? 1,
    matches: matcher(step.match ?? {}),
  }));
}

function matcher(match: NonNullable<ScriptStep['match']>): Step['matches'] {
  return (call) =>
    (match.operation === undefined || match.operation === call.operation) &&
    (match.account_id === undefined || match.account_id === call.params['account_id']) &&
    (match.platform_payment_id === undefined ||
      match.platform_payment_id === call.params['platform_payment_id']);
}

function toScenario(fault: ScriptStep['fault']): Scenario {
  const known = typeof fault === 'string' ? findScenario(fault) : undefined;
  if (known !== undefined) return known;
  if (typeof fault === 'string') throw new ScriptProblem(`no scenario ${fault}`);
  const answer: Answer = {
    status: fault.status,
    ...(fault.headers === undefined ? {} : { headers: fault.headers }),
    ...(fault.body === undefined ? {} : { body: fault.body as Record<string, unknown> }),
  };
  return {
    name: 'answer',
    title: `answers ${fault.status}`,
    caller: '',
    faults: 1,
    ends: 'by_itself',
    begin: (tools) =>
      fault.when === 'after'
        ? { answer: () => (tools.next() === undefined ? undefined : answer) }
        : { receive: () => (tools.next() === undefined ? undefined : answer) },
  };
}

/** Marks a request that the sandbox sent to itself in the role of a proxy (F49). */
export const REPLAY_HEADER = 'x-sandbox-replay';

function replay(origin: string, call: Call): void {
  const { 'content-length': _length, connection: _connection, ...headers } = call.headers;
  const request = http.request(`${origin}${call.path}`, {
    method: call.method,
    headers: { ...headers, [REPLAY_HEADER]: '1', 'Content-Length': Buffer.byteLength(call.text) },
    agent: false,
  });
  // Nobody waits for the answer of a late duplicate, and the partner may have stopped in the meantime.
  request.on('error', () => undefined);
  request.on('response', (response) => response.resume());
  request.end(call.text);
}
