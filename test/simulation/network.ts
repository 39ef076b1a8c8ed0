/**
 * The network between the platform's workers and the partners: it delays, drops, duplicates and replaces messages, and a gateway
 * in it may answer in a partner's place. What arrives is what the real client would pass to the engine. Names are looked up by the real
 * client's means (runtime/name-lookup.ts), a cache for each partner, from servers that know every name and may be silent about one.
 */
import type { CallOptions, PartnerClient } from '../../packages/platform/src/partners/client.ts';
import type { Exchange } from '../../packages/platform/src/partners/http-call.ts';
import type { Intent } from '../../packages/platform/src/partners/payment-record.ts';
import { openNameLookup, type NameResolver } from '../../packages/runtime/src/name-lookup.ts';
import type { History, Answer } from './history.ts';
import type { Request, Response, SimulatedPartner } from './partners.ts';
import type { Process, World } from './time.ts';

/** What the network does, as chances per message and a latency. */
export type NetworkFaults = ReturnType<typeof healthyNetwork>;

/** A network without faults. */
export function healthyNetwork() {
  return {
    latencyMs: 20,
    /** The request never arrives, and the connection is reset. */
    lostRequest: 0,
    /** The partner acts, and its answer never arrives. */
    lostAnswer: 0,
    /** Nothing comes back until the deadline, whether or not the partner acted. */
    stalled: 0,
    /** The request is delivered once more, later: by a proxy (F49). */
    doubled: 0,
    /** A gateway answers instead: 502 or HTML, before the partner saw the request or after. */
    gateway: 0,
    /** Nothing passes at all. */
    cut: false,
    /** The platform's client does not heed that a call is aborted. */
    deaf: false,
  };
}

/** The client of one worker's process. */
export function simulatedClient(options: {
  readonly world: World;
  readonly process: Process;
  readonly faults: NetworkFaults;
  readonly history: History;
  readonly partner: (partner_id: string) => SimulatedPartner;
}): PartnerClient {
  const { world, process, faults, history, partner } = options;

  /** Whether a partner's name has an address. */
  const isResolved = (to: SimulatedPartner): Promise<boolean> => {
    const newResolver = (): NameResolver => resolverOf(to);
    const lookup = openNameLookup({ clock: process.clock, newResolver });
    return new Promise((resolve) => {
      lookup(`${to.name}.example.`, {}, (error) => resolve(error === null));
    });
  };

  const exchange = (
    to: SimulatedPartner,
    request: Request,
    deadlineMs: number,
    { signal }: CallOptions = {},
  ): Promise<Exchange> => {
    const call = history.events.length;
    history.add({
      kind: 'sent',
      call,
      by: process.name,
      method: request.method,
      id: request.id,
      partner: to.name,
      payload: JSON.stringify(request.body ?? null),
    });
    const arrived = new Promise<Exchange>((resolve) => {
      let over = false;
      const give = (answer: Exchange): void => {
        if (over) return;
        over = true;
        signal?.removeEventListener('abort', stopped);
        history.add({ kind: 'arrived', call, id: request.id, answer: wordFor(answer) });
        resolve(answer);
      };
      const stopped = (): void => give({ kind: 'no_reply', reason: 'stopped' });
      if (signal?.aborted === true) return stopped();
      if (!faults.deaf) signal?.addEventListener('abort', stopped);
      world.after(deadlineMs, () => give({ kind: 'no_reply', reason: 'timeout' }));
      void carry(to, request, call, give);
    });
    return process.arrive(arrived);
  };

  const carry = async (
    to: SimulatedPartner,
    request: Request,
    call: number,
    give: (answer: Exchange) => void,
  ): Promise<void> => {
    const chance = (of: number): boolean => of > 0 && world.random() < of;
    const travel = (): Promise<void> => world.sleep(faults.latencyMs * (0.5 + world.random()));
    if (!(await isResolved(to))) return give({ kind: 'no_reply', reason: 'connection' });
    await travel();
    if (faults.cut || chance(faults.lostRequest)) {
      return give({ kind: 'no_reply', reason: 'connection' });
    }
    if (chance(faults.gateway)) {
      const acted = world.random() < 0.5;
      if (acted) await act(to, request, call);
      return give(world.random() < 0.5 ? reply(502) : { ...reply(200), problem: 'content_type' });
    }
    if (chance(faults.doubled)) {
      world.after(world.random() * 120_000, () => void act(to, request, call));
    }
    const isStalled = chance(faults.stalled);
    const response = await act(to, request, call);
    if (isStalled || response.kind === 'silent') return;
    await travel();
    if (response.kind === 'certificate') return give({ kind: 'no_reply', reason: 'certificate' });
    if (faults.cut || chance(faults.lostAnswer)) {
      return give({ kind: 'no_reply', reason: 'connection' });
    }
    give({
      kind: 'reply',
      status: response.status,
      json: response.json,
      problem: response.json === undefined ? 'content_type' : undefined,
      retryAfter: response.retryAfter,
      waited: response.waited === true,
    });
  };

  const act = async (to: SimulatedPartner, request: Request, call: number): Promise<Response> => {
    const response = await to.handle(request);
    if (response.kind === 'http') {
      history.add({ kind: 'answered', call, id: request.id, answer: toldBy(response) });
    }
    return response;
  };

  const refuse = (): never => {
    throw new Error('the simulated world asks for payments only');
  };
  return {
    submit: (to, order: Intent, more) =>
      exchange(
        partner(to.partner_id),
        {
          method: 'PUT',
          ...keyOf(order),
          body: {
            amount_in_cents: order.amount_in_cents,
            platform_batch_id: order.platform_batch_id,
          },
          wait: 0,
        },
        to.budget.call_timeout_ms,
        more,
      ),
    poll: (to, key, more) =>
      exchange(
        partner(to.partner_id),
        { method: 'GET', ...keyOf(key), body: undefined, wait: more?.waitSeconds ?? 0 },
        to.budget.call_timeout_ms + (more?.waitSeconds ?? 0) * 1_000,
        more,
      ),
    getAccount: refuse,
    getBalance: refuse,
    getStatement: refuse,
    reset: () => undefined,
    close: () => Promise.resolve(),
  };
}

