/*
 * Inlined at the top of the page: applies the site's theme. If a file of the page fails to load, it tells the customer, and the site's
 * SDK, which then need not wait for its timeout.
 */
const theme = location.hash.slice(1);
if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
addEventListener(
  'error',
  ({ target }) => {
    if (!(target instanceof HTMLScriptElement || target instanceof HTMLLinkElement)) return;
    const origins = document.querySelector('meta[name=duebridge-origins]').content;
    for (const origin of parent === window ? [] : JSON.parse(origins)) {
      parent.postMessage({ duebridge: 'duebridge/1 failed' }, origin);
    }
    const show = () => {
      const late = document.querySelector('#late');
      if (late) late.hidden = false;
    };
    show();
    addEventListener('DOMContentLoaded', show);
  },
  true,
);
