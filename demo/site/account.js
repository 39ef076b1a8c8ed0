/* The account page: everything that a biller's page needs to take a payment. */
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

/** Asks this site's own backend, which alone has the API key. The token is passed on and never stored. */
async function tokenFor(account) {
  const answer = await fetch('/api/token', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ account_id: account }),
  });
  if (!answer.ok) throw new Error(`no token: ${answer.status}`);
  return (await answer.json()).token;
}

/** Writes the SDK's events on the page, as text. */
function log(payment) {
  const list = document.querySelector('#log');
  list.replaceChildren();
  for (const event of ['ready', 'screen', 'payment', 'exit', 'error']) {
    payment.on(event, (value) => {
      const line = document.createElement('li');
      line.textContent = `${event} ${summary(event, value)}`;
      list.append(line);
    });
  }
}

function summary(event, value) {
  if (event === 'screen') return value.name;
  if (event === 'payment') return value.status;
  if (event === 'exit') return value.reason;
  return event === 'error' ? value.code : '';
}
