/** A service's life: a start that fails with a sentence, and one graceful stop. */
import { ConfigurationError } from './errors.ts';
import type { Log } from './log.ts';

/** A started service. */
export interface Service {
  /** Stops accepting, finishes or hands over what is under way, closes. Called once. */
  stop(): Promise<void>;
}

/** How to run. */
export interface RunOptions {
  log: Log;
  start(): Promise<Service>;
  /** How long a stop may take in milliseconds; default 10,000 (reliability F82), what a container host grants before it kills. */
  stopTimeoutMs?: number;
}

/**
 * Starts a service and ends the process when it has stopped. SIGTERM and SIGINT stop it gracefully, once; a second one ends the
 * process at once. An error that nobody caught is logged and ends the process with 1, because its state is unknown and everything
 * durable survives (reliability F90). Exit codes: 0 stopped, 1 failed or forced, 2 configuration.
 */
export async function runService(options: RunOptions): Promise<void> {
  const { log, stopTimeoutMs = 10_000 } = options;
  const stopAsked = Promise.withResolvers<NodeJS.Signals>();
  let signals = 0;
  const onSignal = (signal: NodeJS.Signals): void => {
    signals += 1;
    if (signals > 1) {
      log.warn({ signal }, 'second signal: ending at once');
      process.exit(1);
    }
    log.info({ signal }, 'stopping');
    stopAsked.resolve(signal);
  };
  process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
  const onBug = (error: unknown): void => {
    log.error({ error: asError(error) }, 'an error was not caught; ending');
    process.exit(1);
  };
  process.on('unhandledRejection', onBug).on('uncaughtException', onBug);

  let service: Service;
  try {
    service = await options.start();
  } catch (error) {
    const isConfiguration = error instanceof ConfigurationError;
    // A sentence for the configuration; everything for a bug.
    if (isConfiguration) log.error({}, error.message);
    else log.error({ error: asError(error) }, 'the start failed');
    process.exit(isConfiguration ? error.exitCode : 1);
  }
  await stopAsked.promise;
  const late = setTimeout(() => {
    log.error({ stopTimeoutMs }, 'the stop took too long; ending');
    process.exit(1);
  }, stopTimeoutMs);
  try {
    await service.stop();
  } catch (error) {
    log.error({ error: asError(error) }, 'the stop failed');
    process.exit(1);
  }
  clearTimeout(late);
  log.info({}, 'stopped');
  process.exit(0);
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
