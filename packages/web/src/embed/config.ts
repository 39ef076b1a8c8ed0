/** Checks shared by all display modes, with their error messages. */
import { DuebridgeError, type DuebridgeErrorCode } from './types.ts';

const SECURE = /^http(s:|:\/\/(.+\.)?(localhost|127\.0\.0\.1|\[::1\])(:|$))/;

export const failure = (
  code: DuebridgeErrorCode,
  message: string,
  recoverable = false,
): DuebridgeError => new DuebridgeError({ code, message, recoverable });

export const wrongConfig = (message: string): DuebridgeError => failure('config_invalid', message);

/** The origin of the platform. Throws `config_invalid` for a URL that is neither https nor on this machine. */
export function platformOrigin(given?: string): string {
  const origin = URL.canParse(given as string) ? new URL(given as string).origin : '';
  if (SECURE.test(origin)) return origin;
  throw wrongConfig(`frameOrigin "${given}": not https`);
}
