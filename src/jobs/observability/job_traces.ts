/**
 * OpenTelemetry spans of enqueues and runs, and the W3C `traceparent` that carries a trace through the row. Without an SDK
 * the API does nothing and every `traceparent` stays as it came. Never puts a payload, a key or a header into a span, and
 * never lets a faulty SDK touch a run.
 */
import {
  context,
  INVALID_SPAN_CONTEXT,
  isSpanContextValid,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Context,
  type Span,
  type SpanContext,
  type SpanOptions,
} from '@opentelemetry/api';
import { logText } from '../policy/log_text.js';

/** What a row keeps of the trace it belongs to. */
export interface TraceIds {
  readonly trace_id?: string | undefined;
  readonly traceparent?: string | undefined;
}

export interface TracedRow extends TraceIds {
  readonly code: string;
  readonly attempts: number;
}

const SYSTEM = { 'messaging.system': 'sidelane' };

/**
 * A producer span around an enqueue: child of the active span, else of the request's `traceparent`. `work` gets what its
 * rows are to carry.
 */
export function inEnqueueSpan<T>(
  targets: readonly string[],
  request: TraceIds | undefined,
  work: (carried: TraceIds) => Promise<T>,
): Promise<T> {
  return isTracing() ? tracedEnqueue(targets, request, work) : work(request ?? {});
}

async function tracedEnqueue<T>(
  targets: readonly string[],
  request: TraceIds | undefined,
  work: (carried: TraceIds) => Promise<T>,
): Promise<T> {
  const active = context.active();
  const parent = trace.getSpan(active) ? active : withRemote(active, fromTraceparent(request?.traceparent));
  const [target] = targets;
  const one = targets.every((name) => name === target);
  const span = startSpan(
    one ? `enqueue ${target}` : 'enqueue',
    {
      kind: SpanKind.PRODUCER,
      attributes: {
        ...SYSTEM,
        'messaging.operation.type': 'send',
        'messaging.batch.message_count': targets.length,
        ...(one && { 'messaging.destination.name': target! }),
      },
    },
    parent,
  );
  const own = toTraceparent(span.spanContext());
  const carried = own === undefined ? request : { trace_id: request?.trace_id ?? span.spanContext().traceId };
  try {
    return await context.with(trace.setSpan(parent, span), () =>
      work({ ...carried, traceparent: own ?? request?.traceparent }),
    );
  } catch (error) {
    safely(() => span.setStatus({ code: SpanStatusCode.ERROR, message: logText(error) }));
    throw error;
  } finally {
    safely(() => span.end());
  }
}

/**
 * A consumer span around one call of a handler, active inside of it. One row: child of the enqueue, and `work` gets the
 * `traceparent` that continues it. A batch: a trace of its own with a link to each row's; the rows keep their own.
 */
export function inRunSpan<T extends { readonly kind: string }>(
  target: string,
  rows: readonly TracedRow[],
  work: (traceparent: string | undefined) => Promise<T>,
): Promise<T> {
  return isTracing() ? traced(target, rows, work) : work(undefined);
}

async function traced<T extends { readonly kind: string }>(
  target: string,
  rows: readonly TracedRow[],
  work: (traceparent: string | undefined) => Promise<T>,
): Promise<T> {
  const origins = rows.flatMap((row) => fromTraceparent(row.traceparent) ?? []);
  // From the root: a run that a commit woke up must not become part of the request that committed.
  const parent = rows.length === 1 ? withRemote(ROOT_CONTEXT, origins[0]) : ROOT_CONTEXT;
  const span = startSpan(
    `run ${target}`,
    {
      kind: SpanKind.CONSUMER,
      attributes: {
        ...SYSTEM,
        'messaging.operation.type': 'process',
        'messaging.destination.name': target,
        'messaging.batch.message_count': rows.length,
        ...(rows.length === 1 && { 'sidelane.code': rows[0]!.code, 'sidelane.attempts': rows[0]!.attempts }),
      },
      links: rows.length === 1 ? [] : origins.map((origin) => ({ context: origin })),
    },
    parent,
  );
  try {
    const result = await context.with(trace.setSpan(parent, span), () => work(toTraceparent(span.spanContext())));
    safely(() => tellOutcome(span, result));
    return result;
  } finally {
    safely(() => span.end());
  }
}

function tellOutcome(span: Span, result: { readonly kind: string; readonly error?: unknown }): void {
  span.setAttribute('sidelane.outcome', result.kind);
  if ('error' in result) span.setStatus({ code: SpanStatusCode.ERROR, message: logText(result.error) });
}

function withRemote(base: Context, origin: SpanContext | undefined): Context {
  return origin ? trace.setSpanContext(base, origin) : base;
}

/** `00-<trace>-<span>-<flags>`; undefined for a span that leads nowhere. */
export function toTraceparent(span: SpanContext): string | undefined {
  if (!isSpanContextValid(span)) return undefined;
  return `00-${span.traceId}-${span.spanId}-${span.traceFlags.toString(16).padStart(2, '0')}`;
}

export function fromTraceparent(text: string | undefined): SpanContext | undefined {
  const parts = /^[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})/.exec(text ?? '');
  if (!parts) return undefined;
  const [, traceId, spanId, flags] = parts;
  const span = { traceId: traceId!, spanId: spanId!, traceFlags: parseInt(flags!, 16), isRemote: true };
  return isSpanContextValid(span) ? span : undefined;
}

/** Whether a tracer provider is registered: without one the API's calls would cost every row and lead nowhere. */
function isTracing(): boolean {
  return (
    safely(() => {
      const provider = trace.getTracerProvider();
      return !(provider instanceof ProxyTracerProvider) || provider.getDelegateTracer('sidelane') !== undefined;
    }) ?? false
  );
}

function startSpan(name: string, options: SpanOptions, parent: Context): Span {
  const span = safely(() => trace.getTracer('sidelane').startSpan(name, options, parent));
  return span ?? trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
}

/** An SDK may carry the host's own processors and samplers: their errors are theirs. */
function safely<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch {
    return undefined;
  }
}
