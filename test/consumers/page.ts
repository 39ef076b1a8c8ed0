/** A page of the documentation as steps that can be followed: its programs written down, its commands carried out. */
import assert from 'node:assert/strict';
import { freePort } from '@duebridge/runtime/testing';
import type { Cleanup, Consumer } from './consumer.ts';

/** A code block: `sh` commands, or a program whose file name stands after the language. */
interface Block {
  readonly language: string;
  readonly file: string | undefined;
  readonly text: string;
}

/** What stands below one heading, up to the next. */
interface Section {
  readonly heading: string;
  readonly blocks: readonly Block[];
}

/** The sections of a Markdown page, in order. */
export function readPage(markdown: string): readonly Section[] {
  return markdown.split(/^#+ /m).map((part) => ({
    heading: part.split('\n', 1)[0] ?? '',
    blocks: [...part.matchAll(/^```(\w+) ?([\w./[\]-]*)[^\n]*\n([\s\S]*?)^```$/gm)].map(
      ([, language = '', file = '', text = '']) => ({
        language,
        file: file === '' ? undefined : file,
        text,
      }),
    ),
  }));
}

/**
 * Executes the blocks of a page in a project: writes its programs, installs, starts what ends with `&` and waits until it listens.
 * `ports` maps each port that the page names to a free one, in the order in which it starts servers. Fails the test when a command
 * fails.
 */
export async function follow(
  cleanup: Cleanup,
  consumer: Consumer,
  blocks: readonly Block[],
  ports: ReadonlyMap<number, number>,
): Promise<string> {
  const env: Record<string, string> = {};
  const free = [...ports.values()];
  let output = '';
  for (const { language, file, text } of blocks) {
    if (file !== undefined) await consumer.write(file, inOurPorts(text, ports));
    if (language !== 'sh') continue;
    for (const command of commandsOf(inOurPorts(text, ports))) {
      const [program = '', ...args] = command.split(/\s+/);
      if (program === 'export') Object.assign(env, assignment(command));
      else if (command.startsWith('npm install ')) await consumer.install(...args.slice(1));
      else if (command.endsWith(' &')) {
        const port = free.shift();
        assert.ok(port !== undefined, `${command}: the page names no port for it`);
        await consumer.serve(cleanup, `exec ${command.slice(0, -2)}`, port, env);
      } else output = await consumer.run('bash', ['-c', command], { env });
    }
  }
  return output;
}

/**
 * The ports that blocks of the quickstart name, in the order in which they start servers there, and free ones for them; `port` is the
 * partner server's, which is asked for in PORT.
 */
export async function portsOf(
  blocks: readonly Block[],
  port: number,
): Promise<ReadonlyMap<number, number>> {
  const besides = blocks.some(({ text }) => text.includes('4300'));
  return new Map([...(besides ? [[4300, await freePort()] as const] : []), [4100, port]]);
}

function inOurPorts(text: string, ports: ReadonlyMap<number, number>): string {
  return [...ports].reduce(
    (changed, [shown, ours]) => changed.replaceAll(String(shown), String(ours)),
    text,
  );
}

function commandsOf(script: string): string[] {
  return script
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
}

function assignment(command: string): Record<string, string> {
  const [, name = '', value = ''] = /^export ([A-Z_]+)='?([^'\s]+)'?$/.exec(command) ?? [];
  assert.ok(name !== '', `${command} is read as a shell reads it`);
  return { [name]: value };
}
