import assert from 'node:assert/strict';
import test from 'node:test';
import { png, pngChunk } from '../../test/png.ts';
import { readLogo, storedLogo } from './logo.ts';

const read = (file: Buffer): ReturnType<typeof readLogo> => readLogo(file.toString('base64'));

test('what is no small still picture is refused with the reason, and a picture is kept as it is', () => {
  for (const [file, reason] of [
    [Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'), /^must be a PNG/],
    [Buffer.from('GIF89a'), /^must be a PNG/],
    [png(64, 64).subarray(0, 20), /^must be a PNG/],
    [png(16, 64), /^must be 32 to 512 pixels wide and high, and is 16 by 64$/],
    [png(64, 513), /is 64 by 513$/],
    [png(64, 64, { extra: pngChunk('acTL', Buffer.alloc(8)) }), /^must not be animated$/],
    [Buffer.concat([png(64, 64), Buffer.alloc(32_768)]), /^must be at most 32 KiB$/],
  ] as const) {
    const problem = read(file);
    assert(typeof problem === 'string');
    assert.match(problem, reason);
  }
  const logo = read(png(64, 32));
  assert(typeof logo === 'object');
  assert.deepEqual(logo.image, png(64, 32));
  assert.match(logo.name, /^[0-9a-f]{32}\.png$/);
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
