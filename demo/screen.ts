/**
 * The demo's terminal output: one updated line while it starts, then the addresses, then the story.
 */
import type { WriteStream } from 'node:tty';
import type { Demo } from './servers.ts';
import type { Step, Story } from './story.ts';

/** Where the demo's lines go. */
export interface Screen {
  line(text?: string): void;
  /** The current step; on a terminal the next one replaces it. */
  progress(text: string): void;
  block(lines: readonly string[]): void;
  step(step: Step): void;
  end(story: Story, ms: number): void;
}

/** Takes the stream to write to. Uses colours only on a terminal, unless they are disabled. */
export function screen(stream: NodeJS.WriteStream | WriteStream): Screen {
  const colour = stream.isTTY && process.env['NO_COLOR'] === undefined;
  const paint = (code: number, text: string): string =>
    colour ? `\u001b[${code}m${text}\u001b[0m` : text;
  const write = (text: string): void => {
    stream.write(text);
  };
  let begun = false;
  return {
    line: (text = '') => write(`${text}\n`),
    progress(text) {
      write(stream.isTTY ? `\u001b[2K\r  starting ${text} …` : `  starting ${text} …\n`);
    },
    block(lines) {
      if (stream.isTTY) write('\u001b[2K\r');
      for (const line of lines) write(`${line}\n`);
    },
    step({ at, what, says }) {
      if (!begun) write('\nOne payment, from token to the biller’s bank account\n');
      begun = true;
      const when = `${(at / 1000).toFixed(2)} s`.padStart(8);
      write(`${paint(2, when)}  ${paint(1, what.padEnd(10))} ${says}\n`);
    },
    end(story, ms) {
      const { status } = story.payment;
      const seconds = (ms / 1000).toFixed(1);
      const verdict = status === 'succeeded' ? paint(32, status) : paint(31, status);
      write(`\nThe payment has ${verdict}; ${seconds} s after the start.\n\n`);
    },
  };
}

/** The addresses to try. */
export function pageOf(demo: Demo): string[] {
  const [city, northwind] = demo.partners;
  const row = (name: string, url: string, about: string): string =>
    `  ${name.padEnd(14)} ${url.padEnd(24)} ${about}`;
  return [
    row('pay a bill', demo.siteUrl, "Northwind Gas's own site, with the payment page in it"),
    row('console', demo.consoleUrl, 'signs you in, once'),
    row('platform', demo.platform.url, `/docs, /openapi.json; admin ${demo.platform.adminUrl}`),
    row(city.name, city.server.url, `${city.about}; ${city.accounts.length} accounts`),
    row(
      northwind.name,
      northwind.server.url,
      `${northwind.about}; ${northwind.accounts.length} accounts`,
    ),
  ];
}
