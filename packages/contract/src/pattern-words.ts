/** The patterns and formats of the schemas in words, so that error messages do not show a regular expression. */

/** Keyed by the pattern's source. A test fails when the pattern of an operation is missing here. */
export const PATTERN_WORDS: Readonly<Record<string, string>> = {
  '^(?!\\.{1,2}$)[^\\u0000-\\u001f\\u007f-\\u009f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ud800-\\udfff\\ufeff]{1,128}$':
    'must be 1 to 128 printable characters, other than . and ..',
  '^(?!\\.{1,2}$)[A-Za-z0-9._-]{1,64}$':
    'must be 1 to 64 letters, digits, or any of . _ -, other than . and ..',
  '\\S': 'must not be blank',
  '^[^@\\s]+@[^@\\s]+$': 'must be an e-mail address, such as ada@example.com',
  '^[A-Za-z]{2}$': 'must be two letters, such as TX',
  '^([1-9][0-9]{0,2}|1000)$': 'must be a whole number from 1 to 1000',
  '^[a-z0-9][a-z0-9-]{0,62}$':
    'must be 1 to 63 lower-case letters, digits or hyphens, and not begin with a hyphen',
  '^[A-Za-z0-9_.-]{1,64}$': 'must be 1 to 64 letters, digits, or any of _ . -',
  '^[A-Za-z0-9_-]{1,64}$': 'must be 1 to 64 letters, digits, _ or -',
  '^([01][0-9]|2[0-3]):[0-5][0-9]$': 'must be a time of day from 00:00 to 23:59',
  '^[1-9][0-9]{0,10}$': 'must be a whole number of cents, such as 1250',
  '^[a-z_]{1,64}$': 'must be 1 to 64 lower-case letters or underscores',
  '^[a-z0-9][a-z0-9._-]{0,62}$':
    'must be 1 to 63 lower-case letters, digits, or any of . _ -, and begin with a letter or digit',
  '^(?!.*[0-9]{12})[A-Za-z0-9_.-]{1,255}$':
    'must be 1 to 255 letters, digits, or any of _ . -, and no card or bank number',
  '^acct_[A-Za-z0-9]{1,60}$': 'must be an account id of Stripe, such as acct_1NGa',
  '^[0-9a-f]{64}$': 'must be 64 hexadecimal digits in lower case',
  '^[0-9]{4,17}$': 'must be 4 to 17 digits',
  '^[0-9]{9}$': 'must be nine digits',
  '^[0-9]{1,12}$': 'must be a whole number of at most 12 digits',
  '^([1-9]|[1-4][0-9]|50)$': 'must be a whole number from 1 to 50',
  '^#[0-9a-fA-F]{6}$': 'must be a colour of six hexadecimal digits, such as #0b5fd9',
  '^[A-Za-z0-9+/]+={0,2}$': 'must be base64 without line breaks',
  '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$': 'must be a UUID in lower case',
};

/** Keyed by the format's name. */
export const FORMAT_WORDS: Readonly<Record<string, string>> = {
  date: 'must be a date, such as 2026-03-01',
  'date-time': 'must be a time with its zone, such as 2026-03-01T09:30:00Z',
  'iso-instant': 'must be an ISO 8601 time with its zone, such as 2026-03-01T09:30:00Z',
  'iso-date-time': 'must be an ISO 8601 time, such as 2026-03-01T09:30:00Z',
};
