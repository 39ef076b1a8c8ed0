/**
 * The site's appearance, limited to values that keep the page readable and cannot do anything else. Refused values are reported,
 * so that the site's engineer does not look for the cause elsewhere.
 */
import type { Appearance, ThemeVar } from '../embed/types.ts';

/** WCAG 1.4.3: the minimum contrast of text. */
const READABLE = 4.5;
/** WCAG 1.4.11: that of an edge or a sign. */
const VISIBLE = 3;

const THEMES = {
  light: { background: '#ffffff', text: '#14181f', accent: '#0b5fd9' },
  dark: { background: '#14181f', text: '#f3f5f8', accent: '#8ab8ff' },
};

const COLOUR = /^#(?:[0-9a-f]{3}|[0-9a-f]{6})$/i;
/** The allowed form of a variable. Anything else could load, cover or break something. */
const VARIABLES: Readonly<Record<ThemeVar, RegExp>> = {
  accent: COLOUR,
  background: COLOUR,
  text: COLOUR,
  radius: /^\d{1,2}px$/,
  fontFamily: /^[\w\s"',-]{1,200}$/,
};

/**
 * Takes the appearance, whether the customer's system is dark, and the biller's registered colour, which is the accent unless the site
 * sets one. Unknown names, malformed values and pairs of colours under 4.5:1 are not applied, and are named in `problems`
 * for the site's engineer; `properties` are to be set on the page.
 */
export function themeProperties(appearance: Appearance, systemIsDark: boolean, colour?: string) {
  const asked = appearance.theme ?? 'auto';
  const theme = asked === 'dark' || (asked === 'auto' && systemIsDark) ? 'dark' : 'light';
  const base = THEMES[theme];
  const problems: string[] = [];
  const properties: Record<string, string> = {};
  const own = checked(appearance.variables ?? {}, problems);

  let { background } = base;
  if (own.background ?? own.text) {
    const { background: ground = background, text = base.text } = own;
    if (contrast(text, ground) >= READABLE) {
      background = ground;
      // One colour for all text and one ground: a paler variant of ours might not be readable here.
      Object.assign(properties, {
        '--bg': ground,
        '--soft': ground,
        '--text': text,
        '--muted': text,
      });
    } else problems.push(`variables.${own.text ? 'text' : 'background'} is hard to read`);
  }
  const accent = own.accent ?? colour ?? base.accent;
  // Links need the contrast of text; when the accent colour lacks it, they use the text's colour, underlined.
  properties['--link'] = contrast(accent, background) >= READABLE ? accent : 'var(--text)';
  // So do the signs and edges that would fade into the background.
  properties['--mark'] = contrast(accent, background) >= VISIBLE ? accent : 'var(--text)';
  properties['--accent'] = accent;
  properties['--on-accent'] = contrast(accent, '#ffffff') >= READABLE ? '#ffffff' : '#000000';
  if (own.radius) properties['--radius'] = own.radius;
  if (own.fontFamily) properties['--font'] = own.fontFamily;
  return { theme, properties, problems };
}

/** The values that are well-formed for their names; the others are named in `problems`. */
function checked(
  given: Readonly<Record<string, unknown>>,
  problems: string[],
): Partial<Record<ThemeVar, string>> {
  const good: Partial<Record<ThemeVar, string>> = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(VARIABLES, name)) problems.push(`variables.${name} is not known`);
    else if (typeof value !== 'string' || !VARIABLES[name as ThemeVar].test(value))
      problems.push(`variables.${name} is not valid`);
    else good[name as ThemeVar] = value;
  }
  return good;
}

/** WCAG contrast of two hex colours, 1 to 21. */
export function contrast(one: string, other: string): number {
  const [light = 0, dark = 0] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(hex: string): number {
  const digits = hex.length === 4 ? hex.replaceAll(/[0-9a-f]/gi, '$&$&') : hex;
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((start) => {
    const value = Number.parseInt(digits.slice(start, start + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
