/** Every check, in report order. The build fails when a check file in this folder is missing from the lists. */
import type { CallerCase, CaseInfo, PartnerCase, TokenCase } from '../check/check.ts';
import { SCENARIO_CASES } from './scenario/index.ts';
import { c01 } from './caller/c01-batch-id.ts';
import { c02 } from './caller/c02-same-put-after-lost-answer.ts';
import { c03 } from './caller/c03-polling-stops.ts';
import { c04 } from './caller/c04-retry-after.ts';
import { c05 } from './caller/c05-token-expiry-herd.ts';
import { c06 } from './caller/c06-no-credential-in-url.ts';
import { c07 } from './caller/c07-unclear-answer-never-fails.ts';
import { c08 } from './caller/c08-other-amount-echoed.ts';
import { c09 } from './caller/c09-first-request.ts';
import { c10 } from './caller/c10-unclear-poll.ts';
import { c11 } from './caller/c11-unknown-status-word.ts';
import { c12 } from './caller/c12-redirects.ts';
import { c13 } from './caller/c13-bounded-and-patient.ts';
import { c14 } from './caller/c14-restart.ts';
import { p01 } from './access/p01-no-credential.ts';
import { p02 } from './access/p02-wrong-credential.ts';
import { p03 } from './access/p03-token-endpoint-form.ts';
import { p04 } from './access/p04-wrong-client-secret.ts';
import { p05 } from './access/p05-read-scope-cannot-pay.ts';
import { p06 } from './access/p06-write-scope-cannot-read.ts';
import { p07 } from './access/p07-expired-access-token.ts';
import { p08 } from './access/p08-key-header.ts';
import { p09 } from './access/p09-minimum-tls.ts';
import { p67 } from './access/p67-oauth-errors.ts';
import { p10 } from './accounts/p10-read-account.ts';
import { p11 } from './accounts/p11-unknown-account.ts';
import { p12 } from './accounts/p12-encoded-account-ids.ts';
import { p13 } from './accounts/p13-read-balance.ts';
import { p14 } from './accounts/p14-reading-changes-nothing.ts';
import { p15 } from './accounts/p15-unknown-payment.ts';
import { p20 } from './put/p20-new-payment.ts';
import { p21 } from './put/p21-starts-processing.ts';
import { p22 } from './put/p22-initiated-at-zone.ts';
import { p23 } from './put/p23-not-posted-while-processing.ts';
import { p24 } from './put/p24-smallest-and-largest-amount.ts';
import { p25 } from './put/p25-same-put-again.ts';
import { p26 } from './put/p26-same-put-twenty-times.ts';
import { p27 } from './put/p27-concurrent-equal-puts.ts';
import { p28 } from './put/p28-known-id-other-amount.ts';
import { p29 } from './put/p29-known-id-other-batch.ts';
import { p30 } from './put/p30-known-id-other-account.ts';
import { p31 } from './put/p31-same-put-after-the-end.ts';
import { p32 } from './put/p32-other-id-same-debt.ts';
import { p33 } from './put/p33-shared-batch.ts';
import { p34 } from './put/p34-cut-connection.ts';
import { p35 } from './put/p35-id-of-an-earlier-day.ts';
import { p36 } from './put/p36-amounts-not-whole-cents.ts';
import { p37 } from './put/p37-body-id-differs.ts';
import { p38 } from './put/p38-unknown-field.ts';
import { p39 } from './put/p39-not-json.ts';
import { p40 } from './put/p40-payment-to-unknown-account.ts';
import { p41 } from './put/p41-payment-refused-by-rule.ts';
import { p42 } from './put/p42-payment-without-batch.ts';
import { p50 } from './poll/p50-polled-to-the-end.ts';
import { p51 } from './poll/p51-posted-at.ts';
import { p52 } from './poll/p52-failure-reason.ts';
import { p53 } from './poll/p53-canceled.ts';
import { p54 } from './poll/p54-terminal-stays.ts';
import { p55 } from './poll/p55-answers-agree.ts';
import { p56 } from './poll/p56-read-your-writes.ts';
import { p57 } from './poll/p57-frequent-polls.ts';
import { p58 } from './poll/p58-status-shows-at-once.ts';
import { p59 } from './poll/p59-error-answers.ts';
import { p60 } from './run/p60-first-answer-is-the-last.ts';
import { p61 } from './run/p61-nothing-moves-after-the-end.ts';
import { p62 } from './run/p62-balance-moves-with-payments.ts';
import { p63 } from './run/p63-other-connections.ts';
import { p64 } from './run/p64-different-payments-at-once.ts';
import { p65 } from './run/p65-ids-that-look-alike.ts';
import { p66 } from './run/p66-restart.ts';
import { t01 } from './token/t01-every-field.ts';
import { t02 } from './token/t02-required-fields.ts';
import { t03 } from './token/t03-missing-field.ts';
import { t04 } from './token/t04-missing-credential.ts';
import { t05 } from './token/t05-unknown-client.ts';
import { t06 } from './token/t06-wrong-key.ts';
import { t07 } from './token/t07-unknown-account.ts';
import { t08 } from './token/t08-aggregator-biller-id.ts';
import { t09 } from './token/t09-identifiers-without-account.ts';
import { t10 } from './token/t10-wrong-values.ts';
import { t11 } from './token/t11-content-type-and-method.ts';
import { t12 } from './token/t12-internal-error.ts';
import { t13 } from './token/t13-many-tokens.ts';
import { t14 } from './token/t14-large-body-and-burst.ts';
import { t15 } from './token/t15-token-opens-the-flow.ts';
import { t16 } from './token/t16-other-origin.ts';
import { t17 } from './token/t17-a-token-for-each-customer.ts';
import { t18 } from './token/t18-not-a-token-request.ts';
import { t19 } from './token/t19-unusual-and-right.ts';
import { t20 } from './token/t20-every-internal-error.ts';
import { t21 } from './token/t21-error-answers.ts';

