/**
 * The bank of a test: the page to which a test amount sends the customer for an approval (decision 161).
 *
 * enters: the id of a payment that waits for its customer.  leaves: the answer, which the sandbox keeps, and word of it for the funds.
 * holds:  no money moves by it, and it shows nothing but an amount; the id, which is random, is all that opens it.
 */
import crypto from 'node:crypto';
import { rateLimiter, tooManyRequests, type Clock } from '@duebridge/runtime';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Funds } from '../funding/funds.ts';
import type { Sandbox } from '../funding/sandbox.ts';
import type { PaymentRow } from '../store/payments.ts';

/** Ids of payments are UUIDs: nothing else asks the database. */
const UUID_PATTERN = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** Reads of payments by all who open such a page: a few people who test. */
const READS = { perSecond: 10, burst: 50, maxKeys: 1 };
const FORM = 'application/x-www-form-urlencoded';
const dollars = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' });

const STYLE =
  'body{font:1rem/1.5 system-ui,sans-serif;max-width:24rem;margin:3rem auto;padding:0 1rem}p:first-of-type{background:#ffd24d;color:#332500;padding:.25rem 1rem;font-weight:600}button{font:inherit;padding:.625rem 1.25rem;margin-inline-end:.5rem;min-height:2.75rem}';
const CLOSE = 'close()';
const POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${crypto.hash('sha256', STYLE, 'base64')}'`,
  `script-src 'sha256-${crypto.hash('sha256', CLOSE, 'base64')}'`,
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');

/** Serves `/flow/test/{platform_payment_id}`: only where the sandbox is offered. */
export function serveTestApproval(
  app: FastifyInstance,
  dependencies: {
    readonly sandbox: Sandbox;
    readonly funding: Pick<Funds, 'apply'>;
    readonly clock: Clock;
    readonly find: (platform_payment_id: string) => Promise<PaymentRow | undefined>;
  },
): void {
  const { sandbox, funding, find, clock } = dependencies;
  const reads = rateLimiter({ ...READS, clock });
  const send = (reply: FastifyReply, body: string): FastifyReply =>
    reply
      .headers({
        'Cache-Control': 'no-store',
        'Content-Security-Policy': POLICY,
        'Referrer-Policy': 'no-referrer',
        'X-Content-Type-Options': 'nosniff',
      })
      .type('text/html; charset=utf-8')
      .send(
        `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Test bank</title><style>${STYLE}</style><p>Test mode: no money moves</p><h1>Test bank</h1>${body}</html>`,
      );
  /** The payment, while its customer is asked; undefined for any other. */
  const waiting = async (id: string): Promise<PaymentRow | undefined> => {
    if (!UUID_PATTERN.test(id)) return undefined;
    const permit = reads.take('');
    if (!permit.ok) throw tooManyRequests(permit.retryAfterSeconds);
    const payment = await find(id);
    if (payment === undefined || payment.stage !== 'created') return undefined;
    return (await sandbox.waits(payment)) ? payment : undefined;
  };
  const none = (reply: FastifyReply): FastifyReply =>
    send(reply.code(404), '<p>No payment waits for an answer here.</p>');

  app.get<{ Params: { id: string } }>('/flow/test/:id', async (request, reply) => {
    const payment = await waiting(request.params.id);
    if (payment === undefined) return none(reply);
    const amount = dollars.format(payment.amount_in_cents / 100);
    return send(
      reply,
      `<form method="post"><p>Approve ${amount}?</p><button name="answer" value="approve">Approve</button><button name="answer" value="decline">Decline</button></form>`,
    );
  });

  app.post<{ Params: { id: string } }>(
    '/flow/test/:id',
    { config: { bodyType: FORM } },
    async (request, reply) => {
      const payment = await waiting(request.params.id);
      if (payment === undefined) return none(reply);
      const { body } = request;
      const approves =
        typeof body === 'object' && body !== null && 'answer' in body && body.answer === 'approve';
      await sandbox.decide(payment, approves);
      // As a processor's webhook: the answer is asked for at once.
      const { platform_payment_id } = payment;
      const news = { event_id: `decided ${platform_payment_id}`, platform_payment_id } as const;
      await funding.apply(sandbox.name, { ...news, kind: 'news' });
      return send(
        reply,
        `<p>You can close this window. The payment page continues by itself.</p><script>${CLOSE}</script>`,
      );
    },
  );
}
