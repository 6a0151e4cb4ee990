/** Checks an options object against a table of rules; collects every fault, with the path and a hint for misspelt names. */

export interface Rule {
  readonly int?: readonly [min: number, max: number];
  readonly number?: readonly [min: number, max: number];
  /** A list of integers, not empty. */
  readonly ints?: readonly [min: number, max: number];
  readonly oneOf?: readonly string[];
  readonly boolean?: true;
  /** An object with these methods. */
  readonly object?: readonly string[];
  /** A list of classes or objects. */
  readonly classes?: true;
  /** Empty, or a URL of these protocols. It may hold a password, so no message repeats it. */
  readonly secretUrl?: readonly string[];
}

/** Path (`lease.ttl_ms`) to rule. */
export type Rules = Readonly<Record<string, Rule>>;

export function checkOptions<T>(name: string, raw: unknown, defaults: T, rules: Rules): { value: T; errors: string[] } {
  const errors: string[] = [];
  const value = merge(name, '', raw ?? {}, defaults as Record<string, unknown>, rules, errors);
  for (const [path, rule] of Object.entries(rules)) {
    const fault = faultOf(rule, at(value, path));
    if (fault) errors.push(`${name}.${path}: ${fault}`);
  }
  return { value: value as T, errors };
}

function merge(
  name: string,
  prefix: string,
  raw: unknown,
  defaults: Record<string, unknown>,
  rules: Rules,
  errors: string[],
): Record<string, unknown> {
  const result = { ...defaults };
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) {
    errors.push(`${[name, prefix].filter(Boolean).join('.')}: expected an object, got ${show(raw)}`);
    return result;
  }
  for (const [key, given] of Object.entries(raw)) {
    const path = prefix ? `${prefix}.${key}` : key;
    const isGroup = !Object.hasOwn(rules, path) && Object.keys(rules).some((known) => known.startsWith(`${path}.`));
    if (isGroup) {
      if (given !== undefined) {
        result[key] = merge(name, path, given, defaults[key] as Record<string, unknown>, rules, errors);
      }
    } else if (!Object.hasOwn(rules, path)) {
      errors.push(`${name}.${path}: unknown option${hint(path, Object.keys(rules))}`);
    } else if (given !== undefined) {
      result[key] = given;
    }
  }
  return result;
}

function at(value: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[key], value);
}

function faultOf(rule: Rule, value: unknown): string | undefined {
  if (rule.int && !isIntIn(value, rule.int)) return `expected a whole number ${range(rule.int)}, got ${show(value)}`;
  if (rule.number && !isNumberIn(value, rule.number))
    return `expected a number ${range(rule.number)}, got ${show(value)}`;
  if (rule.ints) {
    const bounds = rule.ints;
    if (!Array.isArray(value) || value.length === 0 || !value.every((item) => isIntIn(item, bounds))) {
      return `expected a list of whole numbers ${range(bounds)}, got ${show(value)}`;
    }
  }
  if (rule.oneOf && !rule.oneOf.includes(value as string)) {
    return `expected one of ${rule.oneOf.join(', ')}, got ${show(value)}`;
  }
  if (rule.boolean && typeof value !== 'boolean') return `expected true or false, got ${show(value)}`;
  if (rule.classes && !(Array.isArray(value) && value.every((item) => /function|object/.test(typeof item) && item))) {
    return `expected a list of classes or instances, got ${show(value)}`;
  }
  if (rule.secretUrl && !isUrlOf(value, rule.secretUrl)) {
    return `expected a URL that begins with ${rule.secretUrl.map((protocol) => `${protocol}//`).join(' or ')}`;
  }
  if (rule.object) {
    const missing = rule.object.filter((method) => typeof (value as Record<string, unknown>)?.[method] !== 'function');
    if (missing.length > 0) return `expected an object with ${rule.object.join(' and ')}, got ${show(value)}`;
  }
  return undefined;
}

function isUrlOf(value: unknown, protocols: readonly string[]): boolean {
  if (typeof value !== 'string') return false;
  return value === '' || (URL.canParse(value) && protocols.includes(new URL(value).protocol));
}

function isNumberIn(value: unknown, [min, max]: readonly [number, number]): boolean {
  return typeof value === 'number' && value >= min && value <= max;
}

function isIntIn(value: unknown, bounds: readonly [number, number]): boolean {
  return Number.isSafeInteger(value) && isNumberIn(value, bounds);
}

function range([min, max]: readonly [number, number]): string {
  return `from ${min} to ${max}`;
}

function show(value: unknown): string {
  if (typeof value === 'function') return 'a function';
  if (typeof value === 'string' && value.includes('://')) return 'a URL'; // it may hold a password
  try {
    return JSON.stringify(value)?.slice(0, 80) ?? String(value);
  } catch {
    return typeof value;
  }
}

function hint(path: string, known: readonly string[]): string {
  const closest = known
    .map((name) => ({ name, distance: editDistance(path, name) }))
    .sort((a, b) => a.distance - b.distance)[0];
  return closest && closest.distance <= 3 ? `, did you mean ${closest.name}?` : '';
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitute = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(substitute, previous[j]! + 1, row[j - 1]! + 1));
    }
    previous = row;
  }
  return previous[b.length]!;
}
