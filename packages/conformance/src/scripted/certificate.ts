/**
 * A certificate that no caller may accept (F47): self-signed, expired, and for a foreign host name. Its key is public, and protects
 * nothing.
 */

/** Key and certificate in PEM, for node:tls. */
export interface Pem {
  readonly key: string;
  readonly cert: string;
}

/** Key and certificate from their lines in base64. */
export const pem = (key: readonly string[], cert: readonly string[]): Pem => ({
  key: block('PRIVATE KEY', key),
  cert: block('CERTIFICATE', cert),
});

const block = (what: string, lines: readonly string[]): string =>
  [`-----BEGIN ${what}-----`, ...lines, `-----END ${what}-----`, ''].join('\n');

/** CN=expired.sandbox.invalid, of the year 2019. */
export const BAD_CERTIFICATE = pem(
  [
    'MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgnoXP9Svi5+RjnfHjQvPr+C8LETQ9Qu7KgtAzJ8Wf6Wqh',
    'RANCAARbwSVdqKPLUfEwrQavQFGnq7cZlC702N9GZkfjnLpqA9MTg81dfLn0cw1TAm9KKpOrAewRvt/yaHbHYVyQN3nD',
  ],
  [
    'MIIBMjCCANegAwIBAgIBATAKBggqhkjOPQQDAjAiMSAwHgYDVQQDDBdleHBpcmVkLnNhbmRib3guaW52YWxpZDAeFw0x',
    'OTAxMDEwMDAwMDBaFw0yMDAxMDEwMDAwMDBaMCIxIDAeBgNVBAMMF2V4cGlyZWQuc2FuZGJveC5pbnZhbGlkMFkwEwYH',
    'KoZIzj0CAQYIKoZIzj0DAQcDQgAEW8ElXaijy1HxMK0Gr0BRp6u3GZQu9NjfRmZH45y6agPTE4PNXXy59HMNUwJvSiqT',
    'qwHsEb7f8mh2x2FckDd5wzAKBggqhkjOPQQDAgNJADBGAiEA+gPFRrwAlR9GquC05IWLBBNL9ui4imca1Zjvzbto3EYC',
    'IQDwOT5QjnI/q6GunA4fLftfckZzcQaNUZRzgbN0XF9d+A==',
  ],
);
