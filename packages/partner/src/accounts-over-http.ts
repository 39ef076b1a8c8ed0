/**
 * Accounts behind a biller's own HTTP service (decision 70): an AccountSystem that calls three small operations, so that a biller in any
 * language keeps its accounts where they are and runs the kit beside them.
 *
 * Requests are signed and not redirected; answers are read to a limit, strictly, and checked like those of any AccountSystem. Only a
 * 200 with an outcome says what became of a payment: anything else leaves it unknown, and the service is asked with `find_posting`
 * before the same id is posted again.
 */
import { createHmac } from 'node:crypto';
import {
  accountServiceRoutes,
  fillPath,
  parseJson,
  SIGNATURE_HEADER,
  type AccountRecord,
} from '@duebridge/contract';
import { ConfigurationError, systemClock, type Clock } from '@duebridge/runtime';
import {
  WrongAnswer,
  type AccountsInOwnSystem,
  type CallOptions,
  type PostOutcome,
} from './account-system.ts';

/** Maximum bytes read of an answer. */
const MAX_ANSWER_BYTES = 64 * 1024;
/** Deadline of an account read in milliseconds; the same as the kit's own. */
const READ_MS = 5_000;

/** How to reach the service. */
export interface AccountServiceOptions {
  /** Base address, such as `https://billing.example.com/duebridge`; https, except on this machine. */
  readonly url: string;
  /** The shared secret; at least 16 characters. */
  readonly secret: string;
  readonly calls?: CallOptions;
  readonly clock?: Clock;
}

/** Returns the AccountSystem. Throws ConfigurationError for an unusable address or secret. */
export function accountsOverHttp(options: AccountServiceOptions): AccountsInOwnSystem {
  const { secret, clock = systemClock } = options;
  const { find_account, post_payment, find_posting } = accountServiceRoutes;
  const base = readBase(options.url);
  if (secret.length < 16) {
    throw new ConfigurationError(
      'the secret of the account service must be at least 16 characters',
    );
  }

  /** One call; undefined for 404. Throws when the answer is not usable. */
  const call = async (
    route: (typeof accountServiceRoutes)[keyof typeof accountServiceRoutes],
    fields: Readonly<Record<string, string>>,
    signal: AbortSignal,
    content?: object,
  ): Promise<unknown> => {
    const path = `${base.pathname.replace(/\/$/, '')}${fillPath(route.path, fields)}`;
    const body = content === undefined ? '' : JSON.stringify(content);
    const seconds = Math.floor(clock.now() / 1000);
    const signed = `${seconds}.${route.method}.${path}.${body}`;
    const signature = createHmac('sha256', secret).update(signed).digest('hex');
    const response = await fetch(new URL(path, base), {
      method: route.method,
      redirect: 'manual',
      signal,
      headers: {
        accept: 'application/json',
        [SIGNATURE_HEADER]: `t=${seconds},v1=${signature}`,
        ...(content === undefined ? undefined : { 'content-type': 'application/json' }),
      },
      ...(content === undefined ? undefined : { body }),
    });
    if (response.status !== 200) {
      // Its body says nothing: the page of a framework is of any length, and in any encoding.
      await response.body?.cancel();
      if (response.status === 404 && route.id !== 'post_payment') return undefined;
      throw new WrongAnswer(`the account service answered ${route.id} with ${response.status}`);
    }
    // Only the reason of a failure, or a name, can contain one; a payment must not stay open because of it.
    return parseJson(await readText(response), { unstorable: 'replace' });
  };

  return {
    posts: 'in_own_system',
    ...(options.calls === undefined ? undefined : { calls: options.calls }),
    async findAccount(biller_id, account_id) {
      const signal = AbortSignal.timeout(READ_MS);
      const answer = await call(find_account, { biller_id, account_id }, signal);
      // Checked by account-reads.ts like every other record.
      return answer as AccountRecord | undefined;
    },
    // The kit posts one at a time.
    async post([payment], signal) {
      const answer = await call(post_payment, {}, signal, payment);
      return [answer as PostOutcome];
    },
    async lookup(platform_payment_id, signal) {
      const answer = await call(find_posting, { platform_payment_id }, signal);
      return answer as PostOutcome | undefined;
    },
  };
}

function readBase(url: string): URL {
  const base = URL.canParse(url) ? new URL(url) : undefined;
  const isHere = base && ['localhost', '127.0.0.1', '[::1]'].includes(base.hostname);
  const isSafe = base?.protocol === 'https:' || (isHere && base.protocol === 'http:');
  if (!base || !isSafe || base.username !== '' || base.search !== '' || base.hash !== '') {
    throw new ConfigurationError(
      'the address of the account service must be https://host/path, without credentials or query (http only on this machine)',
    );
  }
  return base;
}

async function readText(response: Response): Promise<string> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body ?? []) {
    bytes += part.byteLength;
    if (bytes > MAX_ANSWER_BYTES) {
      throw new WrongAnswer(
        `the answer of the account service is longer than ${MAX_ANSWER_BYTES} bytes`,
      );
    }
    parts.push(part);
  }
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.concat(parts));
}
