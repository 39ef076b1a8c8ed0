import assert from 'node:assert/strict';
import test from 'node:test';
import { eventReader } from './sse.ts';

const STREAM =
  ': keep-alive\r\n\r\nevent: payment\r\ndata: {"a":1}\r\n\r\nretry: 10\nid: 7\ndata: one\ndata:two\n\nevent: other\rdata: x\r\rdata\n\nevent: unfinished\ndata: y';

const EVENTS = [
  ['payment', '{"a":1}'],
  ['message', 'one\ntwo'],
  ['other', 'x'],
  ['message', ''],
];

test('events come out the same wherever the network cuts them', () => {
  for (let cut = 0; cut <= STREAM.length; cut += 1) {
    const heard: string[][] = [];
    const read = eventReader((name, data) => heard.push([name, data]));
    read(STREAM.slice(0, cut));
    read(STREAM.slice(cut));
    assert.deepEqual(heard, EVENTS, `cut at ${cut}`);
  }
});

test('an endless event does not fill the memory', () => {
  const read = eventReader(() => {});
  assert.throws(() => {
    for (let size = 0; size < 200; size += 1) read(`data: ${'x'.repeat(1_000)}\n`);
  }, RangeError);
  const line = eventReader(() => {});
  assert.throws(() => line('x'.repeat(100_000)), RangeError);
});
