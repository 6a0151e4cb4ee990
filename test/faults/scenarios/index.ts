/** Every scenario of the bench, by name. */
import type { Scenario } from '../bench/scenario.types.js';
import { crashPoints } from './crash_points.scenario.js';
import { lostReplies } from './lost_replies.scenario.js';
import { cutPod, databaseAway } from './network.scenario.js';
import { blockedLoop, frozenPod } from './stalls.scenario.js';

export const SCENARIOS: readonly Scenario[] = [crashPoints, frozenPod, cutPod, databaseAway, lostReplies, blockedLoop];