/** Checks of a partner's server. */
export const PARTNER_CASES: readonly PartnerCase[] = [
  p01,
  p02,
  p03,
  p04,
  p05,
  p06,
  p07,
  p08,
  p09,
  p10,
  p11,
  p12,
  p13,
  p14,
  p15,
  p20,
  p21,
  p22,
  p23,
  p24,
  p25,
  p26,
  p27,
  p28,
  p29,
  p30,
  p31,
  p32,
  p33,
  p34,
  p35,
  p36,
  p37,
  p38,
  p39,
  p40,
  p41,
  p42,
  p50,
  p51,
  p52,
  p53,
  p54,
  p55,
  p56,
  p57,
  p58,
  p59,
  p60,
  p61,
  p62,
  p63,
  p64,
  p65,
  p66,
  p67,
];

/** Checks of a platform's token endpoint. */
export const TOKEN_CASES: readonly TokenCase[] = [
  t01,
  t02,
  t03,
  t04,
  t05,
  t06,
  t07,
  t08,
  t09,
  t10,
  t11,
  t12,
  t13,
  t14,
  t15,
  t16,
  t17,
  t18,
  t19,
  t20,
  t21,
];

/**
 * Checks of a platform's calls to a partner, in execution order. The first request runs first because all others depend on it.
 * The herd runs last because a platform may adapt its poll schedule to fifty payments.
 */
export const CALLER_CASES: readonly CallerCase[] = [
  c09,
  c01,
  c02,
  c03,
  c10,
  c11,
  c12,
  c13,
  c04,
  c06,
  c07,
  c08,
  c05,
  c14,
];

export { SCENARIO_CASES } from './scenario/index.ts';

/** Every check of a platform. */
export const PLATFORM_CASES: readonly CaseInfo[] = [
  ...TOKEN_CASES,
  ...CALLER_CASES,
  ...SCENARIO_CASES,
];
