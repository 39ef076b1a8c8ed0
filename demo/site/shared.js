/* Code that both pages share. */

/** Asks this site's own backend, which alone has the API key. The token is passed on and never stored. */
export async function tokenFor(account) {
  const answer = await fetch('/api/token', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ account_id: account }),
  });
  if (!answer.ok) throw new Error(`no token: ${answer.status}`);
  return (await answer.json()).token;
}

/** Writes the SDK's events on the page, as text. */
export function log(payment) {
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
