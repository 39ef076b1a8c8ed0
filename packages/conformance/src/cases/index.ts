/** Every check, in the order in which reports list them. A file beside this one that is in no list fails the build. */
import type { CallerCase, PartnerCase, TokenCase } from '../case.ts';
import { c01 } from './c01.ts';
import { c02 } from './c02.ts';
import { c03 } from './c03.ts';
import { c04 } from './c04.ts';
import { c05 } from './c05.ts';
import { c06 } from './c06.ts';
import { c07 } from './c07.ts';
import { c08 } from './c08.ts';
import { p01 } from './p01.ts';
import { p02 } from './p02.ts';
import { p03 } from './p03.ts';
import { p04 } from './p04.ts';
import { p05 } from './p05.ts';
import { p06 } from './p06.ts';
import { p07 } from './p07.ts';
import { p08 } from './p08.ts';
import { p09 } from './p09.ts';
import { p10 } from './p10.ts';
import { p11 } from './p11.ts';
import { p12 } from './p12.ts';
import { p13 } from './p13.ts';
import { p14 } from './p14.ts';
import { p15 } from './p15.ts';
import { p20 } from './p20.ts';
import { p21 } from './p21.ts';
import { p22 } from './p22.ts';
import { p23 } from './p23.ts';
import { p24 } from './p24.ts';
import { p25 } from './p25.ts';
import { p26 } from './p26.ts';
import { p27 } from './p27.ts';
import { p28 } from './p28.ts';
import { p29 } from './p29.ts';
import { p30 } from './p30.ts';
import { p31 } from './p31.ts';
import { p32 } from './p32.ts';
import { p33 } from './p33.ts';
import { p34 } from './p34.ts';
import { p35 } from './p35.ts';
import { p36 } from './p36.ts';
import { p37 } from './p37.ts';
import { p38 } from './p38.ts';
import { p39 } from './p39.ts';
import { p40 } from './p40.ts';
import { p41 } from './p41.ts';
import { p50 } from './p50.ts';
import { p51 } from './p51.ts';
import { p52 } from './p52.ts';
import { p53 } from './p53.ts';
import { p54 } from './p54.ts';
import { p55 } from './p55.ts';
import { p56 } from './p56.ts';
import { p57 } from './p57.ts';
import { p58 } from './p58.ts';
import { p59 } from './p59.ts';
import { t01 } from './t01.ts';
import { t02 } from './t02.ts';
import { t03 } from './t03.ts';
import { t04 } from './t04.ts';
import { t05 } from './t05.ts';
import { t06 } from './t06.ts';
import { t07 } from './t07.ts';
import { t08 } from './t08.ts';
import { t09 } from './t09.ts';
import { t10 } from './t10.ts';
import { t11 } from './t11.ts';
import { t12 } from './t12.ts';
import { t13 } from './t13.ts';
import { t14 } from './t14.ts';
import { t15 } from './t15.ts';
import { t16 } from './t16.ts';

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
];

/** Checks of a platform's calls to a partner. */
export const CALLER_CASES: readonly CallerCase[] = [c01, c02, c03, c04, c05, c06, c07, c08];
