/**
 * Server-sent events from a fetch: EventSource cannot send the Authorization header.
 */

/** The longest event kept: a payment is about 1 kB; a stream that never ends a line is not one. */
const MAX_BUFFER = 64 * 1024;

/**
 * Parses a stream in chunks of any size; calls `onEvent` with the name and data of each event. Ignores comments, ids and retry
 * lines. Throws RangeError for an event over 64 kB.
 */
export function eventReader(onEvent: (name: string, data: string) => void): (text: string) => void {
  let buffer = '';
  let name = '';
  let data: string[] = [];
  return (text) => {
    buffer += text;
    for (;;) {
      // A CR at the very end may be half of CRLF: wait for what follows.
      const end = /\r\n|\n|\r(?!$)/.exec(buffer);
      if (!end) break;
      const line = buffer.slice(0, end.index);
      buffer = buffer.slice(end.index + end[0].length);
      if (line === '') {
        if (data.length > 0) onEvent(name || 'message', data.join('\n'));
        name = '';
        data = [];
      } else {
        const [, field, value = ''] = /^([^:]*)(?:: ?(.*))?$/.exec(line) ?? [];
        if (field === 'event') name = value;
        if (field === 'data') data.push(value);
      }
    }
    if (buffer.length + data.join().length > MAX_BUFFER) throw new RangeError('event too long');
  };
}
