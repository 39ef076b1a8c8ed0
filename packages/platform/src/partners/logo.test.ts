import assert from 'node:assert/strict';
import test from 'node:test';
import { deflateSync } from 'node:zlib';
import { png, pngChunk } from '../../test/png.ts';
import { readLogo, storedLogo } from './logo.ts';

const read = (file: Buffer): ReturnType<typeof readLogo> => readLogo(file.toString('base64'));

test('a logo keeps its pixels alone: no text, no profile, nothing behind its end', () => {
  const plain = png(64, 32);
  const extra = pngChunk('tEXt', Buffer.from('Author\0Ada Lovelace'));
  const full = Buffer.concat([png(64, 32, { extra }), Buffer.from('<script>alert(1)</script>')]);
  const logo = read(full);
  assert(typeof logo === 'object');
  assert.deepEqual(logo.image, plain);
  // The same picture has the same address.
  assert.deepEqual(read(plain), logo);
  assert.match(logo.name, /^[0-9a-f]{32}\.png$/);
});

test('what is no whole small picture is refused with the reason', () => {
  const good = png(64, 64);
  const flipped = Buffer.from(good);
  flipped.writeUInt8(flipped.readUInt8(50) ^ 1, 50);
  const bomb = deflateSync(Buffer.alloc(20_000_000));
  for (const [file, reason] of [
    [Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'), /^must be a PNG/],
    [Buffer.from('GIF89a'), /^must be a PNG/],
    [good.subarray(0, 8), /damaged/],
    [good.subarray(0, -12), /damaged/],
    [flipped, /damaged/],
    [png(64, 64, { packed: bomb }), /damaged/],
    [png(64, 64, { packed: deflateSync(Buffer.alloc(10)) }), /damaged/],
    [png(64, 64, { packed: Buffer.from('no pixels') }), /damaged/],
    [png(16, 64), /^must be 32 to 512 pixels wide and high, and is 16 by 64$/],
    [png(64, 513), /is 64 by 513$/],
    [png(64, 64, { interlaced: 1 }), /interlaced/],
    [Buffer.concat([good, Buffer.alloc(32_768)]), /^must be at most 32 KiB$/],
  ] as const) {
    const problem = read(file);
    assert(typeof problem === 'string');
    assert.match(problem, reason);
  }
});

test('a name that no logo has is asked of no database, which refuses some of them', async () => {
  const database = {
    query: () => Promise.reject(new Error('asked')),
  } as unknown as Parameters<typeof storedLogo>[0];
  for (const name of ['a\0b', 'other.png', `${'A'.repeat(32)}.png`, `${'a'.repeat(32)}.png\n`]) {
    assert.equal(await storedLogo(database, name), undefined);
  }
  await assert.rejects(storedLogo(database, `${'a'.repeat(32)}.png`), /asked/);
});
