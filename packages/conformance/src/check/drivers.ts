/**
 * Ways to make the platform under test pay: the flow of decision 31, or a command. Neither requires the platform to be
 * built for the judge.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { platformRoutes, type Json } from '@duebridge/contract';
import { Skipped } from './findings.ts';
import { asObject, isSuccess, tell, type Reply } from './http.ts';
import { TargetProblem, type CallerTarget } from './target.ts';
import { fullBody, identifiers, TokenContext, tokenOf, type TokenRun } from './token-context.ts';

/** A payment that the platform was asked to make. */
export interface Driven {
  /** Undefined when only the resulting PUT reveals it. */
  readonly platform_payment_id: string | undefined;
  /** The status that the platform shows its customer now; undefined when it cannot be asked. */
  readonly status: (platform_payment_id: string) => Promise<string | undefined>;
}

/** Makes the platform under test pay. */
export interface Driver {
  /** How many payments can be requested in parallel. */
  readonly at_once: number;
  /** Makes it pay to the account of the target, or to `account_id`. */
  readonly pay: (amount_in_cents: number, account_id?: string) => Promise<Driven>;
  /** Stops everything it has started. */
  readonly close?: () => void;
}

/** Makes a driver, given the address at which the scripted partner listens. */
export type MakeDriver = (partner_url: string) => Driver;

/** Delay before a retry at a platform that cannot reach the partner. */
const RETRY_MS = 500;

/** Longest output of a command that is read. */
const MAX_OUTPUT = 10_000;

/** The driver named by the target file. */
export function driverOf(tokens: TokenRun, caller: CallerTarget, partner_url: string): Driver {
  if (caller.pay_command !== undefined) return byCommand(caller, caller.pay_command, partner_url);
  if (tokens.target.flow) return byFlow(tokens, caller);
  throw new TargetProblem('caller names no way to pay: set caller.pay_command, or "flow": true.');
}

/** A command per payment. It may run as long as the payment does, and is killed at the end of the run. */
function byCommand(caller: CallerTarget, command: string, partner_url: string): Driver {
  const children = new Set<ChildProcess>();
  const run = (line: string, values: Readonly<Record<string, string>>): ChildProcess => {
    const filled = line.replaceAll(/\{(\w+)\}/g, (all, name: string) => values[name] ?? all);
    const child = spawn(filled, {
      shell: true,
      detached: true,
      stdio: ['ignore', 'pipe', 2],
      env: { ...process.env, DUEBRIDGE_PARTNER_URL: partner_url },
    });
    children.add(child);
    child.once('close', () => children.delete(child));
    // A command that the shell cannot start shows as a payment that never arrives.
    child.once('error', () => children.delete(child));
    return child;
  };
  return {
    at_once: 10,
    async pay(amount_in_cents, account_id = caller.account_id) {
      const { biller_id } = caller;
      run(command, {
        biller_id,
        account_id,
        amount_in_cents: String(amount_in_cents),
      }).stdout?.resume();
      return {
        platform_payment_id: undefined,
        async status(platform_payment_id) {
          if (caller.status_command === undefined) return undefined;
          const child = run(caller.status_command, { platform_payment_id });
          let text = '';
          for await (const piece of child.stdout ?? []) {
            if (text.length < MAX_OUTPUT) text += String(piece);
          }
          return text.trim() === '' ? undefined : text.trim();
        },
      };
    },
    close() {
      for (const { pid } of children) {
        try {
          // Kill the whole process group, because a shell runs between us and the command.
          if (pid !== undefined) process.kill(-pid, 'SIGTERM');
        } catch {
          // It has already exited.
        }
      }
    },
  };
}

/** A field of an answer, if it is text. */
function textIn({ json }: Reply, name: string): string | undefined {
  const value = asObject(json)?.[name];
  return typeof value === 'string' ? value : undefined;
}

/** Pays by the flow of decision 31: token, session, payment. */
function byFlow(tokens: TokenRun, caller: CallerTarget): Driver {
  // Each payment uses its own customer, because a platform may show a customer the payment that is already open on the account.
  // The run id in the name keeps runs apart.
  const family = randomUUID().slice(0, 8);
  let customers = 0;
  return {
    at_once: 50,
    async pay(amount_in_cents, account_id = caller.account_id) {
      const { target } = tokens;
      const context = new TokenContext(tokens, 'driver');
      customers += 1;
      const token = tokenOf(
        await context.create({
          ...fullBody(target),
          last_name: `Example ${family} ${customers}`,
          email: `ada.${family}.${customers}@example.com`,
          phone_number: `+1512555${String(1_000 + customers).padStart(4, '0')}`,
          external_identifiers: identifiers(target, account_id),
        }),
      );
      if (token === undefined) throw new Skipped('the platform issued no token to pay with');
      tokens.wire.hide({ value: token, name: 'TOKEN' });
      const opened = await context.send({
        method: 'POST',
        url: target.base_url + platformRoutes.create_flow_session.path,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: '{}',
      });
      const session = textIn(opened, 'session');
      if (session === undefined) throw new Skipped(`no flow session: ${tell(opened)}`);
      tokens.wire.hide({ value: session, name: 'SESSION' });
      const headers = { authorization: `Bearer ${session}`, 'content-type': 'application/json' };
      const read = (): Promise<Reply> =>
        context.send({
          method: 'GET',
          url: target.base_url + platformRoutes.get_flow_session.path,
          headers: { authorization: `Bearer ${session}` },
        });
      // A platform that found nobody at the partner's address a moment ago may wait before its next attempt.
      const deadline = tokens.now() + caller.patience_seconds * 1_000;
      let shown = await read();
      while (shown.status === 503 && tokens.now() < deadline) {
        await tokens.sleep(RETRY_MS);
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
      const id = textIn(paid, 'platform_payment_id');
      if (!isSuccess(paid) || id === undefined) throw new Skipped(`no payment: ${tell(paid)}`);
      return {
        platform_payment_id: id,
        async status() {
          const url = `${target.base_url}${platformRoutes.create_flow_payment.path}/${id}`;
          return textIn(await context.send({ method: 'GET', url, headers }), 'status');
        },
      };
    },
  };
}
