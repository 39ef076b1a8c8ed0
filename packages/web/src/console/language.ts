/**
 * Imported before everything else: gives the browser a language that `Intl` accepts. Where the system's locale is `C` or `POSIX`,
 * browsers report a language such as `C` or `en-US@posix`; uPlot formats numbers by it as it loads, and would end the console
 * with a RangeError before anything is shown.
 */
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, 'language', { value: 'en', configurable: true });
}
