/**
 * What a caller of the API needs around `fetch`: requests are repeated by the type of their problem, each write has one
 * `Idempotency-Key` for all its attempts, and a change is decided again after a version conflict. This file has no
 * dependencies: copy it. It runs in browsers, and in Node 20 or newer.
 */

const KEY = "Idempotency-Key";
const PROBLEM = "urn:daybook:problem:";

export type Options = {
  /** The maximum number of attempts, with the first one. */
  attempts?: number;
  /** Milliseconds until an attempt without a whole response fails. API Gateway responds within 30 seconds. */
  timeoutMs?: number;
  /** The longest pause before the second attempt, in milliseconds. It doubles with each attempt, up to `maxPauseMs`. */
  firstPauseMs?: number;
  /** A response whose `Retry-After` is longer is returned. */
  maxPauseMs?: number;
  /** Sends an attempt, for example with a signature or a token of its own. */
  fetch?: (request: Request, init: RequestInit) => Promise<Response>;
};

/**
 * A `fetch` that repeats requests, for a generated client such as that of openapi-fetch. A write without an `Idempotency-Key`
 * gets a random one. With an empty one, it is sent without a key, and only repeated if nothing was written. After the last
 * attempt, its response is returned, or its error thrown.
 */
export function retrying(options: Options = {}): (input: RequestInfo | URL, init?: RequestInit) => Promise<Response> {
  const { attempts = 5, timeoutMs = 35_000, maxPauseMs = 10_000, fetch = globalThis.fetch } = options;
  return async (input, init) => {
    const request = new Request(input, init);
    const isRead = request.method === "GET" || request.method === "HEAD";
    if (!isRead && !request.headers.has(KEY)) request.headers.set(KEY, crypto.randomUUID());
    if (!request.headers.get(KEY)) request.headers.delete(KEY);
    const isSafe = isRead || request.headers.has(KEY);
    for (let attempt = 1; ; attempt++) {
      let least = 0;
      try {
        const signal = AbortSignal.any([request.signal, AbortSignal.timeout(timeoutMs)]);
        const response = await fetch(request.clone(), { signal });
        // The whole body, so that one that breaks off is a failed attempt too.
        const body = await response.clone().text();
        least = retryAfterMs(response);
        if (!isTransient(response, body, isSafe) || least > maxPauseMs || attempt >= attempts) return response;
      } catch (error) {
        if (!isSafe || request.signal.aborted || attempt >= attempts) throw error;
      }
      await pause(least + jitter(attempt, options), request.signal);
    }
  };
}

/** Whether another attempt can succeed, and cannot write twice. */
function isTransient(response: Response, body: string, isSafe: boolean): boolean {
  const { type, suspended } = response.headers.get("Content-Type")?.includes("json") ? problemOf(body) : {};
  switch (type) {
    case `${PROBLEM}unavailable`:
    case `${PROBLEM}contended`:
    case `${PROBLEM}newer-release`:
      return true; // nothing was written
    case `${PROBLEM}behind`:
      return !suspended; // until an operator resumes it
    case `${PROBLEM}outcome-unknown`:
      return isSafe;
    case undefined: // of API Gateway: too many requests, or the function crashed or timed out
      return response.status === 429 || (isSafe && [500, 502, 503, 504].includes(response.status));
    default:
      return false;
  }
}

function problemOf(body: string): { type?: unknown; suspended?: unknown } {
  try {
    return JSON.parse(body) ?? {};
  } catch {
    return {};
  }
}

const retryAfterMs = (response: Response): number => 1000 * (Number(response.headers.get("Retry-After")) || 0);

/** A random part of a limit that doubles with each attempt, so that callers that failed together do not return together. */
const jitter = (attempt: number, { firstPauseMs = 100, maxPauseMs = 10_000 }: Options): number =>
  Math.random() * Math.min(firstPauseMs * 2 ** (attempt - 1), maxPauseMs);

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/** A response of a generated client: `data`, or else the problem as `error`. */
type Result = { data?: unknown; error?: unknown; response: Response };

/**
 * Changes an aggregate on the state that was read. `write` sends the `ETag` that it gets as `If-Match`, or returns nothing if
 * there is nothing to change. After a version conflict, both are called again: `write` decides on the current state. Returns
 * the response to `write`, which is the conflict after the last attempt, or the response to `read` if that has no data.
 */
export async function change<Read extends Result, Written extends Result | undefined>(
  read: () => Promise<Read>,
  write: (data: NonNullable<Read["data"]>, etag: string) => Written | Promise<Written>,
  options: Options = {},
): Promise<Written | Exclude<Read, { data: {} }>> {
  for (let attempt = 1; ; attempt++) {
    const found = await read();
    if (found.data == null) return found as Exclude<Read, { data: {} }>;
    const etag = found.response.headers.get("ETag");
    if (etag === null) throw new Error(`the response of ${found.response.url} has no ETag`);
    const written = await write(found.data, etag);
    const isConflict = (written?.error as { type?: unknown } | undefined)?.type === `${PROBLEM}version-conflict`;
    if (!isConflict || attempt >= (options.attempts ?? 5)) return written;
    await pause(jitter(attempt, options));
  }
}
