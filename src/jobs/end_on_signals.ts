/**
 * Ends a Nest application in order on SIGTERM and SIGINT, with exit code 0, and in time whatever hangs.
 *
 * By default Nest raises the signal again after its shutdown hooks, so that a clean stop looks like a kill: here it exits
 * instead. The engine itself ends `shutdown_grace_ms` + 3 s after the signal at the latest, but the driver of a database
 * that does not answer may take a minute to close: 4 s after the grace the process ends with code 1. Nothing is lost by
 * it that a crash would not keep.
 *
 * From the signal on every answer closes its connection: a server that closes ends those that rest, so a client that always has
 * a request under way on a connection it keeps (a load balancer) would hold up the end.
 */
import { Logger, type INestApplicationContext } from '@nestjs/common';
import type { Server, ServerResponse } from 'node:http';
import { JOBS_CONFIG, type JobsConfig } from './jobs.options.js';
import { SHUTDOWN_MARGIN_MS } from './lanes/shutdown.js';

const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/** Call it once, before `listen()`, in place of `enableShutdownHooks()`. Further signals change nothing. */
export function endOnSignals(app: INestApplicationContext): void {
  const withinMs = app.get<JobsConfig>(JOBS_CONFIG, { strict: false }).shutdown_grace_ms + SHUTDOWN_MARGIN_MS;
  let begun = false;
  const endInTime = (): void => {
    if (begun) return;
    begun = true;
    serverOf(app)?.prependListener('request', (_, response: ServerResponse) => {
      response.setHeader('Connection', 'close');
    });
    setTimeout(() => {
      new Logger('Sidelane').error(`the shutdown did not end within ${withinMs} ms: the process ends now`);
      process.exit(1);
    }, withinMs).unref();
  };
  for (const signal of SIGNALS) process.on(signal, endInTime);
  app.enableShutdownHooks([...SIGNALS], { useProcessExit: true });
}

/** An application context has none. */
function serverOf(app: INestApplicationContext): Server | undefined {
  const { getHttpServer } = app as { getHttpServer?: () => Server };
  return getHttpServer?.call(app);
}
