/*
 * The partner's own script: asks its backend for a token, opens the SDK, writes down what it hears.
 * A test calls `start(options)`; `?tag` uses the script tag, otherwise the npm build is imported.
 */
const sdk = window.duebridge ?? (await import('/npm/embed.js'));
const { createDuebridge } = sdk;

const heard = [];
window.heard = heard;
window.sdk = sdk;

/** Makes an instance for a partner of the scripted platform, and listens to everything. */
window.make = (options) => {
  const instance = createDuebridge({
    // The SDK's own patience is a customer's, not a busy machine's.
    loadTimeoutMs: 120_000,
    fetchToken: async (why) => {
      heard.push({ event: 'fetchToken', value: why });
      const answer = await fetch(`/token?partner=${options.partner}`);
      if (!answer.ok) throw new Error(`token backend: ${answer.status}`);
      return (await answer.json()).token;
    },
    ...options,
  });
  for (const event of ['ready', 'screen', 'payment', 'exit', 'error', 'resize']) {
    instance.on(event, (value) => {
      const { code, recoverable, requestId, displayMessage } = value;
      const cause = value.cause?.message;
      heard.push({
        event,
        value:
          event === 'error'
            ? JSON.parse(JSON.stringify({ code, recoverable, requestId, displayMessage, cause }))
            : value,
      });
    });
  }
  window.instance = instance;
  return instance;
};

/** Mounts; gives the code of the error it rejected with, or "mounted". */
window.start = (options, target = '#place') =>
  window
    .make(options)
    .mount(target)
    .then(
      () => 'mounted',
      (error) => error.code ?? String(error),
    );

document.querySelector('#open').addEventListener('click', () => window.onOpen?.());
window.siteReady = true;