/** DNS as one question sees it: a name whose servers are silent is answered by nobody. */
function resolverOf(to: SimulatedPartner): NameResolver {
  const canceled = Promise.withResolvers<never>();
  canceled.promise.catch(() => undefined);
  const silence = new Promise<never>(() => undefined);
  const ask = async (address: string) => [
    await Promise.race([to.hasDeadName === true ? silence : address, canceled.promise]),
  ];
  return {
    resolve4: () => ask('192.0.2.7'),
    resolve6: () => ask('2001:db8::7'),
    cancel: () => canceled.reject(new Error('canceled')),
  };
}

function keyOf({ platform_payment_id: id, biller_id, account_id }: Intent) {
  return { id, biller_id, account_id };
}

function reply(status: number): Extract<Exchange, { kind: 'reply' }> {
  return {
    kind: 'reply',
    status,
    json: undefined,
    problem: 'content_type',
    retryAfter: undefined,
    waited: false,
  };
}

function toldBy(response: Extract<Response, { kind: 'http' }>): Answer {
  const record = response.json;
  // A 200 without a record is no answer about the payment.
  if (typeof record !== 'object' || record === null) return { http: 0 };
  if (response.status !== 200) return { http: response.status };
  const field = (name: string): unknown => Reflect.get(record, name);
  const text = (name: string): Record<string, string> => {
    const value = field(name);
    return typeof value === 'string' ? { [name]: value } : {};
  };
  const cents = field('amount_in_cents');
  return {
    http: 200,
    ...text('status'),
    ...text('payment_id'),
    ...text('initiated_at'),
    ...(typeof cents === 'number' ? { amount_in_cents: cents } : {}),
  };
}

function wordFor(answer: Exchange): string {
  return answer.kind === 'reply' ? String(answer.status) : answer.reason;
}
