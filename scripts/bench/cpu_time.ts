// CPU time of this process, which the load of the machine disturbs less than any rate.
export class CpuTime {
  private readonly before = process.cpuUsage();

  /** Microseconds since the beginning, for each of `rows` rows. */
  per(rows: number): number {
    const { user, system } = process.cpuUsage(this.before);
    return (user + system) / rows;
  }
}
