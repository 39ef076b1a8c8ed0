/** Runs a scenario inside a scripted partner: counts its faulty answers, and heals. */
import type { Clock } from '../clock.ts';
import { findScenario, type Scenario } from './scenarios.ts';
import type { Behaviour, Insides } from './behaviour.ts';

/** There is no such scenario; the message is for a person. */
export class ScenarioProblem extends Error {
  override readonly name = 'ScenarioProblem';
}

/** The fault of one partner: its scenario while it runs, and how many faulty answers it has given. */
export class Faults {
  readonly scenario: Scenario | undefined;
  /** Faulty answers sent so far. */
  count = 0;
  healed: boolean;
  readonly #options: FaultOptions;
  readonly #running: ReturnType<Scenario['begin']> | undefined;

  constructor(options: FaultOptions) {
    const { scenario } = options;
    this.scenario = scenario === undefined ? undefined : findScenario(scenario);
    if (scenario !== undefined && this.scenario === undefined) {
      throw new ScenarioProblem(
        `there is no scenario ${scenario}; see duebridge sandbox partner --list`,
      );
    }
    this.#options = options;
    const { clock, stray } = options;
    this.healed = this.scenario === undefined;
    this.#running = this.scenario?.begin({
      clock,
      next: () => this.#next(),
      healed: () => this.healed,
      get stray() {
        return stray();
      },
    });
  }

  /** What the scenario does now. */
  get behaviour(): Behaviour {
    return this.#running ?? {};
  }

  /** Ends the fault permanently. */
  heal(): void {
    if (this.healed) return;
    this.healed = true;
    this.#running?.healed?.(this.#options.partner());
  }

  #next(): number | undefined {
    if (this.healed) return undefined;
    this.count += 1;
    if (this.count === (this.#options.faults ?? this.scenario?.faults)) this.heal();
    return this.count - 1;
  }
}

/** What a fault is made with. `stray` returns the origin of the other host. */
interface FaultOptions {
  readonly clock: Clock;
  readonly scenario: string | undefined;
  readonly faults: number | 'until_healed' | undefined;
  readonly stray: () => string;
  /** The partner's state; called only once the partner runs. */
  readonly partner: () => Insides;
}
