/**
 * What a check of a platform's calls works with: a scripted partner that the platform under test is
 * registered with, a way to make the platform pay, and the calls that came of it.
 *
 * The judge cannot look into a platform: it plays the partner, answers wrongly in one way at a time,
 * and judges what the platform does next.
 */
import { randomUUID } from 'node:crypto';
import { platformRoutes, type Json } from '@duebridge/contract';
import { Findings, Skipped } from './findings.ts';
import { asObject, isSuccess, nothing, tell, type Reply } from './http.ts';
import {
  startScriptedPartner,
  type Behaviour,
  type ScriptedExchange,
  type ScriptedPartner,
} from '../sandbox/partner.ts';
import { secretsOf, type CallerTarget } from './target.ts';
import {
  credentials,
  fullBody,
  identifiers,
  TokenContext,
  tokenOf,
  type TokenRun,
} from './token-context.ts';

/** A payment that the platform was made to make. */
export interface DrivenPayment {
  readonly platform_payment_id: string;
  /** What the platform tells its customer now; undefined when it cannot be asked. */
  readonly status: () => Promise<string | undefined>;
}

/** Makes the platform under test pay. */
export interface Driver {
  readonly pay: (amount_in_cents: number) => Promise<DrivenPayment>;
}

/** Makes a driver, given the address at which the scripted partner listens. */
export type MakeDriver = (partner_url: string) => Driver;

/** How often the judge looks for a call that it waits for. */
const LOOK_MS = 20;

/** Wait before a platform that cannot reach the partner is asked again. */
const RETRY_MS = 500;

/** What all caller checks of one run share. */
export class CallerRun {
  readonly partner: ScriptedPartner;
  readonly driver: Driver;
  readonly caller: CallerTarget;
  readonly tokens: TokenRun;
  /** The behaviour in force: the right one unless a check has set another. */
  behaviour: Behaviour = {};

  private constructor(
    tokens: TokenRun,
    caller: CallerTarget,
    partner: ScriptedPartner,
    driver: MakeDriver | undefined,
    delegate: { run: CallerRun | undefined },
  ) {
    this.tokens = tokens;
    this.caller = caller;
    this.partner = partner;
    delegate.run = this;
    this.driver =
      driver?.(partner.url) ?? (tokens.target.flow ? flowDriver(this) : waitingDriver(this));
  }

  /** Starts the scripted partner. Rejects when its port cannot be had. */
  static async open(
    tokens: TokenRun,
    caller: CallerTarget,
    driver: MakeDriver | undefined,
  ): Promise<CallerRun> {
    const { authentication } = caller;
    for (const { value, name } of secretsOf(authentication)) {
      tokens.wire.hide({ value, name: `PARTNER_${name}` });
    }
    const delegate: { run: CallerRun | undefined } = { run: undefined };
    const current = (): Behaviour => delegate.run?.behaviour ?? {};
    const partner = await startScriptedPartner({
      port: caller.port,
      auth:
        authentication.method === 'key'
          ? authentication
          : {
              method: 'oauth',
              client_id: authentication.client_id,
              client_secret: authentication.client_secret,
            },
      accounts: [
        {
          biller_id: caller.biller_id,
          account_id: caller.account_id,
          status: 'active',
          balance: { amount_due_in_cents: 1_000_000 },
        },
      ],
      behaviour: {
        receive: (call, inside) => current().receive?.(call, inside),
        authorize: (call, refusal, inside) => {
          const behaviour = current();
          return behaviour.authorize === undefined
            ? refusal
            : behaviour.authorize(call, refusal, inside);
        },
        answer: (call, answer, inside) => current().answer?.(call, answer, inside),
      },
    });
    return new CallerRun(tokens, caller, partner, driver, delegate);
  }

  close(): Promise<void> {
    return this.partner.stop();
  }
}

/** What one caller check works with. */
export class CallerContext extends Findings {
  readonly run: CallerRun;
  readonly check: string;
  readonly #from: number;
  readonly #cited = new Map<number, Reply>();

  constructor(run: CallerRun, check: string) {
    super(run.tokens.profile);
    this.run = run;
    this.check = check;
    this.run.behaviour = {};
    this.#from = run.partner.exchanges().at(-1)?.number ?? 0;
  }

  /** From now on the partner behaves so. */
  script(behaviour: Behaviour): void {
    this.run.behaviour = behaviour;
  }

  /** Makes the platform pay; skips when it cannot be made to. */
  pay(amount_in_cents: number): Promise<DrivenPayment> {
    return this.run.driver.pay(amount_in_cents);
  }

