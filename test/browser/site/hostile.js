/*
 * A frame of somebody else in the same page: floods the site and the payment page with what a genuine
 * one would say, and counts what it gets back.
 */
window.got = [];
addEventListener('message', (event) => {
  // The test asks; all else is what it was not meant to hear.
  if (event.data === 'how much?') event.source.postMessage({ got: window.got.length }, '*');
  else window.got.push(event.data);
});
const hello = { duebridge: 'duebridge/1', nonce: 'guessed' };
setInterval(() => {
  const { port1, port2 } = new MessageChannel();
  port1.addEventListener('message', (event) => {
    // The test asks; all else is what it was not meant to hear.
    if (event.data === 'how much?') event.source.postMessage({ got: window.got.length }, '*');
    else window.got.push(event.data);
  });
  port1.start();
  parent.postMessage(hello, '*', [port2]);
  for (let index = 0; index < parent.frames.length; index += 1) {
    if (parent.frames[index] === window) continue;
    const channel = new MessageChannel();
    channel.port1.addEventListener('message', (event) => {
      // The test asks; all else is what it was not meant to hear.
      if (event.data === 'how much?') event.source.postMessage({ got: window.got.length }, '*');
      else window.got.push(event.data);
    });
    channel.port1.start();
    const init = { ...hello, display: 'inline', locale: 'en', appearance: {}, renews: true };
    parent.frames[index].postMessage(init, '*', [channel.port2]);
  }
}, 2);
