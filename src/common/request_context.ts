/**
 * Who is acting, and under which trace. The request that enqueues a row leaves both in the row; the run of the row
 * opens them again, so that what a handler enqueues continues the same trace.
 *
 * A host with a context of its own (nestjs-cls, OpenTelemetry) replaces this through the option `context`.
 */
import { AsyncLocalStorage } from 'node:async_hooks';

export interface RequestContext {
  trace_id?: string;
  /** W3C `traceparent`, carried through the row to the Kafka headers. */
  traceparent?: string;
  /** Whoever acts; kept in the row as it is. */
  actor?: Record<string, unknown>;
}

export interface ContextStore {
  current(): RequestContext | undefined;
  run<T>(context: RequestContext, work: () => T): T;
}

const storage = new AsyncLocalStorage<RequestContext>();

export const requestContext: ContextStore = {
  current: () => storage.getStore(),
  run: (context, work) => storage.run(context, work),
};
