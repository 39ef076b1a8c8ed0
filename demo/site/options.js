/* The second page: inline and modal, themes and languages, changed while the page is open. */
import { log, tokenFor } from './shared.js';

const value = (id) => document.querySelector(`#${id}`).value;
const message = document.querySelector('#message');
const account = document.querySelector('[data-account]').dataset.account;
let shown;

const look = () => ({
  locale: value('locale'),
  appearance: {
    theme: value('theme'),
    variables: value('accent') === 'default' ? {} : { accent: value('accent') },
  },
});

document.querySelector('#open').addEventListener('click', () => {
  shown?.destroy();
  message.textContent = '';
  const mine = window.duebridge.createDuebridge({
    partner: document.documentElement.dataset.partner,
    fetchToken: () => tokenFor(account),
    display: value('display'),
    ...look(),
  });
  shown = mine;
  log(mine);
  mine.mount('#stage').catch((error) => {
    if (mine === shown && error.code !== 'destroyed') message.textContent = error.message;
  });
});
document.querySelector('#close').addEventListener('click', () => shown?.destroy());
for (const id of ['theme', 'accent', 'locale']) {
  document.querySelector(`#${id}`).addEventListener('change', () => shown?.update(look()));
}
