/**
 * The site's appearance, limited to values that keep the page readable and cannot do anything else.
 */
import type { Appearance, ThemeVar } from '../embed/types.ts';

/** WCAG 1.4.3: the minimum contrast of text. */
const READABLE = 4.5;

const THEMES = {
  light: { background: '#ffffff', text: '#14181f', accent: '#0b5fd9' },
  dark: { background: '#14181f', text: '#f3f5f8', accent: '#8ab8ff' },
};

/**
 * Takes the appearance and whether the customer's system is dark; returns the custom properties to set. Values other than a plain
 * colour, a length in px or a font list are ignored, and so is a pair of colours under 4.5:1.
 */
export function themeProperties(
  appearance: Appearance,
  systemIsDark: boolean,
): { theme: 'light' | 'dark'; properties: Readonly<Record<string, string>> } {
  const asked = appearance.theme ?? 'auto';
  const theme = asked === 'dark' || (asked === 'auto' && systemIsDark) ? 'dark' : 'light';
  const base = THEMES[theme];
  const given = (name: ThemeVar, shape: RegExp): string | undefined => {
    const value = appearance.variables?.[name];
    return typeof value === 'string' && shape.test(value) ? value : undefined;
  };
  const properties: Record<string, string> = {};

  const hex = /^#(?:[0-9a-f]{3}|[0-9a-f]{6})$/i;
  let { background } = base;
  const [ownBackground, ownText] = [given('background', hex), given('text', hex)];
  if (ownBackground !== undefined || ownText !== undefined) {
    const pair = [ownBackground ?? base.background, ownText ?? base.text] as const;
    if (contrast(...pair) >= READABLE) {
      background = pair[0];
      // One colour for all text: a paler one of theirs might not be readable.
      Object.assign(properties, { '--bg': pair[0], '--text': pair[1], '--muted': pair[1] });
      properties['--soft'] = pair[0];
    }
  }
  const accent = given('accent', hex) ?? base.accent;
  // Links need the contrast of text; where the accent lacks it, they are the text's colour, underlined.
  const readable = contrast(accent, background) >= READABLE;
  properties['--accent'] = accent;
  properties['--on-accent'] = contrast(accent, '#ffffff') >= READABLE ? '#ffffff' : '#000000';
  properties['--link'] = readable ? accent : 'var(--text)';

  const radius = given('radius', /^\d{1,2}px$/);
  if (radius !== undefined) properties['--radius'] = radius;
  const font = given('fontFamily', /^[\w\s"',-]{1,200}$/);
  if (font !== undefined) properties['--font'] = font;
  return { theme, properties };
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
