import assert from 'node:assert/strict';
import test from 'node:test';
import { contrast, themeProperties } from './appearance.ts';

const problemsOf = (appearance: object): readonly string[] =>
  themeProperties(appearance, false).problems;

test('a readable brand is applied completely, without a complaint', () => {
  const { properties, problems } = themeProperties(
    {
      theme: 'light',
      variables: {
        accent: '#7a1fa2',
        background: '#fffdf7',
        text: '#221a10',
        radius: '4px',
        fontFamily: '"Gill Sans", Optima, sans-serif',
      },
    },
    false,
  );
  assert.deepEqual(problems, []);
  assert.deepEqual(properties, {
    '--bg': '#fffdf7',
    '--text': '#221a10',
    '--muted': '#221a10',
    '--soft': '#fffdf7',
    '--link': '#7a1fa2',
    '--mark': '#7a1fa2',
    '--accent': '#7a1fa2',
    '--on-accent': '#ffffff',
    '--radius': '4px',
    '--font': '"Gill Sans", Optima, sans-serif',
  });
});

test('a value that could load, cover or break something is refused by name', () => {
  const unsafe: Record<string, string> = {
    accent: 'red; background: url(https://evil.example)',
    background: 'url(https://evil.example)',
    text: 'var(--bg)',
    radius: '999px',
    fontFamily: 'x;} body {display: none',
  };
  for (const [name, value] of Object.entries(unsafe)) {
    const { properties, problems } = themeProperties({ variables: { [name]: value } }, false);
    assert.match(problems.join(), new RegExp(`^variables\\.${name} is not valid`));
    assert.ok(!JSON.stringify(properties).includes(value), name);
  }
  assert.match(problemsOf({ variables: { accent: 7 } }).join(), /accent is not valid/);
});

test('an unknown name is reported, also one that every object has', () => {
  assert.deepEqual(problemsOf({ variables: { accnet: '#000000', constructor: '#000000' } }), [
    'variables.accnet is not known',
    'variables.constructor is not known',
  ]);
});

test('no text under 4.5:1 is ever applied, whatever colours are asked for', () => {
  const shades = [
    '#000',
    '#444444',
    '#777777',
    '#aaaaaa',
    '#ffffff',
    '#ff0000',
    '#00ff00',
    '#0000ff',
  ];
  for (const theme of ['light', 'dark'] as const)
    for (const background of shades)
      for (const text of shades) {
        const { properties, problems } = themeProperties(
          { theme, variables: { background, text } },
          false,
        );
        if (properties['--bg'] === undefined) {
          assert.match(problems.join(), /^variables.text is hard to read$/);
          continue;
        }
        const {
          '--bg': bg = '',
          '--soft': soft = '',
          '--text': shown = '',
          '--muted': pale = '',
        } = properties;
        for (const [on, ink] of [bg, soft].flatMap(
          (one) =>
            [
              [one, shown],
              [one, pale],
            ] as const,
        ))
          assert.ok(contrast(ink, on) >= 4.5, `${background} ${text}`);
      }
});

test('whatever colour a biller registers, its button can be read and its signs be seen in both themes', () => {
  const steps = ['00', '33', '66', '99', 'cc', 'ff'];
  const ground = { light: '#ffffff', dark: '#14181f' };
  for (const theme of ['light', 'dark'] as const)
    for (const red of steps)
      for (const green of steps)
        for (const blue of steps) {
          const colour = `#${red}${green}${blue}`;
          const { properties } = themeProperties({ theme }, false, colour);
          const {
            '--on-accent': label = '',
            '--mark': mark = '',
            '--link': link = '',
          } = properties;
          assert.equal(properties['--accent'], colour);
          assert.ok(contrast(label, colour) >= 4.5, colour);
          assert.ok(mark === 'var(--text)' || contrast(mark, ground[theme]) >= 3, colour);
          assert.ok(link === 'var(--text)' || contrast(link, ground[theme]) >= 4.5, colour);
        }
  // The site's own accent comes first: it was made for the page around ours.
  const own = themeProperties({ variables: { accent: '#7a1fa2' } }, false, '#0b7a75');
  assert.equal(own.properties['--accent'], '#7a1fa2');
});

test('a site’s theme comes before the system’s', () => {
  const themes = [{}, { theme: 'light' }, { theme: 'dark' }] as const;
  const seen = themes.flatMap((one) =>
    [false, true].map((dark) => themeProperties(one, dark).theme),
  );
  assert.deepEqual(seen, ['light', 'dark', 'light', 'light', 'dark', 'dark']);
});
