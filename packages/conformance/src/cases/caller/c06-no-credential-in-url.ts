import type { CallerCase } from '../../check/check.ts';
import { partnerSecrets, type CallerContext } from '../../check/caller-context.ts';

export const c06: CallerCase = {
  id: 'C06',
  title: 'No URL contains a credential',
  clauses: ['S3', 'OA4', 'KY1'],
  severity: 'must',
  profile: 'contract',
  sends: 'nothing: the platform makes a payment, and the URLs of all its calls are examined',
  expects: 'no key, secret or access token in any path or query',
  likely_cause: 'The key is also sent as a query parameter, for a partner that once required it.',
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
      expected: 'URLs without credentials',
      got: loose === undefined ? '' : `${loose.method} ${loose.path.split('?')[0]} contains one`,
      ...(loose === undefined ? {} : { at: t.cite(loose) }),
    });
  },
};
