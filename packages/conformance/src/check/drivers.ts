/** How the platform under test is made to pay: by a command, or by a driver that a program hands in. */
import { spawn, type ChildProcess } from 'node:child_process';
import { TargetProblem, type CallerTarget } from './target.ts';

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

/** Longest output of a command that is read. */
const MAX_OUTPUT = 10_000;

/**
 * The command of the target file, run once for each payment. It may run as long as the payment does, and is killed at the end of the
 * run. Throws TargetProblem when the target names none.
 */
export function byCommand(caller: CallerTarget, partner_url: string): Driver {
  const { pay_command: command } = caller;
  if (command === undefined) {
    throw new TargetProblem('caller names no way to pay: set caller.pay_command.');
  }
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