  /** The calls since this check began: all, or those of one payment. */
  calls(payment?: DrivenPayment): readonly ScriptedExchange[] {
    const all = this.run.partner.exchanges().filter(({ number }) => number > this.#from);
    return payment === undefined
      ? all
      : all.filter(({ path }) => path.split('?')[0]?.endsWith(`/${payment.platform_payment_id}`));
  }

  /** The PUTs of one payment, or of all. */
  puts(payment?: DrivenPayment): readonly ScriptedExchange[] {
    return this.calls(payment).filter(({ method }) => method === 'PUT');
  }

  /** Waits until something is so, at most as long as the target's patience. Gives whether it came. */
  async until(holds: () => boolean | Promise<boolean>): Promise<boolean> {
    const deadline = this.run.tokens.now() + this.run.caller.patience_seconds * 1_000;
    for (;;) {
      if (await holds()) return true;
      if (this.run.tokens.now() >= deadline) return false;
      await this.run.tokens.sleep(LOOK_MS);
    }
  }

  /** Lets time pass in which nothing more should come. */
  quiet(): Promise<void> {
    return this.run.tokens.sleep(this.run.tokens.pace.quiet_ms);
  }

  /** A call as an exchange that a finding can point to. */
  cite(call: ScriptedExchange): Reply {
    const known = this.#cited.get(call.number);
    if (known !== undefined) return known;
    const reply = this.run.tokens.wire.keep(
      this.check,
      {
        method: call.method,
        url: this.run.partner.url + call.path,
        headers: call.headers,
        body: call.body,
      },
      call.answer === undefined
        ? nothing('the scripted partner held, cut or garbled the answer on purpose')
        : { status: call.answer.status, headers: {}, text: call.answer.body },
      call.at_ms,
      0,
    );
    this.#cited.set(call.number, reply);
    return reply;
  }
}

/** Pays by the flow of decision 31: token, session, payment. */
function flowDriver(run: CallerRun): Driver {
  // A platform may show a customer the payment that stands on the account already, so each payment
  // has a customer of its own; the run in the name keeps runs apart.
  const family = randomUUID().slice(0, 8);
  let customers = 0;
  return {
    async pay(amount_in_cents) {
      const { target } = run.tokens;
      const context = new TokenContext(run.tokens, 'driver');
      customers += 1;
      const token = tokenOf(
        await context.create({
          ...fullBody(target),
          last_name: `Example ${family} ${customers}`,
          email: `ada.${family}.${customers}@example.com`,
          phone_number: `+1512555${String(1_000 + customers).padStart(4, '0')}`,
          external_identifiers: identifiers(target, run.caller.account_id),
        }),
      );
      if (token === undefined) throw new Skipped('the platform gave no token to pay with');
      run.tokens.wire.hide({ value: token, name: 'TOKEN' });
      const opened = await context.send({
        method: 'POST',
        url: target.base_url + platformRoutes.create_flow_session.path,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: '{}',
      });
      const session = asObject(opened.json)?.['session'];
      if (typeof session !== 'string') {
        throw new Skipped(`the platform opened no flow session: ${tell(opened)}`);
      }
      run.tokens.wire.hide({ value: session, name: 'SESSION' });
      const headers = { authorization: `Bearer ${session}`, 'content-type': 'application/json' };
      const read = (): Promise<Reply> =>
        context.send({
          method: 'GET',
          url: target.base_url + platformRoutes.get_flow_session.path,
          headers: { authorization: `Bearer ${session}` },
        });
      // A platform that found nobody at the partner's address a moment ago may wait before it looks again.
      const deadline = run.tokens.now() + run.caller.patience_seconds * 1_000;
      let shown = await read();
      while (shown.status === 503 && run.tokens.now() < deadline) {
        await run.tokens.sleep(RETRY_MS);
        shown = await read();
      }
      const methods = asObject(shown.json)?.['funding_methods'];
      const funding_method = asObject(Array.isArray(methods) ? (methods[0] as Json) : undefined)?.[
        'funding_method'
      ];
      const paid = await context.send({
        method: 'POST',
        url: target.base_url + platformRoutes.create_flow_payment.path,
        headers,
        body: JSON.stringify({ amount_in_cents, funding_method }),
      });
      const id = asObject(paid.json)?.['platform_payment_id'];
      if (!isSuccess(paid) || typeof id !== 'string') {
        throw new Skipped(`the platform made no payment: ${tell(paid)}`);
      }
      return {
        platform_payment_id: id,
        async status() {
          const read = await context.send({
            method: 'GET',
            url: `${target.base_url}${platformRoutes.create_flow_payment.path}/${id}`,
            headers,
          });
          const status = asObject(read.json)?.['status'];
          return typeof status === 'string' ? status : undefined;
        },
      };
    },
  };
}

/** Waits for somebody to make a payment at the platform by hand, and takes the next one that comes. */
function waitingDriver(run: CallerRun): Driver {
  const taken = new Set<string>();
  return {
    async pay() {
      const deadline = run.tokens.now() + run.caller.patience_seconds * 1_000;
      while (run.tokens.now() < deadline) {
        const put = run.partner.exchanges().find((call) => {
          const id = call.path.split('/').at(-1) ?? '';
          return call.method === 'PUT' && !taken.has(id);
        });
        const id = put?.path.split('/').at(-1);
        if (id !== undefined) {
          taken.add(id);
          return { platform_payment_id: decodeURIComponent(id), status: async () => undefined };
        }
        await run.tokens.sleep(LOOK_MS);
      }
      throw new Skipped(
        `the platform put no payment within ${run.caller.patience_seconds} s: register ${run.partner.url} with it, and pay`,
      );
    },
  };
}

/** The credentials of the token endpoint, for checks that look where they must not stand. */
export function partnerSecrets(run: CallerRun): readonly string[] {
  return [
    ...secretsOf(run.caller.authentication).map(({ value }) => value),
    credentials(run.tokens.target, {})['x-api-key'] ?? '',
  ].filter((secret) => secret !== '');
}
