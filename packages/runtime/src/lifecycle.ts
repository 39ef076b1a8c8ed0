/** The lifecycle of a service: a start whose failure is one sentence, and one graceful stop. */
import { ConfigurationError, exitCodes, messageOf } from './errors.ts';
import type { Log } from './log.ts';
import { onStopRequest } from './stop-request.ts';
import { sendSpans } from './tracing.ts';

/** How to run. */
export interface RunOptions {
  log: Log;
  /** DUEBRIDGE_ variables that this version does not know; logged, because one may be misspelt. */
  unknownVariables?: readonly string[];
  /** `stop` stops accepting, finishes or hands over the work in progress, closes; it is called once. */
  start(): Promise<{ stop(): Promise<void> }>;
  /** Time limit of a stop in milliseconds; default 10,000 (F82), after which a container host kills. */
  stopTimeoutMs?: number;
}

/**
 * Starts a service and ends the process when it has stopped. SIGTERM, SIGINT and SIGHUP (a closed terminal) stop it gracefully, once, and
 * so does the end of the npm that started it; a second signal ends the process at once. An uncaught error is logged and ends the process
 * with 1: its state is unknown, and everything durable survives. Exit codes: 0 stopped, 1 failed or forced, 2 configuration.
 */
export async function runService(options: RunOptions): Promise<void> {
  const { log, stopTimeoutMs = 10_000 } = options;
  const stopAsked = Promise.withResolvers<NodeJS.Signals>();
  let signals = 0;
  let late: NodeJS.Timeout | undefined;
  let isClosed = false;
  // All work is done by then: a collector of traces that is away or silent does not make the stop a failure.
  const endWithoutSpans = (error: string): never => {
    log.warn({ error }, 'stopped; the last spans were not sent');
    process.exit(exitCodes.done);
  };
  const onSignal = (signal: NodeJS.Signals): void => {
    signals += 1;
    if (signals > 1) {
      log.warn({ signal }, 'second signal: exiting immediately');
      process.exit(exitCodes.failed);
    }
    log.info({ signal }, 'stopping');
    stopAsked.resolve(signal);
    // Counts from the signal, also while the service still starts: a start may wait for a database or for another's migration.
    late = setTimeout(() => {
      if (isClosed) endWithoutSpans(`not within ${stopTimeoutMs} ms`);
      log.error({ stopTimeoutMs }, 'stopping took too long; exiting');
      process.exit(exitCodes.failed);
    }, stopTimeoutMs);
  };
  onStopRequest(onSignal);
  const onBug = (error: unknown): void => {
    log.error({ error: asError(error) }, 'uncaught error; exiting');
    process.exit(exitCodes.failed);
  };
  process.on('unhandledRejection', onBug).on('uncaughtException', onBug);

  for (const variable of options.unknownVariables ?? []) {
    log.warn({ variable }, 'unknown variable');
  }
  let service: Awaited<ReturnType<RunOptions['start']>>;
  try {
    service = await options.start();
  } catch (error) {
    const isConfiguration = error instanceof ConfigurationError;
    // A configuration error prints one sentence, like in every other command; a bug prints everything.
    if (isConfiguration) process.stderr.write(`duebridge: ${error.message}\n`);
    else log.error({ error: asError(error) }, 'the start failed');
    process.exit(isConfiguration ? error.exitCode : exitCodes.failed);
  }
  await stopAsked.promise;
  try {
    await service.stop();
    isClosed = true;
  } catch (error) {
    log.error({ error: asError(error) }, 'the stop failed');
    process.exit(exitCodes.failed);
  }
  await sendSpans().catch((error: unknown) => endWithoutSpans(messageOf(error)));
  clearTimeout(late);
  log.info({}, 'stopped');
  process.exit(exitCodes.done);
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
