/*
 * In the first bytes: the theme that the site asked for. And when a file of the page does not come, the customer reads so, and the site's SDK hears it and need not guess.
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
