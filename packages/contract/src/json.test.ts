import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { JsonProblem, MAX_JSON_DEPTH, OtherNumber, parseJson } from './json.ts';

test('a number that is not a plain whole number is never an amount [S5 PF6 F96]', () => {
  for (const source of ['1e2', '1.0', '100.000000000000001', '9007199254740993', '-0', '1e400']) {
    const value = parseJson(source);
    assert.ok(value instanceof OtherNumber, source);
    assert.equal(value.source, source);
  }
  assert.equal(parseJson('9007199254740991'), Number.MAX_SAFE_INTEGER);
  assert.equal(parseJson('-12'), -12);
});

test('duplicate keys are refused: otherwise the last one would silently win', () => {
  assert.throws(() => parseJson('{"amount_in_cents":1,"amount_in_cents":100}'), JsonProblem);
  // The same key, escaped.
  assert.throws(() => parseJson('{"a":1,"\\u0061":2}'), JsonProblem);
});

test('keys that reach the prototype are refused, escaped or not', () => {
  for (const key of ['__proto__', 'constructor', 'prototype', '\\u005f_proto__']) {
    for (const value of ['{"status":"succeeded"}', '"succeeded"', 'null', '1']) {
      assert.throws(() => parseJson(`{"${key}":${value}}`), JsonProblem, `${key}: ${value}`);
      assert.throws(() => parseJson(`{"a":{"${key}":${value}}}`), JsonProblem, key);
    }
  }
});

test('strings that PostgreSQL refuses or that collide as keys are refused [F97 F98]', () => {
  const escaped = ['"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"'];
  for (const text of [...escaped, '"\ud800"', '"a\tb"', '"\\x"']) {
    assert.throws(() => parseJson(text), JsonProblem, JSON.stringify(text));
  }
  assert.equal(parseJson('"\\ud83d\\ude00 \\u00e9"'), '😀 é');
});

test('a deeply nested body is refused before it exhausts the stack [F96]', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  assert.throws(() => parseJson(nested(100_000)), JsonProblem);
  assert.throws(() => parseJson(nested(MAX_JSON_DEPTH + 2)), JsonProblem);
  assert.ok(Array.isArray(parseJson(nested(MAX_JSON_DEPTH))));
});

test('a string that never ends is refused at once, however many quotation marks it has', () => {
  const before = process.cpuUsage();
  assert.throws(() => parseJson(`"${'\\"'.repeat(32_000)}`), JsonProblem);
  // Of the processor, which other programs may want as well.
  assert.ok(process.cpuUsage(before).user < 1_000_000);
});

test('invalid JSON is refused: empty, truncated, trailing text, BOM, NaN', () => {
  const cut = ['', ' ', '{', '{"a":', '[1,]', '{"a":1,}', '1 2', 'nul', '\ufeff{}'];
  for (const text of [...cut, 'NaN', '01', '+1', '.5', "'a'"]) {
    assert.throws(() => parseJson(text), JsonProblem, JSON.stringify(text));
  }
});

test('every JSON value without unusual numbers or keys parses as with JSON.parse', () => {
  const odd = new Set(['__proto__', 'constructor', 'prototype']);
  const leaf = fc.oneof(
    fc.constant(null),
    fc.boolean(),
    fc.maxSafeInteger().map((n) => (Object.is(n, -0) ? 0 : n)),
    fc.string({ unit: 'grapheme' }).filter((s) => !s.includes('\u0000')),
  );
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 5 },
      leaf,
      fc.array(tie('value'), { maxLength: 5 }),
      fc.dictionary(
        fc.string({ unit: 'grapheme' }).filter((k) => !odd.has(k) && !k.includes('\u0000')),
        tie('value'),
        { maxKeys: 5 },
      ),
    ),
  }));
  fc.assert(
    fc.property(value, fc.constantFrom(undefined, 2), (original, indent) => {
      const text = JSON.stringify(original, undefined, indent);
      assert.deepEqual(parseJson(text), JSON.parse(text));
    }),
    { seed: 1, numRuns: 500 },
  );
});

test('any text returns a value or throws JsonProblem, never another error', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
      try {
        parseJson(text);
      } catch (error) {
        assert.ok(error instanceof JsonProblem);
      }
    }),
    { seed: 1, numRuns: 2000 },
  );
});
