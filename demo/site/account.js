/* The account page: everything that a biller's page needs to take a payment. */
import { log, tokenFor } from './shared.js';

const card = document.querySelector('[data-account]');
const pay = document.querySelector('#pay');
const message = document.querySelector('#message');

pay?.addEventListener('click', () => void open());
let payment = prepare();

function prepare() {
  // A content blocker may have stopped the script; without a button there is nothing to pay.
  if (!window.duebridge || !pay) return undefined;
  const made = window.duebridge.createDuebridge({
    partner: document.documentElement.dataset.partner,
    fetchToken: () => tokenFor(card.dataset.account),
    display: 'modal',
    title: 'Pay your bill',
  });
  made.on('exit', ({ payment: last }) => {
    if (last?.status === 'succeeded') message.textContent = 'Thank you. Your payment is posted.';
    if (last?.status === 'processing') message.textContent = 'Your payment is on its way.';
    made.destroy();
    payment = undefined;
    void showBalance();
  });
  return made;
}

async function open() {
  message.textContent = '';
  payment ??= prepare();
  if (!payment) {
    message.textContent = 'Please reload this page. If you use a content blocker, allow it here.';
    return;
  }
  const opened = payment;
  log(opened);
  try {
    await opened.mount();
  } catch (error) {
    // The customer closed it before it was ready: not an error to report.
    if (error.code === 'destroyed') return;
    message.textContent = 'The payment page did not open. Please try again.';
    opened.destroy();
    payment = undefined;
  }
}

async function showBalance() {
  const account = encodeURIComponent(card.dataset.account);
  const { amount, due } = await (await fetch(`/api/balance?account=${account}`)).json();
  document.querySelector('#amount').textContent = amount;
  document.querySelector('#due').textContent = due;
}
