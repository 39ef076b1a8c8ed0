/* The account page: everything that a biller's page needs to take a payment. */
import { log, tokenFor } from './shared.js';

const card = document.querySelector('[data-account]');
const pay = document.querySelector('#pay');
const message = document.querySelector('#message');

pay?.addEventListener('click', () => void open());

async function open() {
  message.textContent = '';
  let payment;
  try {
    payment = window.duebridge.createDuebridge({
      partner: document.documentElement.dataset.partner,
      fetchToken: () => tokenFor(card.dataset.account),
      display: 'modal',
      title: 'Pay your bill',
    });
    log(payment);
    payment.on('exit', ({ payment: last }) => {
      if (last?.status === 'succeeded') message.textContent = 'Thank you. Your payment is posted.';
      if (last?.status === 'processing') message.textContent = 'Your payment is on its way.';
      payment.destroy();
      void showBalance();
    });
    await payment.mount();
  } catch (error) {
    // The customer closed it before it was ready: not an error to report.
    if (error.code === 'destroyed') return;
    message.textContent = window.duebridge
      ? 'The payment page did not open. Please try again.'
      : 'Please reload this page. If you use a content blocker, allow it here.';
    payment?.destroy();
  }
}

async function showBalance() {
  const account = encodeURIComponent(card.dataset.account);
  const { amount, due } = await (await fetch(`/api/balance?account=${account}`)).json();
  document.querySelector('#amount').textContent = amount;
  document.querySelector('#due').textContent = due;
}
