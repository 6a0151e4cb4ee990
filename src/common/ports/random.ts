/** A number in [0, 1); injected so that jitter can be pinned. */
export type Random = () => number;

export const RANDOM = Symbol('sidelane.random');

export const systemRandom: Random = () => Math.random();
