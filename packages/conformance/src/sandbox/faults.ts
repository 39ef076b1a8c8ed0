/** Runs a scenario inside a scripted partner: counts its faulty answers, and heals. */
import http from 'node:http';
import type { Clock } from '../clock.ts';
import { findScenario, type FaultTools, type Scenario } from './scenarios.ts';
import type { Behaviour, Call, Insides } from './behaviour.ts';

/** There is no such scenario; the message is for a person. */
export class ScenarioProblem extends Error {
  override readonly name = 'ScenarioProblem';
}

/** The fault of one partner. */
export interface Faults {
  readonly behaviour: Behaviour;
  readonly scenario: Scenario | undefined;
  /** Faulty answers sent so far. */
  count(): number;
  healed(): boolean;
  /** Ends the fault permanently. */
  heal(): void;
  /** Starts again. */
  reset(): void;
}

/** Creates the fault. `origin` returns the partner's own address, `stray` that of the other host. */
export function openFaults(options: {
  readonly clock: Clock;
  readonly scenario: string | undefined;
  readonly faults: number | 'until_healed' | undefined;
  readonly origin: () => string;
  readonly stray: () => string;
  /** The partner's state; called only once the partner runs. */
  readonly partner: () => Insides;
}): Faults {
  const scenario = options.scenario === undefined ? undefined : findScenario(options.scenario);
  if (options.scenario !== undefined && scenario === undefined) {
    throw new ScenarioProblem(
      `there is no scenario ${options.scenario}; see duebridge sandbox partner --list`,
    );
  }
  const most = options.faults ?? scenario?.faults ?? 0;
  let given = 0;
  let over = scenario === undefined;
  const heal = (): void => {
    if (over) return;
    over = true;
    running?.healed?.(options.partner());
  };
  const tools: FaultTools = {
    clock: options.clock,
    next() {
      if (over) return undefined;
      given += 1;
      const turn = given - 1;
      if (given === most) heal();
      return turn;
    },
    healed: () => over,
    get stray() {
      return options.stray();
    },
    replay: (call) => replay(options.origin(), call),
  };
  let running = scenario?.begin(tools);
  return {
    behaviour: {
      receive: (call, partner) => running?.receive?.(call, partner),
      authorize: (call, refusal, partner) =>
        running?.authorize === undefined ? refusal : running.authorize(call, refusal, partner),
      born: (payment, call, partner) => running?.born?.(payment, call, partner),
      stored: (payment, call, partner) => running?.stored?.(payment, call, partner),
      ended: (payment, partner) => running?.ended?.(payment, partner),
      answer: (call, answer, partner) => running?.answer?.(call, answer, partner),
    },
    scenario,
    count: () => given,
    healed: () => over,
    heal,
    reset() {
      given = 0;
      over = scenario === undefined;
      running = scenario?.begin(tools);
    },
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
