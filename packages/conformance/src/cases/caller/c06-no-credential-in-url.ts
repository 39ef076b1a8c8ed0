import type { CallerCase } from '../../check/check.ts';
import { partnerSecrets, type CallerContext } from '../../check/caller-context.ts';

export const c06: CallerCase = {
  id: 'C06',
  title: 'No credential travels in an address',
  clauses: ['S3', 'OA4', 'KY1'],
  severity: 'must',
  profile: 'contract',
  sends: 'nothing: the platform pays, and the addresses of all its calls are read',
  expects: 'no key, secret or access token in any path or query',
  likely_cause: 'The key is added as a query field as well, for a partner that once asked for it.',
  async run(t: CallerContext) {
    const payment = await t.pay(6_001);
    await t.arrived(payment);
    const secrets = partnerSecrets(t.run);
    const loose = t.run.partner
      .exchanges()
      .find(
        ({ path }) =>
          secrets.some(
            (secret) => path.includes(secret) || path.includes(encodeURIComponent(secret)),
          ) || /[?&](?:access_token|api_?key|client_secret|token)=/i.test(path),
      );
    t.must(loose === undefined, {
      expected: 'addresses without credentials',
      got: loose === undefined ? '' : `${loose.method} ${loose.path.split('?')[0]} with one in it`,
      ...(loose === undefined ? {} : { at: t.cite(loose) }),
    });
  },
};
