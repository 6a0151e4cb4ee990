/** Every scenario of the bench, in the order they are run. */
import type { Scenario } from '../bench/scenario.types.js';
import { clocks } from './clocks.scenario.js';
import { crashPoints } from './crash_points.scenario.js';
import { databaseRestart } from './database_restart.scenario.js';
import { daylightSaving } from './daylight_saving.scenario.js';
import { targetFlood } from './flood.scenario.js';
import { kafkaTrouble } from './kafka.scenario.js';
import { kafkaPods } from './kafka_pods.scenario.js';
import { limits } from './limits.scenario.js';
import { lostReplies } from './lost_replies.scenario.js';
import { cutPod, databaseAway } from './network.scenario.js';
import { admins, rollingRestart } from './operations.scenario.js';
import { redisTrouble } from './redis.scenario.js';
import { blockedLoop, frozenPod } from './stalls.scenario.js';
import { poison, targetDown } from './targets.scenario.js';
import { versionCrash } from './version_crash.scenario.js';

export const SCENARIOS: readonly Scenario[] = [
  ...crashPoints,
  frozenPod,
  blockedLoop,
  cutPod,
  databaseAway,
  databaseRestart,
  lostReplies,
  targetDown,
  targetFlood,
  poison,
  limits,
  clocks,
  daylightSaving,
  rollingRestart,
  versionCrash,
  admins,
  kafkaTrouble,
  kafkaPods,
  redisTrouble,
];
