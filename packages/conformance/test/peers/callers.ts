/**
 * Wrong callers: platforms that call a partner, each with one fault (caller.ts), and the check that catches it; and, for each scenario of
 * the scripted partner, the fault of a platform that takes it wrongly.
 *
 * A table: one entry per wrong caller, in the order of the checks.
 */
import { wrongPeers, type Wrong } from './wrong.ts';

/** How it authenticates: by a static key unless given. */
interface CallerSetting {
  readonly auth?: 'oauth';
}

export type WrongCaller = Wrong<string> & CallerSetting;

const { fails, warns } = wrongPeers<string, CallerSetting>();

export const WRONG_CALLERS: readonly WrongCaller[] = [
  fails('C09', 'sends payments without a batch id', 'no_batch', { also: ['C03'] }),
  fails('C01', 'numbers its payments within each account', 'numbers_by_account'),
  fails('C03', 'never shows its customer that the payment has ended', 'forgets_the_end'),
  fails('C03', 'does not treat canceled as terminal', 'knows_two_words'),
  fails('C03', 'keeps polling after the end, at a slow pace', 'polls_slowly_on'),
  fails('C03', 'keeps polling after the end', 'polls_on'),
  fails('C09', 'also sends its key in the URL', 'key_in_address'),
  fails('C09', 'sends the amount in dollars', 'dollars', { also: 'many' }),
  fails('C09', 'sends the amount as a string', 'amount_as_text', { also: 'many' }),
  fails('C09', 'adds a fee to the amount', 'adds_a_fee', { also: 'many' }),
  fails('C09', 'adds Bearer before a static key', 'bearer_key', { also: 'many' }),
  fails('C09', 'sends its JSON as text/plain', 'text_body', { also: 'many' }),
  fails('C09', 'requests access tokens with a JSON body', 'json_form', {
    also: 'many',
    auth: 'oauth',
  }),
  fails('C09', 'requests access tokens without a scope', 'no_scope', { auth: 'oauth' }),
  fails('C09', 'builds its form without encoding', 'form_by_hand', { auth: 'oauth', also: 'many' }),
  fails('C09', 'sends amounts beyond 32 bits as a string', 'large_amount_as_text'),
  fails('C03', 'polls once more 1.3 seconds after the end', 'polls_once_more'),
  fails('C03', 'polls once more 1.6 seconds after the end', 'polls_once_more_later'),
  fails('C09', 'pays a cent too little', 'a_cent_short', { also: 'many' }),
  fails(
    'C09',
    'pays two cents too little above a hundred dollars',
    'two_cents_short_above_100_dollars',
    { also: 'many' },
  ),
  // What only an unusual answer or a second payment shows.
  fails('C01', 'lowercases account ids', 'folds_account', { also: 'many' }),
  fails(
    'C01',
    'derives the id of a payment from its account and amount',
    'one_id_for_equal_amounts',
    { also: 'many' },
  ),
  fails('C03', 'treats the 200 to a PUT as success', 'believes_the_put', { also: 'many' }),
  fails('C09', 'names another id in the body than in the path', 'other_id_in_the_body', {
    also: 'many',
  }),
  fails('C09', 'sends its key with payments only', 'no_key_on_polls', { also: 'many' }),
  warns('C09', 'sends the name of the customer', 'customer_in_the_body', { profile: 'strict' }),
];

/** Wrong callers, with the scenarios that they handle wrongly (checks F01 to F68, C13). */
export const WRONG_IN_SCENARIOS: readonly (readonly [string, 'key' | 'oauth', string])[] = [
  [
    'error_is_failure',
    'key',
    'F01 F02 F03 F04 F07 F08 F10 F11 F12 F13 F14 F16 F17 F19 F22 F24 F40 F44',
  ],
  ['gives_up', 'key', 'F01 F02 F04 F07'],
  ['gives_up_after_three', 'key', 'C13'],
  ['retries_at_once', 'key', 'C13'],
  ['new_id_on_retry', 'key', 'F01 F02 F07'],
  ['new_bytes_on_retry', 'key', 'F02 F08'],
  ['ignores_retry_after', 'key', 'F09'],
  ['only_seconds_of_retry_after', 'key', 'F09'],
  ['floods', 'key', 'F09 F22'],
  ['token_for_each_call', 'oauth', 'F65'],
  ['keeps_a_refused_token', 'oauth', 'F65'],
  ['not_found_is_failure', 'key', 'F14'],
  ['conflict_is_accepted', 'key', 'F17'],
  ['page_is_failure', 'key', 'F24'],
  ['poll_error_is_failure', 'key', 'F05 F06 F08 F15 F17 F24 F38'],
  ['poll_error_stops', 'key', 'F05 F06 F08 F15'],
  ['redirect_is_failure', 'key', 'F19'],
  ['mismatch_is_failure', 'key', 'F27'],
  ['unknown_word_is_success', 'key', 'F32'],
  ['waits_forever', 'key', 'F01 F02 F16 F40'],
  ['follows_redirects', 'key', 'F19'],
  ['ignores_retry_after_on_put', 'key', 'F09'],
  ['type_is_failure', 'key', 'F22 F24'],
  ['last_key_wins', 'key', 'F26'],
  ['believes_status_alone', 'key', 'F27'],
  ['ignores_echoes', 'key', 'F30'],
  ['amount_text_is_failure', 'key', 'F24'],
  ['words_without_case', 'key', 'F32'],
  ['missing_field_is_failure', 'key', 'F24'],
  ['unknown_field_is_no_record', 'key', 'F34'],
  ['first_status_in_the_text', 'key', 'F34'],
  ['times_only_in_z', 'key', 'F34'],
  ['posted_is_success', 'key', 'F35'],
  ['polls_on', 'key', 'F36'],
  ['polls_once', 'key', 'F37 F38 F39'],
  ['polls_three_times', 'key', 'F39'],
  ['polls_by_put', 'key', 'F39'],
  ['wants_an_expiry', 'oauth', 'F51'],
  ['timer_by_expiry', 'oauth', 'F54'],
  ['refusal_is_failure', 'oauth', 'F57'],
  ['forbidden_is_failure', 'oauth', 'F60'],
  ['token_error_is_failure', 'oauth', 'F59 F61 F62 F63 F64 F68'],
  ['injects_headers', 'oauth', 'F61'],
  ['own_token_for_each_call', 'oauth', 'F65'],
  ['follows_redirects', 'oauth', 'F68'],
  ['retries_by_post', 'key', 'F02'],
  ['retries_by_post_to_the_list', 'key', 'F02'],
  ['renews_without_end', 'oauth', 'F12'],
  ['believes_less', 'key', 'F27'],
  ['believes_one_percent', 'key', 'F27'],
];
